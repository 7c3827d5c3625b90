"""The subject grammar: `/tape/<kind>/<verb>/<dim>…`, and the patterns that select subjects.

A segment is percent-encoded so that no key a user chose can break the grammar: only letters,
digits and `-._~` stand for themselves. An empty dimension is written `_`, and so a dimension that
is literally `_` is written `%5F`; there is never an empty segment. In a pattern `*` stands for
exactly one segment and a final `**` for zero or more.
"""

import re
from typing import NamedTuple
from urllib.parse import quote, unquote

from tape.errors import InvalidArgument, TooLarge
from tape.model.json_text import UNLIMITED
from tape.settings import Limits

ROOT = "/tape/"
EVERYTHING = "/**"

_PLAIN = re.compile(r"[A-Za-z0-9.~-][A-Za-z0-9._~-]*|_[A-Za-z0-9._~-]+").fullmatch
_WORD = re.compile(r"[a-z][a-z0-9_]*").fullmatch
_SEGMENT = re.compile(r"(?:[A-Za-z0-9._~-]|%[0-9A-F]{2})+").fullmatch
_FAULT = re.compile(r"[^A-Za-z0-9._~%-]|%(?![0-9A-F]{2})").search


def encode_segment(text: str) -> str:
    """The one spelling of a dimension, whatever characters it holds."""
    if (text.isalnum() and text.isascii()) or _PLAIN(text):
        return text
    if not text:
        return "_"
    return "%5F" if text == "_" else quote(text, safe="")


def build_subject(kind: str, verb: str, *dimensions: str) -> str:
    if not _WORD(kind) or not _WORD(verb):
        raise InvalidArgument(f"kind and verb are lower-case words, not {kind!r}/{verb!r}")
    return "/".join((ROOT + kind, verb, *map(encode_segment, dimensions)))


def check_length(subject: str, limits: Limits) -> str:
    """Names within their limit can still add up to too much, or grow by their encoding."""
    if len(subject) > limits.subject_bytes:
        raise TooLarge(
            f"the subject has {len(subject)} bytes, the limit is {limits.subject_bytes}",
            field="subject",
        )
    return subject


def parse_subject(
    text: str, *, field: str = "subject", limits: Limits = UNLIMITED
) -> tuple[str, ...]:
    """The segments after `/tape`, or a refusal that says where the fault is."""
    _require_root(text, field, limits)
    segments = text[len(ROOT) :].split("/")
    at = len(ROOT)
    for index, segment in enumerate(segments):
        _check_segment(segment, index, at, field)
        at += len(segment) + 1
    if len(segments) < 2:
        raise InvalidArgument("a subject needs a kind and a verb", field=field, position=len(text))
    return tuple(segments)


class Pattern(NamedTuple):
    """A parsed pattern. `prefix` is what every subject it matches starts with."""

    text: str
    segments: tuple[str, ...]
    deep: bool
    prefix: str
    expression: re.Pattern[str]

    @property
    def everything(self) -> bool:
        return self.deep and not self.segments

    @property
    def exact(self) -> bool:
        return not self.deep and "*" not in self.segments

    def matches(self, subject: str) -> bool:
        return self.expression.fullmatch(subject) is not None


def parse_pattern(
    text: str, *, field: str = "subject_pattern", limits: Limits = UNLIMITED
) -> Pattern:
    if text == EVERYTHING:
        return _compile(text, (), deep=True)
    _require_root(text, field, limits)
    segments = text[len(ROOT) :].split("/")
    at = len(ROOT)
    for index, segment in enumerate(segments):
        if segment == "**" and index < len(segments) - 1:
            raise InvalidArgument("** may only be the last segment", field=field, position=at)
        if segment not in ("*", "**"):
            _check_segment(segment, index, at, field)
        at += len(segment) + 1
    deep = segments[-1] == "**"
    if deep:
        segments.pop()
    return _compile(text, ("tape", *segments), deep=deep)


def _compile(text: str, segments: tuple[str, ...], *, deep: bool) -> Pattern:
    source = "".join("/[^/]+" if s == "*" else "/" + re.escape(s) for s in segments)
    literal = segments[: segments.index("*")] if "*" in segments else segments
    prefix = "".join("/" + s for s in literal)
    if "*" in segments:
        prefix += "/"
    tail = "(?:/.*)?" if deep else ""
    return Pattern(text, segments, deep, prefix, re.compile(source + tail))


def _require_root(text: str, field: str, limits: Limits) -> None:
    if len(text) > limits.subject_bytes:
        raise TooLarge(f"more than {limits.subject_bytes} bytes", field=field)
    if not text.startswith(ROOT):
        fault = next((i for i, c in enumerate(ROOT) if text[i : i + 1] != c), 0)
        raise InvalidArgument(f"must start with {ROOT!r}", field=field, position=fault)


def _check_segment(segment: str, index: int, at: int, field: str) -> None:
    if not segment:
        raise InvalidArgument(
            "empty segment; an empty dimension is written _", field=field, position=at
        )
    if index < 2 and not _WORD(segment):
        what = ("kind", "verb")[index]
        raise InvalidArgument(
            f"the {what} {segment!r} is not a lower-case word", field=field, position=at
        )
    if not _SEGMENT(segment):
        fault = _FAULT(segment)
        start = fault.start() if fault else 0
        character = segment[start]
        raise InvalidArgument(_advice(character), field=field, position=at + start)
    if "%" in segment and (spelling := _spelling(segment)) != segment:
        raise InvalidArgument(
            f"{segment!r} is written {spelling!r}" if spelling else f"{segment!r} is not UTF-8",
            field=field,
            position=at,
        )


def _spelling(segment: str) -> str:
    """The one way in which a dimension is ever written: any other could match nothing."""
    try:
        return encode_segment(unquote(segment, errors="strict"))
    except UnicodeDecodeError:
        return ""


def _advice(character: str) -> str:
    if character == "%":
        return "% must be followed by two upper-case hexadecimal digits"
    if character == "*":
        return "* stands alone in its segment; a literal one is written %2A"
    if "\ud800" <= character <= "\udfff":
        return "a lone surrogate is not text"
    return f"{character!r} must be written {quote(character, safe='')}"
