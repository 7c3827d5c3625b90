"""Messages as a subscription would take them: the run of each, decided by the listener's own code.

A bulk read of a subscription's source names messages as its listener does, by places that hold the
incarnation, and leaves headers, keys and the input of runs to `plan_dispatch`, `message_key` and
`run_input`. Nothing here decides by itself.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import orjson
import pyarrow as pa
from pyspark.sql import DataFrame, Row
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from tape.errors import InvalidArgument, MessageRefused
from tape.model.accept_messages import PlannedMessage
from tape.model.directive import directives_applied, plan_dispatch
from tape.model.entry import Trace
from tape.model.landed import read_landed
from tape.model.message import (
    SourceMessage,
    file_origin,
    invocation_of,
    kafka_origin,
    nats_origin,
    run_input,
    shown_kafka_headers,
)
from tape.model.run import RunName
from tape.model.run_write import clipped
from tape.model.subscription import MESSAGE_USER, SubscriptionDeadLetter
from tape.model.subscription_spec import SourceKind, SubscriptionSpec
from tape.pipeline.jobs.ingest.messages import HEADER, header_pairs
from tape.settings import Limits
from tape.subscriptions.keys import check_key, dedup_key
from tape.subscriptions.letters import letter_of
from tape.subscriptions.planning import Planner

NATS_MESSAGE_ID: Final = "Nats-Msg-Id"
PLANNED: Final = StructType(
    [
        StructField("place", StringType(), nullable=False),
        StructField("message_id", StringType(), nullable=False),
        StructField("reason", StringType()),
        StructField("detail", StringType()),
        StructField("app", StringType()),
        StructField("pool", StringType()),
        StructField("run_id", StringType()),
        StructField("input", StringType()),
        StructField("dedup_key", StringType()),
        StructField("trace_id", StringType()),
        StructField("parent_span_id", StringType()),
        StructField("is_audited", BooleanType()),
        StructField("directives", StringType()),
        StructField("origin", StringType()),
        StructField("number", LongType()),
        StructField("key", StringType()),
        StructField("body", BinaryType()),
        StructField("sent", ArrayType(HEADER)),
        StructField("letter", StringType()),
    ]
)
"""Either `reason` is NULL and there is a run, or it is a word of MessageRefused and `detail` says
more; then the message is there as it came, and as the dead letter that it is. `directives` is the
payload of the entry about them. Of a message that the source has passed there is its place alone.
"""

_ARROW: Final = to_arrow_schema(PLANNED, timezone="UTC")


class BulkSource(NamedTuple):
    """What is read in bulk: `incarnation` is when a stream was made, in milliseconds, or the id of
    a topic. Files have none: a folder's listener alone tells them apart. `passed` are origins of
    places, each with the number up to which its source delivers nothing again."""

    kind: SourceKind
    incarnation: str = ""
    passed: tuple[tuple[str, int], ...] = ()


def planned(
    messages: DataFrame, source: BulkSource, spec: SubscriptionSpec, limits: Limits
) -> DataFrame:
    """The runs of messages, and what becomes none. Refuses a source that cannot be read in bulk."""
    if source.kind not in (SourceKind.NATS, SourceKind.KAFKA, SourceKind.FILE):
        raise InvalidArgument(f"{source.kind} cannot be read in bulk", field="source")
    if spec.dedup is not None:
        check_key(spec.dedup.key, field="spec.dedup.key")
    return messages.mapInArrow(planning(source, spec, limits), PLANNED)


def planning(
    source: BulkSource, spec: SubscriptionSpec, limits: Limits
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    passed = dict(source.passed)

    def plan(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            messages = [(row, source_message(row, source)) for row in batch.to_pylist()]
            rows = [
                _passed_over(row, message)
                if row["number"] <= passed.get(message.origin, -1)
                else _planned(row, message, spec, limits)
                for row, message in messages
            ]
            yield pa.RecordBatch.from_pylist(rows, schema=_ARROW)

    return plan


def source_message(row: Mapping[str, Any], source: BulkSource) -> SourceMessage:
    """A row as its subscription's source delivers it."""
    kind, name, position = source.kind.value, row["origin"].partition("/")[2], str(row["number"])
    timestamp_ms = max(row["timestamp_ms"] or 0, 0)
    if source.kind is SourceKind.FILE:
        line, origin = _bytes(row["raw"], row["raw_bytes"]), file_origin(name)
        try:
            message = read_landed(line).found_at(kind, origin, position)
        except InvalidArgument:
            return SourceMessage(kind, origin, position, line, timestamp_ms=timestamp_ms)
        return message._replace(timestamp_ms=message.timestamp_ms or timestamp_ms)
    headers = header_pairs(row)
    body = _bytes(row["raw"] if row["body"] is None else row["body"], row["raw_bytes"])
    key = _bytes(row["key"], row["key_bytes"]).decode(errors="replace")
    if source.kind is SourceKind.KAFKA:
        headers = shown_kafka_headers(headers)
        topic, _, partition = name.rpartition("/")
        origin = kafka_origin(topic, source.incarnation, int(partition))
        return SourceMessage(kind, origin, position, body, headers, "", key, timestamp_ms)
    origin = nats_origin(name, int(source.incarnation))
    sent_id = dict(headers).get(NATS_MESSAGE_ID, b"").decode(errors="replace")
    return SourceMessage(kind, origin, position, body, headers, sent_id, key, timestamp_ms, key)


