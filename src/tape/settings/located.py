"""A document as plain values, each with its line."""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import yaml

from tape.errors import InvalidArgument
from tape.settings.yaml_nodes import NULL_TAG, TAG, DocumentRules, abridged, compose, refusal, shown

NodePath = tuple[str | int, ...]
"""Names and places from the root of a document to a value."""

_LEAST_INT, _MOST_INT = -(2**63), 2**64 - 1  # what JSON texts can hold here
_DIGITS = 400  # of the longest number that a double can be near to


class LocatedDocument(NamedTuple):
    """Plain values, and the line of each by its path: of a block, where its key is."""

    value: Any
    lines: Mapping[NodePath, int]

    def line(self, path: NodePath) -> int | None:
        """That of the value, or of the block around it if there is no such value."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path)

    def line_of(self, field: str) -> int | None:
        """Like `line`, for a path as refusals name it."""
        found = max(
            (path for path in self.lines if _leads_to(dotted(path), field)), key=len, default=()
        )
        return self.lines.get(found)

    def refusal(self, message: str, path: NodePath) -> InvalidArgument:
        line = self.line(path)
        where = "" if line is None else f" (line {line})"
        return InvalidArgument(f"{message}{where}", field=dotted(path), line=line)


def read_located(text: str, rules: DocumentRules, *, field: str) -> LocatedDocument:
    """A document as plain values; keys are texts, and none is there twice."""
    node = compose(text, rules, field=field)
    reading = _NodeReader(field)
    value = None if node is None else reading.value(node, (), node.start_mark.line + 1)
    return LocatedDocument(value, reading.lines)


class _NodeReader:
    """Values of nodes. One that several aliases name is read once. `field` is that of the root."""

    def __init__(self, field: str) -> None:
        self._field = field
        self.lines: dict[NodePath, int] = {}
        self._known: dict[int, Any] = {}
        self._inside: set[int] = set()

    def value(self, node: yaml.Node, path: NodePath, line: int) -> Any:
        self.lines[path] = line
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        key = id(node)
        if key in self._inside:
            raise self._refusal(node, path, "holds itself")
        if key not in self._known:
            self._inside.add(key)
            self._known[key] = self._collection(node, path)
            self._inside.discard(key)
        return self._known[key]

    def _collection(self, node: yaml.Node, path: NodePath) -> Any:
        if isinstance(node, yaml.SequenceNode):
            return [
                self.value(item, (*path, place), item.start_mark.line + 1)
                for place, item in enumerate(node.value)
            ]
        found: dict[str, Any] = {}
        for key, item in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise self._refusal(key, path, f"{shown(key)} is not a key; a key is a text")
            name = self._text(key, path)
            if name in found:
                raise self._refusal(key, (*path, name), "is listed twice; remove one")
            at = item if isinstance(item, yaml.ScalarNode) else key
            found[name] = self.value(item, (*path, name), at.start_mark.line + 1)
        return found

    def _scalar(self, node: yaml.ScalarNode, path: NodePath) -> bool | float | str | None:
        text = self._text(node, path)
        read = _SCALARS.get(node.tag)
        if read is None:
            raise self._refusal(node, path, f"the tag {node.tag} is not known; leave it out")
        try:
            return read(text)
        except (ValueError, OverflowError):
            raise self._refusal(node, path, f"{shown(node)} is no number of 64 bits") from None

    def _text(self, node: yaml.ScalarNode, path: NodePath) -> str:
        text = str(node.value)
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError:
                raise self._refusal(node, path, "a lone surrogate is not text") from None
        return text

    def _refusal(self, node: yaml.Node, path: NodePath, message: str) -> InvalidArgument:
        return refusal(node, dotted(path) or self._field, message)


def _whole(text: str) -> int:
    if len(text) > _DIGITS:
        raise ValueError(text)
    number = int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
    if not _LEAST_INT <= number <= _MOST_INT:
        raise ValueError(text)
    return number


def _fractional(text: str) -> float:
    if text.lstrip("-+.").lower() in ("inf", "nan"):
        return float(text.replace(".", ""))
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError(text)
    return number


_SCALARS: Final[Mapping[str, Callable[[str], bool | float | str | None]]] = {
    NULL_TAG: lambda _: None,
    f"{TAG}bool": lambda text: text.lower() == "true",
    f"{TAG}int": _whole,
    f"{TAG}float": _fractional,
    f"{TAG}str": str,
}


def _leads_to(name: str, field: str) -> bool:
    return not name or field == name or field.startswith((f"{name}.", f"{name}["))


def dotted(path: NodePath) -> str:
    """A path as refusals name it: `spec.headers.directives[0].allowed`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += f".{abridged(step)}" if text else abridged(step)
    return text
