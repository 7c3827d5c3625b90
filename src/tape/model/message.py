"""A message of a source: where it was, its headers as they came, and the input of its run.

Its *place* names it for ever: `nats/<stream>@<created_ms>/<sequence>`,
`kafka/<topic>@<topic id>/<partition>/<offset>`, `pubsub/<subscription>/<message id>`,
`file/<path>@<file id>/<line>`, `push/<name>/<delivery id>`. A message that is delivered again has
the same place, and so finds the run that it became the first time. Parts of a place are
percent-encoded, and of a part that is too long there is a digest, so that a place is plain ASCII of
at most `LONGEST` characters whatever its sender chose.
"""

import hashlib
import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

import orjson

from tape.errors import InvalidArgument, MessageRefused, TooLarge
from tape.model.json_text import check_json, exceeds_64_bits
from tape.model.subscription_spec import PayloadFrom, SubscriptionSpec
from tape.settings import Limits

if TYPE_CHECKING:
    from tape.model.directive import DispatchPlan  # it reads headers, by this module

Header = tuple[str, bytes]
"""A name as it was spelled, and a value as it came. A name may stand several times."""
HeaderText = str | list[str]
"""One value is a text, several of one name are a list in the order in which they came."""

BASE64: Final = "base64"
LONGEST: Final = 480
LONGEST_KEY: Final = 400
_CUT_WORDS = re.compile(
    r"the body has (\d+) bytes, which is too many to pass on: .* is ([0-9a-f]{64})"
).fullmatch
_LONGEST_PART: Final = 150
_LONGEST_PATH: Final = 300
_DIGEST: Final = "sha256="
_NOT_UTF8: Final = "\ufffd"
"""Before a digest. In a part `=` is encoded, so no part that is whole looks like one."""
_LOWER: Final = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


class SourceMessage(NamedTuple):
    """A message as it came.

    `origin` and `position` make its place; the functions below make them. `message_id` is the id
    that its sender gave it, empty if there is none. `key` is what the source orders by, `subject`
    what a NATS message was sent to. `deliveries` counts from 1. Its texts are Unicode, with U+FFFD
    for bytes that were not UTF-8; they may hold NUL, which no database takes as text. Where the
    body is cut off, `whole_sha256` and `whole_bytes` are of all of it.
    """

    source: str
    origin: str
    position: str
    body: bytes
    headers: tuple[Header, ...] = ()
    message_id: str = ""
    key: str = ""
    timestamp_ms: int = 0
    subject: str = ""
    deliveries: int = 1
    whole_bytes: int = 0
    whole_sha256: str = ""

    @property
    def place(self) -> str:
        return f"{self.origin}/{self.position}"

    @property
    def shown_id(self) -> str:
        """Its own id, else its place."""
        return self.message_id or self.place


def nats_origin(stream: str, created_ms: int) -> str:
    """`created_ms` tells a stream from another that had its name before."""
    return f"nats/{_part(stream)}@{created_ms}"


def shown_kafka_headers(headers: tuple[Header, ...]) -> tuple[Header, ...]:
    """Those of a message of Kafka: none if a name is not UTF-8. A listener's client shows none
    then, and Spark's puts U+FFFD into the name, which cannot be told from one that has it."""
    return () if any(_NOT_UTF8 in name for name, _value in headers) else headers


def kafka_origin(topic: str, topic_id: str, partition: int) -> str:
    """Old brokers give topics no id: then it is empty."""
    return f"kafka/{_part(topic)}@{_part(topic_id)}/{partition}"


def pubsub_origin(subscription: str) -> str:
    return f"pubsub/{_part(subscription, _LONGEST_PATH, kept='/')}"


def file_origin(path: str, file_id: str = "") -> str:
    """`file_id` tells a file from another that had its path before; a reader that cannot tell them
    apart has none."""
    named = f"file/{_part(path.removeprefix('/'), _LONGEST_PATH, kept='/')}"
    return f"{named}@{_part(file_id)}" if file_id else named


def push_origin(name: str) -> str:
    return f"push/{_part(name)}"