def _passed_over(row: Mapping[str, Any], message: SourceMessage) -> dict[str, Any]:
    return {"place": message.place, "message_id": message.shown_id, "number": row["number"]}


def _planned(
    row: Mapping[str, Any], message: SourceMessage, spec: SubscriptionSpec, limits: Limits
) -> dict[str, Any]:
    plan = plan_dispatch(spec.dispatch, spec.headers, message.headers)
    try:
        given = run_input(message, spec, plan, limits)
    except MessageRefused as fault:
        return {
            "place": message.place,
            "message_id": message.shown_id,
            "reason": fault.because,
            "detail": str(fault),
            **{name: row[name] for name in ("origin", "number", "key")},
            "body": message.body,
            "sent": row["headers"],
            "letter": orjson.dumps([*letter_of(spec.name, message, fault)]).decode(),
        }
    run = RunName(plan.app, MESSAGE_USER, spec.name, invocation_of(message.place, limits))
    directives = directives_applied(message, spec.dispatch, plan, run.run_id)
    return {
        "place": message.place,
        "message_id": message.shown_id,
        "number": row["number"],
        "app": plan.app,
        "pool": plan.pool,
        "run_id": run.run_id,
        "input": given,
        "dedup_key": dedup_key(message, spec, plan),
        "trace_id": plan.trace.trace_id,
        "parent_span_id": plan.trace.parent_span_id,
        "is_audited": plan.is_audited,
        "directives": orjson.dumps(directives).decode(),
    }


def planned_message(row: Row, planner: Planner, limits: Limits) -> PlannedMessage | None:
    """A row of what was planned, ready to be accepted; None if the source has passed it."""
    place, message_id = row["place"], clipped(row["message_id"], limits)
    if row["letter"] is not None:
        letter = SubscriptionDeadLetter(*orjson.loads(row["letter"]))
        return PlannedMessage(place, message_id, row["number"], letter=letter)
    if row["app"] is None:
        return None
    trace = Trace(row["trace_id"], "", row["parent_span_id"])
    return PlannedMessage(
        place,
        message_id,
        row["number"],
        row["dedup_key"],
        planner.run_of(place, row["app"], row["pool"], trace, row["input"]),
        orjson.loads(row["directives"]) if row["is_audited"] else None,
    )


def _bytes(text: str | None, exact: bytes | None) -> bytes:
    """As it came: its bytes where it is not UTF-8."""
    return (text or "").encode() if exact is None else bytes(exact)
