"""JSON texts as nodes of YAML, which have lines.

YAML 1.2 contains JSON, but PyYAML does not read all of it: it takes no tabs between tokens, no keys
beyond a kilobyte, and makes two halves of a character that JSON writes as a surrogate pair.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

import orjson
import yaml
from yaml.error import Mark

_TAG = "tag:yaml.org,2002:"
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_START = re.compile(r'[ \t\r\n]*\{[ \t\r\n]*(?P<key>"?)')
_WORDS = {"true": "bool", "false": "bool", "null": "null"}


class JsonFault(NamedTuple):
    """What is wrong with a text as JSON. `is_meant` is whether it was meant to be: its first key is
    in double quotes."""

    said: str
    line: int
    is_meant: bool


def json_fault(text: str) -> JsonFault | None:
    """None for the text of a JSON object."""
    start = _START.match(text)
    if start is None:
        return JsonFault("it does not begin with {", 1, is_meant=False)
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError as fault:
        said = f"line {fault.lineno}, column {fault.colno}: {fault.msg}"
        return JsonFault(said, fault.lineno, is_meant=bool(start["key"]))
    return None


def compose_json(text: str, name: str, most_depth: int) -> yaml.Node:
    """The nodes of a text that is valid JSON."""
    tokens = _tokens(text, name)
    return _node(next(tokens), tokens, most_depth)


def _tokens(text: str, name: str) -> Iterator[tuple[str, Mark]]:
    line, begins, seen = 0, 0, 0  # the line's number from 0, where it begins, what is read
    for found in _TOKEN.finditer(text):
        at = found.start()
        if newlines := text.count("\n", seen, at):
            line, begins = line + newlines, text.rindex("\n", seen, at) + 1
        seen = at
        if found[0] not in (",", ":"):
            yield found[0], Mark(name, at, line, at - begins, None, 0)


def _node(token: tuple[str, Mark], rest: Iterator[tuple[str, Mark]], depth: int) -> yaml.Node:
    text, mark = token
    if depth < 1:
        raise yaml.MarkedYAMLError(None, None, "it is nested too deeply", mark)
    if text == "[":
        items = list(_until("]", rest, depth))
        return yaml.SequenceNode(f"{_TAG}seq", items, mark, mark)
    if text == "{":
        flat = _until("}", rest, depth)
        return yaml.MappingNode(f"{_TAG}map", list(zip(flat, flat, strict=True)), mark, mark)
    if text.startswith('"'):
        return yaml.ScalarNode(f"{_TAG}str", orjson.loads(text), mark, mark, style='"')
    kind = _WORDS.get(text) or ("float" if set(text) & set(".eE") else "int")
    return yaml.ScalarNode(f"{_TAG}{kind}", text, mark, mark)


def _until(end: str, rest: Iterator[tuple[str, Mark]], depth: int) -> Iterator[yaml.Node]:
    """The nodes of an object or a list: of an object its keys and values in turn."""
    for token in rest:
        if token[0] == end:
            return
        yield _node(token, rest, depth - 1)