def position_of(sent_id: str) -> str:
    """The position of a message that its source knows by an id, as Pub/Sub and webhooks do."""
    return _part(sent_id)


def _part(text: str, most: int = _LONGEST_PART, *, kept: str = "") -> str:
    came = text.encode(errors="surrogateescape")
    part = quote(came, safe=kept)
    return part if len(part) <= most else _DIGEST + hashlib.sha256(came).hexdigest()


def invocation_of(place: str, limits: Limits) -> str:
    """The name of the run that a place becomes: the place, or its digest if `name_bytes` is set to
    less than a place may have."""
    if len(place) <= limits.name_bytes:
        return place
    return _DIGEST + hashlib.sha256(place.encode()).hexdigest()


def bounded_key(text: str) -> str:
    """A key that a sender chose, as a database can hold and index it: one that is too long, or has
    NUL in it, is its digest."""
    came = text.encode(errors="surrogatepass")
    if len(came) <= LONGEST_KEY and "\0" not in text:
        return text
    return _DIGEST + hashlib.sha256(came).hexdigest()


def is_storable(number: int) -> bool:
    """Whether databases and the wire can hold it: whoever reads a message looks after that, since
    one that can be written nowhere would come again for ever."""
    return -(2**63) <= number < 2**63


def lower_name(name: str) -> str:
    """The name that spellings of a header have in common. Only ASCII has two cases here: Unicode's
    rules make of some other letters an ASCII one, and so another header of the list."""
    return name.lower() if name.isascii() else name.translate(_LOWER)


def normalised(headers: Sequence[Header]) -> dict[str, HeaderText]:
    """Headers by name in lower case; spellings of one name are merged in order of arrival. Bytes
    that are not UTF-8 become U+FFFD."""
    return _merged((lower_name(name), value) for name, value in headers)


def as_they_came(headers: Sequence[Header]) -> dict[str, HeaderText]:
    """Headers by name as spelled."""
    return _merged(headers)


def last_value(headers: Sequence[Header], name: str) -> str | None:
    """The last value of a header, whichever way it was spelled: what a directive goes by."""
    for spelled, value in reversed(headers):
        if lower_name(spelled) == name:
            return value.decode(errors="replace")
    return None


def _merged(headers: Iterable[Header]) -> dict[str, HeaderText]:
    found: dict[str, HeaderText] = {}
    for name, value in headers:
        text = value.decode(errors="replace")
        known = found.get(name)
        if known is None:
            found[name] = text
        elif isinstance(known, list):
            known.append(text)
        else:
            found[name] = [known, text]
    return found


def run_input(
    message: SourceMessage, spec: SubscriptionSpec, plan: "DispatchPlan", limits: Limits
) -> str:
    """The input of the run that a message becomes; MessageRefused if it cannot become one."""
    if message.whole_sha256:
        raise MessageRefused(cut_words(message), because="too_large")
    if len(message.body) > limits.message_bytes:
        raise MessageRefused(
            f"the body has {len(message.body)} bytes, the limit is {limits.message_bytes} "
            "(tape.limits.message_bytes)",
            because="too_large",
        )
    payload, encoding = payload_of(message, spec.dispatch.payload_from, limits)
    block = message_block(message, spec, plan, encoding)
    encoded = orjson.dumps({"payload": payload, "message": block})
    if len(encoded) > limits.message_input_bytes:
        raise MessageRefused(
            f"with its headers the message makes an input of {len(encoded)} bytes, the limit is "
            f"{limits.message_input_bytes} (twice tape.limits.message_bytes)",
            because="too_large",
        )
    return encoded.decode()


def cut(message: SourceMessage, most: int) -> SourceMessage:
    """With the beginning of its body alone, and without headers that are longer than that."""
    body = message.body
    if not message.whole_sha256:
        digest = hashlib.sha256(body).hexdigest()
        message = message._replace(whole_bytes=len(body), whole_sha256=digest)
    length = sum(len(name) + len(value) for name, value in message.headers)
    return message._replace(
        body=body[:most],
        headers=message.headers if length <= most else (),
        message_id=bounded_key(message.message_id),
        key=bounded_key(message.key),
        subject=message.subject[:LONGEST_KEY],
    )


