"""Rows that are not those of `publish_within`: of programs in other languages, and of old ones."""

import contextlib
import sqlite3
from typing import Any

import pytest

from tape.bus import Bus
from tape.model.entry import Entry
from tape.model.event import NewEvent
from tape.model.outbox import FailingRow
from tape.programs.connect import open_bus
from tests.integration.bus.relays import entries, until
from tests.integration.outbox.conftest import Shop


def insert(shop: Shop, *rows: str) -> None:
    """Values of event_id, subject and payload_json, as SQL."""
    with contextlib.closing(sqlite3.connect(shop.url.removeprefix("sqlite:"))) as file, file:
        for row in rows:
            file.execute(f"INSERT INTO bus_outbox (event_id, subject, payload_json) VALUES ({row})")


@pytest.mark.parametrize(
    ("columns", "values"),
    [
        ("payload_json", "x'7b7d'"),
        ("subject, payload_json", "x'61', '{}'"),
        ("schema_version, payload_json", "'two', '{}'"),
        ("occurred_at_ms, payload_json", "1.5, '{}'"),
        ("idempotency_key, payload_json", "x'00', '{}'"),
    ],
)
def test_a_value_of_another_type_is_refused(sqlite_shop: Shop, columns: str, values: str) -> None:
    subject = "" if "subject" in columns else "subject, "
    said = "" if "subject" in columns else "'a', "
    path = sqlite_shop.url.removeprefix("sqlite:")
    with (
        contextlib.closing(sqlite3.connect(path)) as file,
        pytest.raises(sqlite3.IntegrityError, match="are integers, all else is text"),
    ):
        file.execute(
            f"INSERT INTO bus_outbox (event_id, {subject}{columns}) "
            f"VALUES ('01JZ0000000000000000000001', {said}{values})"
        )
    assert sqlite_shop.events() == []


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ("'01JZ0000000000000000000001', 'bad', CAST(x'22ff22' AS TEXT)", "payload_json"),
        ("'01JZ0000000000000000000001', CAST(x'62ff' AS TEXT), '1'", "subject"),
        ("CAST(x'62ff' AS TEXT), 'bad', '1'", "event_id"),
    ],
)
async def test_what_is_not_utf8_holds_up_its_own_subject_alone(
    sqlite_shop: Shop, row: str, field: str
) -> None:
    insert(sqlite_shop, row, "'01JZ0000000000000000000002', 'ok', '2'")
    bus = await open_bus(sqlite_shop.url)
    try:
        bus.start_relay(None)
        (told,) = await until(lambda: entries(bus, "/tape/event/**"))
        assert (told.event_type, told.payload) == ("ok", 2)
        (failing,) = await until(lambda: failing_rows(bus))
        assert failing.last_error.startswith(field)
    finally:
        await bus.close()


async def failing_rows(bus: Bus) -> list[FailingRow]:
    return (await bus.outbox.outbox_status()).failing


async def test_documented_columns_make_an_event(sqlite_shop: Shop) -> None:
    values: dict[str, Any] = {
        "event_id": "01JZ0000000000000000000001", "subject": "orders.placed",
        "payload_json": '{"n":1}', "schema_version": 2, "entity_type": "order", "entity_id": "7",
        "idempotency_key": "k", "caused_by": "c", "source": "/go", "occurred_at_ms": 5,
        "trace_id": "a" * 32, "span_id": "b" * 16, "parent_span_id": "c" * 16,
    }  # fmt: skip
    path = sqlite_shop.url.removeprefix("sqlite:")
    with contextlib.closing(sqlite3.connect(path)) as file, file:
        marks = ", ".join("?" * len(values))
        file.execute(
            f"INSERT INTO bus_outbox ({', '.join(values)}) VALUES ({marks})", [*values.values()]
        )
    bus = await open_bus(sqlite_shop.url)
    try:
        bus.start_relay(None)
        (entry,) = await until(lambda: entries(bus, "/tape/event/**"))
    finally:
        await bus.close()
    said = {**values, "event_type": values["subject"]}
    del said["subject"]
    said["idempotency_key"] = "bus.outbox/orders.placed/k"
    assert {name: getattr(entry, name) for name in said} == said


async def test_a_key_that_the_version_before_put_on_the_journal_is_known(any_shop: Shop) -> None:
    """Its row is gone, and the journal has the key as it is. Keys recorded since are apart."""
    bus = await open_bus(any_shop.url)
    try:
        (first,) = await bus.record_events([NewEvent("orders.paid", idempotency_key="before")])
        await until(lambda: later_than(bus, first.global_seq))
        any_shop.write(
            "UPDATE tape_schema_steps SET applied_at_ms = (SELECT max(ts_ms) FROM tape_journal)"
            if any_shop.url.startswith("sqlite:")
            else "UPDATE tape_schema_steps SET applied_at = (SELECT "
            "to_timestamp(max(ts_ms) / 1000.0) FROM tape_journal)"
        )
        await bus.record_events([NewEvent("orders.paid", idempotency_key="since")])
        for subject in ("orders.paid", "orders.sent"):
            for key in ("before", "since"):
                any_shop.publish(subject, key)
        bus.start_relay(None)
        promoted = await until(lambda: outbox_entries(bus, 3))
        assert [(e.event_type, e.idempotency_key) for e in promoted] == [
            ("orders.paid", "bus.outbox/orders.paid/since"),
            ("orders.sent", "bus.outbox/orders.sent/before"),
            ("orders.sent", "bus.outbox/orders.sent/since"),
        ]
        (repeat,) = (await bus.outbox.outbox_status()).repeats
        assert (repeat.idempotency_key, repeat.repeat_of) == ("before", first.event_id)
    finally:
        await bus.close()


async def later_than(bus: Bus, global_seq: int) -> bool:
    """Whether an entry is on the journal with a later millisecond than that of the first."""
    await bus.record_events([NewEvent("clock.moved")])
    first, *_, last = await entries(bus, "/tape/event/**")
    return first.global_seq == global_seq and last.ts_ms > first.ts_ms


async def outbox_entries(bus: Bus, count: int) -> list[Entry]:
    found = await entries(bus, "/tape/event/**")
    promoted = [e for e in found if e.idempotency_key.startswith("bus.outbox/")]
    return promoted if len(promoted) == count else []


async def test_a_repeat_is_not_listed_as_failing(any_shop: Shop) -> None:
    """The step that made repeats of old rows left what they had failed with."""
    any_shop.write(
        "INSERT INTO bus@outbox "
        "(event_id, subject, payload_json, global_seq, repeat_of, last_error) "
        "VALUES ('01JZ0000000000000000000001', 'a', '1', -1, '01JZ0000000000000000000000', 'no')"
    )
    bus = await open_bus(any_shop.url)
    try:
        status = await bus.outbox.outbox_status()
        assert (status.failing, status.repeated) == ([], 1)
    finally:
        await bus.close()
