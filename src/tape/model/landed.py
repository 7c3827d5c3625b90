"""A message that somebody has landed: a line of JSON, for a file or an object store.

    {"headers": {"Kind": "placed"}, "key": "k", "timestamp_ms": 1, "position": "p/1", "body": "{}"}

Only `body` is required. It is a text, with `"body_encoding": "base64"` beside it if that is what it
is; any other JSON value stands for its own text. `position` names the message for ever. A header is
a text, a list of texts if it came several times, or `{"base64": …}` where its bytes are not UTF-8.
Where an object cannot tell the order in which they came, `headers` is a list of pairs.

What Tape itself lands has its place for a position, and `source`, `origin` and what else there is
of a message, so that it can be restored exactly.
"""

import json
from base64 import b64decode
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import orjson

from tape.errors import InvalidArgument
from tape.model.json_text import exceeds_64_bits
from tape.model.message import BASE64, Header, SourceMessage, body_text, is_storable

FIELDS: Final = (
    "headers", "key", "timestamp_ms", "position", "body", "body_encoding", "source", "origin",
    "message_id", "subject", "deliveries",
)  # fmt: skip
_TOO_DEEP: Final = "nests too deeply"
_TEXTS: Final = ("source", "origin", "message_id", "subject")


class LandedMessage(NamedTuple):
    """A line, read. What it does not say is None or empty."""

    body: bytes
    headers: tuple[Header, ...] = ()
    position: str = ""
    key: str | None = None
    timestamp_ms: int | None = None
    source: str = ""
    origin: str = ""
    message_id: str = ""
    subject: str = ""
    deliveries: int = 1

    def restored(self) -> SourceMessage:
        """The message that Tape landed, with the place that it had."""
        within = self.origin + "/"
        if not (self.source and self.origin and self.position.startswith(within)):
            raise InvalidArgument(
                "the line does not say where its message was: source, origin and a position in it",
                field="origin",
            )
        return self._as_message(self.source, self.origin, self.position.removeprefix(within))

    def found_at(self, source: str, origin: str, position: str) -> SourceMessage:
        """The message as one of another source, which has this line: there is its place, whatever
        the line says. Its position is its id if it has no other."""
        found = self._as_message(source, origin, position)
        return found._replace(message_id=self.message_id or self.position, deliveries=1)

    def _as_message(self, source: str, origin: str, position: str) -> SourceMessage:
        return SourceMessage(
            source, origin, position, self.body, self.headers, self.message_id, self.key or "",
            self.timestamp_ms or 0, self.subject, self.deliveries,
        )  # fmt: skip


def landed(message: SourceMessage) -> bytes:
    """The line of a message, without an end of line; there is none in it."""
    text, encoding = body_text(message.body)
    line: dict[str, Any] = {
        "headers": _headers_as_json(message.headers),
        "key": message.key,
        "timestamp_ms": message.timestamp_ms,
        "position": message.place,
        "body": text,
        "body_encoding": encoding,
        "source": message.source,
        "origin": message.origin,
        "message_id": message.message_id,
        "subject": message.subject,
        "deliveries": message.deliveries,
    }
    return orjson.dumps(
        {name: value for name, value in line.items() if value != "" or name == "body"}
    )


def read_landed(line: bytes) -> LandedMessage:
    """InvalidArgument says what is wrong with a line."""
    try:
        said = orjson.loads(line)
    except orjson.JSONDecodeError as fault:
        raise InvalidArgument(f"not valid JSON: {fault.msg}", field="message") from None
    if not isinstance(said, dict):
        raise InvalidArgument("is not an object", field="message")
    for name in said:
        if name not in FIELDS:
            raise InvalidArgument(
                f"is not a field of it; there are {', '.join(FIELDS)}", field=name
            )
    if "body" not in said:
        raise InvalidArgument("is missing", field="body")
    timestamp, deliveries = said.get("timestamp_ms", 0), said.get("deliveries", 1)
    if not isinstance(timestamp, int) or not isinstance(deliveries, int):
        raise InvalidArgument("timestamp_ms and deliveries must be numbers", field="message")
    if not (is_storable(timestamp) and is_storable(deliveries)):
        raise InvalidArgument("timestamp_ms and deliveries must have 64 bits", field="message")
    for name in _TEXTS:
        if not isinstance(said.get(name, ""), str):
            raise InvalidArgument("is not text", field=name)
    return LandedMessage(
        _body(said, line),
        tuple(_headers(said.get("headers"))),
        _text(said.get("position") or "", "position"),
        None if said.get("key") is None else _text(said["key"], "key"),
        said.get("timestamp_ms"),
        deliveries=deliveries,
        **{name: said.get(name, "") for name in _TEXTS},
    )


def _headers_as_json(headers: tuple[Header, ...]) -> Any:
    """An object, where that has them in the order in which they came; else a list of pairs."""
    found: dict[str, Any] = {}
    for name, value in headers:
        found.setdefault(name, []).append(_value_as_json(value))
    if [name for name, values in found.items() for _value in values] == [n for n, _ in headers]:
        return {name: values[0] if len(values) == 1 else values for name, values in found.items()}
    return [(name, _value_as_json(value)) for name, value in headers]


def _value_as_json(value: bytes) -> str | dict[str, str]:
    text, encoding = body_text(value)
    return {BASE64: text} if encoding else text


def _headers(said: Any) -> Iterator[Header]:
    if not isinstance(said or [], dict | list):
        raise InvalidArgument("must be an object, or a list of pairs", field="headers")
    for pair in said.items() if isinstance(said, dict) else said or []:
        match pair:
            case (str() as name, list() as values) if isinstance(said, dict):
                yield from ((name, _value(name, value)) for value in values)
            case (str() as name, value):
                yield name, _value(name, value)
            case _:
                raise InvalidArgument("must be pairs of a name and a value", field="headers")


def _value(name: str, said: Any) -> bytes:
    if isinstance(said, dict) and said.keys() == {BASE64}:
        return _decoded(said[BASE64], f"header {name}")
    if isinstance(said, dict | list):
        raise InvalidArgument('is neither a text nor {"base64": a text}', field=f"header {name}")
    return str(said).encode()


def _body(said: dict[str, Any], line: bytes) -> bytes:
    body, encoding = said["body"], said.get("body_encoding") or ""
    if encoding == BASE64:
        return _decoded(body, "body")
    if encoding:
        shown = _text(encoding, "body_encoding")
        raise InvalidArgument(f"{shown!r} is not {BASE64!r}", field="body_encoding")
    if isinstance(body, str):
        return body.encode()
    # The usual parser has made a double of a whole number beyond 64 bits.
    if exceeds_64_bits(line.decode()):
        return _exact_body(line)
    try:
        return orjson.dumps(body)
    except orjson.JSONEncodeError:  # it reads what nests deeper than what it writes
        return _exact_body(line)


def _exact_body(line: bytes) -> bytes:
    try:
        exact = json.dumps(json.loads(line)["body"], ensure_ascii=False, separators=(",", ":"))
    except RecursionError:
        raise InvalidArgument(_TOO_DEEP, field="body") from None
    return exact.encode()


def _text(said: Any, field: str) -> str:
    try:
        return str(said)
    except RecursionError:
        raise InvalidArgument(_TOO_DEEP, field=field) from None


def _decoded(text: Any, field: str) -> bytes:
    try:
        if isinstance(text, str):
            return b64decode(text, validate=True)
    except ValueError:
        """Said below."""
    raise InvalidArgument("is not base64", field=field)