def cut_words(message: SourceMessage) -> str:
    """What the dead letter of a message says that was cut; `read_cut_words` reads it again."""
    return (
        f"the body has {message.whole_bytes} bytes, which is too many to pass on: only its "
        f"beginning is kept here; the SHA-256 of all of it is {message.whole_sha256}"
    )


def read_cut_words(words: str) -> tuple[int, str]:
    """Size and SHA-256 of the whole body; 0 and nothing if the words are others."""
    found = _CUT_WORDS(words)
    return (int(found[1]), found[2]) if found else (0, "")


def input_limits(limits: Limits) -> Limits:
    """Those of a run that a message begins: its input has the body in it, and more."""
    return replace(
        limits, payload_bytes=limits.message_input_bytes, json_depth=limits.json_depth + 2
    )


def message_block(
    message: SourceMessage, spec: SubscriptionSpec, plan: "DispatchPlan", body_encoding: str
) -> dict[str, Any]:
    """What a run is told of its message besides the payload."""
    rules = spec.headers
    came = as_they_came(message.headers)
    return {
        "id": message.shown_id,
        "place": message.place,
        "source": message.source,
        "subscription": spec.name,
        "subject": message.subject,
        "headers": came if rules and not rules.normalize else normalised(message.headers),
        "attributes": came,
        "key": message.key,
        "timestamp_ms": message.timestamp_ms,
        "content_type": plan.content_type,
        "schema_hint": plan.schema_hint,
        "body_encoding": body_encoding,
        "trace": {
            "traceparent": plan.traceparent,
            "tracestate": plan.tracestate,
            "baggage": plan.baggage,
        }
        if rules and rules.propagates_trace
        else None,
    }


def body_text(body: bytes) -> tuple[str, str]:
    """A body as text, and how it is encoded: base64 if it is not UTF-8, else not at all."""
    try:
        return body.decode(), ""
    except UnicodeDecodeError:
        return b64encode(body).decode(), BASE64


def body_json(body: bytes, limits: Limits) -> str:
    """A body that is one JSON value, to the letter; MessageRefused if it is none, or if reading it
    would not be exact."""
    if not body:
        raise MessageRefused("the body is empty, and so not JSON", because="not_json")
    try:
        text = body.decode()
    except UnicodeDecodeError as fault:
        raise MessageRefused(
            f"the body is not UTF-8 at byte {fault.start}; payload_from: message.body takes it",
            because="not_json",
        ) from None
    try:
        check_json(text, _of_a_body(limits), field="body")
    except InvalidArgument as fault:
        raise MessageRefused(str(fault), because=_because(fault)) from None
    if exceeds_64_bits(text):
        raise MessageRefused(
            "the body has a whole number beyond 64 bits, which would be read as another one: send "
            "it as a text, or take the body as it is by payload_from: message.body",
            because="number_too_large",
        )
    return text


def payload_of(
    message: SourceMessage, payload_from: PayloadFrom, limits: Limits
) -> tuple[object, str]:
    """What of a message its run is given, and how a body is encoded there; MessageRefused if it is
    not what it should be."""
    match payload_from:
        case PayloadFrom.JSON:
            return orjson.Fragment(body_json(message.body, limits)), ""
        case PayloadFrom.BODY:
            return body_text(message.body)
        case PayloadFrom.ATTRIBUTES:
            return as_they_came(message.headers), ""


@lru_cache(8)
def _of_a_body(limits: Limits) -> Limits:
    return replace(limits, payload_bytes=limits.message_bytes)


def _because(fault: InvalidArgument) -> str:
    """The parser reads no number beyond a double's range, and nothing beyond a depth of its own."""
    words = str(fault)
    if isinstance(fault, TooLarge) or "depth limit" in words:
        return "too_deep"
    return "number_too_large" if "number is infinity" in words else "not_json"
