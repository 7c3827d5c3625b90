"""Which rows can be written: everything else is refused by name, before anything is staged."""

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    DataType,
    IntegerType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
)

from tape.errors import InvalidArgument
from tape.pipeline.source.forms import FORMS, decode, encode
from tape.pipeline.source.write import batch_writer, stream_writer
from tape.settings import Limits
from tape.stores.blocking import Stores

EVENT = "event_type string, payload_json string"


TYPES: dict[str, DataType] = {
    "string": StringType(),
    "int": IntegerType(),
    "timestamp": TimestampType(),
    "variant": VariantType(),
}


def schema(text: str) -> StructType:
    pairs = (column.split() for column in text.split(", "))
    return StructType([StructField(name, TYPES[kind]) for name, kind in pairs])


@pytest.mark.parametrize(
    ("columns", "options", "complaint"),
    [
        ("payload_json string", {}, "event_type: is missing; the columns are event_type, payload_"),
        (
            f"{EVENT}, colour string",
            {},
            "colour: is not a column that can be written; there are ev",
        ),
        (f"{EVENT}, occurred_at_ms timestamp", {}, "occurred_at_ms: is timestamp, must be an int"),
        ("event_type int", {}, "event_type: is int, must be text"),
        (
            "event_type string, payload variant",
            {},
            "payload: cannot be written directly: select to_j",
        ),
        (f"{EVENT}, run_id string", {}, "run_id: cannot be written in bulk: only the holder of a"),
        (EVENT, {"into": "rows"}, "into: 'rows' is not one of events, values"),
        (
            EVENT,
            {"into": "values"},
            "event_type: is not a column that can be written; there are name",
        ),
        (EVENT, {"write_id": "x" * 600}, "write_id: 600 bytes, the limit is 512"),
        (EVENT, {"epoch": "1"}, "epoch: must be a number from 0, of a write_id"),
        (EVENT, {"epoch": "-1", "write_id": "w"}, "epoch: must be a number from 0, of a write_id"),
        (EVENT, {"url": ""}, "url: is required"),
    ],
)
def test_what_cannot_be_written_is_refused_by_name(
    columns: str, options: dict[str, str], complaint: str, sqlite_url: str
) -> None:
    with pytest.raises(InvalidArgument) as refusal:
        batch_writer(Stores(), {"url": sqlite_url, **options}, schema(columns), overwrite=False)
    assert str(refusal.value).startswith(complaint)


def test_the_journal_is_not_overwritten(sqlite_url: str) -> None:
    for make in (batch_writer, stream_writer):
        with pytest.raises(InvalidArgument, match=r'mode: the journal .*: mode\("append"\)'):
            make(Stores(), {"url": sqlite_url}, schema(EVENT), overwrite=True)
    with pytest.raises(InvalidArgument, match="epoch: a stream counts its epochs itself"):
        stream_writer(Stores(), {"url": sqlite_url, "epoch": "1"}, schema(EVENT), overwrite=False)


@pytest.mark.parametrize(
    ("into", "row", "complaint"),
    [
        ("events", {"payload_json": "{"}, "payload_json at position 1: not valid JSON"),
        ("events", {"event_type": None}, "event_type: must not be empty (a row)"),
        ("events", {"payload_json": '"' + "x" * 2**20 + '"'}, "payload_json: 1048578 bytes, the"),
        ("events", {"schema_version": 40000}, "schema_version: 40000 is not in 1..32767"),
        ("events", {"occurred_at_ms": -1}, "occurred_at_ms: must be in 0..2^63-1"),
        ("events", {"trace_id": "xyz"}, "trace_id: must be 32 lower-case hexadecimal digits"),
        ("values", {"value_json": "nul"}, "value_json at position 3: not valid JSON"),
        ("values", {"value_json": None}, "value_json: must be JSON"),
        ("values", {"key": ""}, "key: must not be empty (a row with namespace='n')"),
    ],
)
def test_a_row_that_the_journal_would_refuse_is_not_staged(
    into: str, row: dict[str, Any], complaint: str
) -> None:
    good = {"events": {"event_type": "e"}, "values": {"namespace": "n", "key": "k"}}[into]
    if into == "values":
        good["value_json"] = "1"
    batch = pa.RecordBatch.from_pylist([dict.fromkeys(row) | good, good | row])
    with pytest.raises(InvalidArgument) as refusal:
        list(FORMS[into].checked(batch, Limits()))
    assert str(refusal.value).startswith(complaint)


def test_rows_are_staged_as_what_the_journal_will_hold() -> None:
    events = FORMS["events"]
    batch = pa.RecordBatch.from_pylist(
        [{"event_type": "e", "entity_id": "ä", "idempotency_key": "k"}, {"event_type": "f"}]
    )
    rows = decode(events, encode(events, list(events.checked(batch, Limits()))))
    named = [dict(zip(events.staged.names, row, strict=True)) for row in rows]
    assert [row["subject"] for row in named] == [
        "/tape/event/recorded/e/_/%C3%A4",
        "/tape/event/recorded/f/_/_",
    ]
    assert [row["idempotency_key"] for row in named] == ["k", None]
    assert [(row["payload_json"], row["schema_version"]) for row in named] == [("null", 1)] * 2
