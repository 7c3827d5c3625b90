"""An entry as a CloudEvents 1.0 event: what a consumer outside Tape sees of it.

| attribute | from the entry |
|---|---|
| `id` | `event_id`, the same each time it is sent |
| `source` | its `source` where that is a URI-reference, else `/tape` |
| `type` | its `event_type`, else `tape.<kind>.<verb>` |
| `subject`, `time` | its subject, and when it happened |
| `tapeseq` | `global_seq`, as text: it does not fit a CloudEvents integer |
| `taperunid`, `tapeschemaversion`, `traceparent` | where the entry has them |
| `partitionkey` | the key within which the order is kept |
| `tapeattempt` | from the second attempt on: this may be a repeat |

`data` is the producer's own JSON text, byte for byte. The structured form is one JSON object; in
the binary form the attributes are headers and the body is the data.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from urllib.parse import quote

import orjson

from tape.model.entry import Entry
from tape.ports.broker import Outgoing

STRUCTURED_TYPE = "application/cloudevents+json; charset=UTF-8"
DATA_TYPE = "application/json"
DEFAULT_SOURCE = "/tape"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TRACE_ID = re.compile(r"(?!0{32})[0-9a-f]{32}").fullmatch
_SPAN_ID = re.compile(r"(?!0{16})[0-9a-f]{16}").fullmatch
# What the HTTP binding lets stand for itself in a header: printable ASCII but space, " and %.
_HEADER_SAFE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')
# What a CloudEvents string must not hold: control characters and Unicode's noncharacters.
_PLANE_ENDS = "".join(chr(plane << 16 | end) for plane in range(17) for end in (0xFFFE, 0xFFFF))
_FORBIDDEN = re.compile(f"[\x00-\x1f\x7f-\x9f\ufdd0-\ufdef{_PLANE_ENDS}]")

_PLAIN = r"A-Za-z0-9\-._~!$&'()*+,;="
_CHARACTER = rf"(?:[{_PLAIN}:@]|%[0-9A-Fa-f]{{2}})"
_REST = rf"(?:{_CHARACTER}|/)*"
_HOST = (
    rf"(?:(?:[{_PLAIN}:]|%[0-9A-Fa-f]{{2}})*@)?"
    rf"(?:\[[0-9A-Fa-f:.]+\]|(?:[{_PLAIN}]|%[0-9A-Fa-f]{{2}})*)(?::[0-9]*)?"
)
_URI_REFERENCE = re.compile(
    rf"(?:[A-Za-z][A-Za-z0-9+.\-]*:(?://{_HOST}(?:/{_REST})?|(?!//){_REST})"
    rf"|//{_HOST}(?:/{_REST})?"
    rf"|(?!//)(?:[{_PLAIN}@]|%[0-9A-Fa-f]{{2}})*(?:/{_REST})?)"
    rf"(?:\?(?:{_CHARACTER}|[/?])*)?(?:\#(?:{_CHARACTER}|[/?])*)?"
).fullmatch


class CloudEvent(NamedTuple):
    """The attributes by name, `datacontenttype` among them, and the data as JSON text."""

    attributes: dict[str, str | int]
    data: str


def cloud_event(message: Outgoing) -> CloudEvent:
    entry = message.entry
    attributes: dict[str, str | int] = {
        "specversion": "1.0",
        "id": _string(entry.event_id),
        "source": entry.source if _is_source(entry.source) else DEFAULT_SOURCE,
        "type": _string(entry.event_type) or _type_of(entry),
        "subject": entry.subject,
        "time": _time_of(entry),
        "datacontenttype": DATA_TYPE,
        "tapeseq": str(entry.global_seq),
        "tapeschemaversion": entry.schema_version,
    }
    if entry.run_id:
        attributes["taperunid"] = _string(entry.run_id)
    if message.ordering_key:
        attributes["partitionkey"] = _string(message.ordering_key)
    if _TRACE_ID(entry.trace_id) and _SPAN_ID(entry.span_id):
        attributes["traceparent"] = f"00-{entry.trace_id}-{entry.span_id}-01"
    if message.attempt > 1:
        attributes["tapeattempt"] = message.attempt
    return CloudEvent(attributes, entry.payload_json)


def structured(event: CloudEvent) -> bytes:
    """The event as one JSON object, with the content type STRUCTURED_TYPE."""
    return orjson.dumps({**event.attributes, "data": orjson.Fragment(event.data)})


def text_headers(event: CloudEvent) -> dict[str, str]:
    """The binary form's headers for HTTP and NATS: `ce-*`, percent-encoded."""
    return {
        name if name == "content-type" else f"ce-{name}": quote(text, safe=_HEADER_SAFE)
        for name, text in _header_texts(event)
    }


def kafka_headers(event: CloudEvent) -> list[tuple[str, bytes]]:
    """The binary form's headers for Kafka: `ce_*`, plain UTF-8."""
    return [
        (name if name == "content-type" else f"ce_{name}", text.encode())
        for name, text in _header_texts(event)
    ]


def pubsub_attributes(event: CloudEvent) -> dict[str, str]:
    """The binary form's attributes for Pub/Sub: `ce-*`, as they are."""
    return {
        name if name == "content-type" else f"ce-{name}": text
        for name, text in _header_texts(event)
    }


def _header_texts(event: CloudEvent) -> list[tuple[str, str]]:
    return [
        ("content-type" if name == "datacontenttype" else name, str(value))
        for name, value in event.attributes.items()
    ]


def _is_source(text: str) -> bool:
    return bool(text) and _URI_REFERENCE(text) is not None


def _type_of(entry: Entry) -> str:
    return f"tape.{entry.kind}.{entry.subject.split('/')[3]}"


def _time_of(entry: Entry) -> str:
    try:
        moment = _EPOCH + timedelta(milliseconds=entry.occurred_at_ms)
    except OverflowError:  # beyond the year 9999 there is no RFC 3339 time
        moment = _EPOCH + timedelta(milliseconds=entry.ts_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _string(text: str) -> str:
    return _FORBIDDEN.sub(lambda found: quote(found[0], safe=""), text)
