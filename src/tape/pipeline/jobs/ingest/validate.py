"""Which event a message is, or why it is none. The rules are those of the server, by its own code.

Of a message in the shape `payload` the body is the payload, and headers say the rest. In the shape
`event` the body is an object with the columns of an event. Either way a header with the name of a
column counts where the body does not say. A header is found by its name in lower case, without
blanks around it and with `_` for `-`; of several with one name the last counts.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from tape.errors import InvalidArgument
from tape.model.event import NewEvent, draft_event
from tape.model.message import lower_name
from tape.pipeline.jobs.ingest.messages import HEADER
from tape.settings import Limits

COLUMNS: Final = tuple(name for name in NewEvent._fields if name not in ("run_id", "fencing_token"))
_NUMBERS: Final = ("occurred_at_ms", "schema_version")
CHECKED: Final = StructType(
    [
        *(StructField(name, LongType() if name in _NUMBERS else StringType()) for name in COLUMNS),
        StructField("origin", StringType()),
        StructField("number", LongType()),
        StructField("key", StringType()),
        StructField("raw", StringType()),
        StructField("raw_bytes", BinaryType()),
        StructField("key_bytes", BinaryType()),
        StructField("sent", ArrayType(HEADER)),
        StructField("reason", StringType()),
    ]
)
_ARROW: Final = to_arrow_schema(CHECKED, timezone="UTC")
_AS_IT_CAME: Final = ("raw", "raw_bytes", "key_bytes", "sent")


@dataclass(frozen=True, slots=True)
class IngestRules:
    """`event_type` is the type of all; `event_type_from` and `key_from` name a header or a field of
    the body. Schema versions outside of `oldest` to `newest` are not known."""

    shape: str = "payload"
    event_type: str = ""
    event_type_from: str = ""
    key_from: str = ""
    oldest: int = 1
    newest: int = 32767


def validate(messages: DataFrame, rules: IngestRules, limits: Limits) -> DataFrame:
    """Events with `reason` NULL, and what is none with the reason."""
    return messages.mapInArrow(checking(rules, limits), CHECKED)


def checking(
    rules: IngestRules, limits: Limits
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def check(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = [_checked(message, rules, limits) for message in batch.to_pylist()]
            yield pa.RecordBatch.from_pylist(rows, schema=_ARROW)

    return check


def _checked(message: dict[str, Any], rules: IngestRules, limits: Limits) -> dict[str, Any]:
    came = message | {"sent": message["headers"]}
    place = {name: came[name] for name in ("origin", "number", "key", *_AS_IT_CAME)}
    try:
        event = event_of(message, rules)
        draft_event(event, "", limits)
    except InvalidArgument as fault:
        return place | {"reason": str(fault)}
    columns = {name: getattr(event, name) for name in COLUMNS}
    return place | columns | dict.fromkeys(_AS_IT_CAME)


def event_of(message: Mapping[str, Any], rules: IngestRules) -> NewEvent:
    """Raises InvalidArgument with what is wrong; sizes and names are judged by the journal."""
    if message["fault"]:
        raise InvalidArgument(message["fault"])
    body: str = message["body"]
    if not body:
        raise InvalidArgument("is empty", field="body")
    headers = _by_column(message["headers"] or ())
    said: dict[str, Any] = {
        name: _number(_header(headers, name), name) for name in COLUMNS if name in headers
    }
    fields = _fields_of(body, rules)
    if rules.shape == "event":
        said |= _columns(fields)
    else:
        said["payload_json"] = body
    if rules.event_type_from:
        said["event_type"] = _looked_up(rules.event_type_from, headers, fields)
    elif rules.event_type:
        said.setdefault("event_type", rules.event_type)
    if rules.key_from:
        said["idempotency_key"] = _looked_up(rules.key_from, headers, fields)
    position = f"{message['origin']}/{message['number']}"
    said.setdefault("idempotency_key", position)
    said.setdefault("source", message["origin"])
    said.setdefault("occurred_at_ms", max(message["timestamp_ms"] or 0, 0))
    if "event_type" not in said:
        raise InvalidArgument("neither the message nor an option gives it", field="event_type")
    event = NewEvent(**said)
    if not rules.oldest <= event.schema_version <= rules.newest:
        raise InvalidArgument(
            f"{event.schema_version} is not in {rules.oldest}..{rules.newest}",
            field="schema_version",
        )
    return event


def _fields_of(body: str, rules: IngestRules) -> dict[str, Any]:
    """The top of the body where the rules look there."""
    if rules.shape == "payload" and not rules.event_type_from and not rules.key_from:
        return {}
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError as fault:
        raise InvalidArgument(
            f"not valid JSON: {fault.msg}", field="body", position=fault.pos
        ) from None
    if isinstance(parsed, dict):
        return parsed
    if rules.shape == "event":
        raise InvalidArgument("is not an object with the columns of an event", field="body")
    return {}


def _columns(fields: Mapping[str, Any]) -> dict[str, Any]:
    said: dict[str, Any] = {}
    for name, value in fields.items():
        if name == "payload":
            said["payload_json"] = orjson.dumps(value).decode()
        elif name not in COLUMNS:
            raise InvalidArgument(
                f"is not a column of an event; there are payload, {', '.join(COLUMNS)}", field=name
            )
        elif value is not None:
            wanted = int if name in _NUMBERS else str
            if not isinstance(value, wanted) or isinstance(value, bool):
                kind = "a number" if wanted is int else "text"
                raise InvalidArgument(f"{value!r:.40} is not {kind}", field=name)
            said[name] = value
    return said


def _by_column(headers: Iterable[Mapping[str, Any]]) -> dict[str, bytes]:
    """The last value of each name. One without a value, which Kafka knows, says nothing."""
    return {
        _column(header["name"]): header["value"]
        for header in headers
        if header["name"] is not None and header["value"] is not None
    }


def _column(header: str) -> str:
    """The name of a header as that of a column."""
    return lower_name(header.strip(" ")).replace("-", "_")


def _header(headers: Mapping[str, bytes], name: str) -> str:
    try:
        return headers[name].decode().strip(" ")
    except UnicodeDecodeError:
        raise InvalidArgument("is not UTF-8", field=f"header {name}") from None


def _number(text: str, name: str) -> str | int:
    if name not in _NUMBERS:
        return text
    if not text.isdecimal() or len(text) > 18:
        raise InvalidArgument(f"{text!r:.40} is not a number", field=name)
    return int(text)


def _looked_up(name: str, headers: Mapping[str, bytes], fields: Mapping[str, Any]) -> str:
    header = _column(name)
    found = _header(headers, header) if header in headers else fields.get(name)
    if found is None or isinstance(found, dict | list | bool) or found == "":
        raise InvalidArgument("the message has no such header and no such field", field=name)
    return str(found)
