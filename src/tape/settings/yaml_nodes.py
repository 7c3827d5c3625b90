"""The nodes of a document in YAML or JSON, by the core schema of YAML 1.2.

PyYAML reads YAML 1.1, where `off`, `yes` and `no` are booleans, 010 is 8 and 1:30 is 90. Here only
true and false are booleans, and a number is one that YAML 1.2 has; everything else is a text. Size
and depth are bounded, and what cannot be read is refused with its line. `located.py` makes values
of the nodes, for whoever does not judge them one by one.
"""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final, NamedTuple

import yaml
from yaml.composer import Composer
from yaml.parser import Parser
from yaml.reader import Reader, ReaderError
from yaml.resolver import BaseResolver
from yaml.scanner import Scanner

from tape.errors import InvalidArgument, TooLarge
from tape.settings import MIB
from tape.settings.json_nodes import compose_json, json_fault

SHOWN = 40  # characters of a long value
TAG: Final = "tag:yaml.org,2002:"
NULL_TAG: Final = f"{TAG}null"
NUMBER_OR_TEXT_TAGS: Final = frozenset(f"{TAG}{kind}" for kind in ("int", "float", "str"))


class DocumentRules(NamedTuple):
    """What a document may be. Without `aliases`, tags and anchors are refused as well."""

    most_bytes: int
    most_depth: int = 32
    aliases: bool = False


FILE_RULES: Final = DocumentRules(MIB, aliases=True)
"""For files of whoever runs this process."""


class _CoreLoader(Reader, Scanner, Parser, Composer, BaseResolver):
    """Nodes of one document, within the rules."""

    def __init__(self, text: str | bytes, name: str, rules: DocumentRules) -> None:
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)
        Composer.__init__(self)
        BaseResolver.__init__(self)
        self.name = name
        self._rules = rules
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event: yaml.Event = self.peek_event()  # type: ignore[no-untyped-call]
        if not self._rules.aliases:
            _refuse_indirection(event)
        self._depth += 1
        if self._depth > self._rules.most_depth:
            message = f"it is nested too deeply, {self._rules.most_depth} levels are allowed"
            raise _unread(message, event)
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


_FLOAT = r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
_NO_NUMBER = r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
for _kind, _form, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    ("float", f"{_FLOAT}|{_NO_NUMBER}", list("-+.0123456789")),
):
    _CoreLoader.add_implicit_resolver(f"{TAG}{_kind}", re.compile(rf"(?:{_form})\Z"), _first)


def compose(
    text: str | bytes, rules: DocumentRules, *, field: str, name: str = ""
) -> yaml.Node | None:
    """The nodes of a document, None if nothing is in it. `name` is that of its file."""
    try:
        size = len(text if isinstance(text, bytes) else text.encode())
    except UnicodeEncodeError as fault:
        line = text[: fault.start].count("\n") + 1 if isinstance(text, str) else None
        raise InvalidArgument("a lone surrogate is not text", field=field, line=line) from None
    if size > rules.most_bytes:
        raise TooLarge(f"{size} bytes, the limit is {rules.most_bytes}", field=field)
    no_json = json_fault(text) if isinstance(text, str) else None
    try:
        if isinstance(text, str) and no_json is None:
            return compose_json(text, name, rules.most_depth)
        return _CoreLoader(text, name, rules).get_single_node()
    except (yaml.YAMLError, ValueError, RecursionError) as fault:
        if no_json is not None and no_json.is_meant:
            message = f"is not JSON: {no_json.said}"
            raise InvalidArgument(message, field=field, line=no_json.line) from None
        raise _not_yaml(fault, text, field) from None


def shown(node: yaml.Node) -> str:
    """A node as refusals quote it."""
    if not isinstance(node, yaml.ScalarNode):
        return "a mapping" if isinstance(node, yaml.MappingNode) else "a list"
    text = str(node.value)
    if node.tag == NULL_TAG or not text:
        return "an empty value"
    return f"{abridged(text)} in quotes" if node.style else abridged(text)


def abridged(text: str) -> str:
    """The beginning of a text, on one line and without a login that is in it."""
    text = without_login(text)
    shown = text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
    if shown.isprintable():
        return shown
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in shown)


def has_login(text: str) -> bool:
    """Whether it may have `user:password@` in it, as URLs of brokers do."""
    return ":" in text.rpartition("@")[0]


def without_login(text: str) -> str:
    """The text as it may be repeated in a refusal, which goes to logs and to whoever asked."""
    return f"…@{text.rpartition('@')[2]}" if has_login(text) else text


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`did you mean X? ` if something known is close to the name, else nothing."""
    close = get_close_matches(abridged(name), list(known), n=1)
    return f"did you mean {close[0]}? " if close else ""


def refusal(node: yaml.Node, field: str, message: str) -> InvalidArgument:
    """A refusal that names the line of a node, and the file if the node is of one."""
    mark = node.start_mark
    line = mark.line + 1
    file = f"{mark.name}, " if mark.name else ""
    return InvalidArgument(f"{message} ({file}line {line})", field=field, line=line)


def _refuse_indirection(event: yaml.Event) -> None:
    if isinstance(event, yaml.AliasEvent):
        problem = "aliases are not allowed; write the value out"
    elif isinstance(event, yaml.NodeEvent) and event.anchor is not None:
        problem = "anchors are not allowed; leave it out"
    elif getattr(event, "tag", None) is not None:
        problem = "tags are not allowed; leave it out"
    else:
        return
    raise _unread(problem, event)


def _unread(problem: str, event: yaml.Event) -> yaml.MarkedYAMLError:
    # The stubs know two kinds of marks, one for each of PyYAML's parsers.
    return yaml.MarkedYAMLError(None, None, problem, event.start_mark)  # type: ignore[arg-type]


def _not_yaml(fault: Exception, text: str | bytes, field: str) -> InvalidArgument:
    line = None
    if isinstance(fault, RecursionError):
        said = "it is nested too deeply"
    elif isinstance(fault, yaml.MarkedYAMLError) and fault.problem_mark is not None:
        mark = fault.problem_mark
        line = mark.line + 1
        what = ", ".join(part for part in (fault.context, fault.problem) if part)
        said = f"line {line}, column {mark.column + 1}: {what}"
    else:
        said = str(fault).partition("\n")[0]
        if isinstance(fault, ReaderError) and isinstance(text, str):
            line = text.count("\n", 0, fault.position) + 1
            said = f"line {line}: {said}"
    return InvalidArgument(f"is not YAML: {said}", field=field, line=line)
