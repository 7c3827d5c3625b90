"""Outbox rows from before a key belonged to its subject: taken over, and nothing is lost."""

import contextlib
import sqlite3
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tape.model.promote import PromoteOutbox
from tape.ports.outbox import Lead
from tape.settings import Limits, Settings
from tape.stores.by_url import open_store
from tape.stores.migrations import load_migrations
from tests.conformance.playing import play, read_all

Execute = Callable[[str], list[Any]]

JOURNAL = """
INSERT INTO tape_journal (
  global_seq, kind, subject, payload_json, ts_ms, event_id, event_type, occurred_at_ms,
  idempotency_key)
VALUES
  (1, 'event', '/tape/event/recorded/a/_/_', '1', 5, '01JZ00000000000000000000E1', 'a', 5, 'k'),
  (2, 'event', '/tape/event/recorded/a/_/_', '5', 5, '01JZ00000000000000000000E2', 'a', 5, NULL),
  (3, 'event', '/tape/event/recorded/a/_/_', '6', 5, '01JZ00000000000000000000E2', 'a', 5, NULL),
  (4, 'event', '/tape/event/recorded/r/_/_', '0', 5, '01JZ00000000000000000000E4', 'r', 5, 'kr'),
  (5, 'outbox', '/tape/outbox/skipped/a/8', '{}', 5, '01JZ00000000000000000000E5', '', 5, NULL)
"""
# Row, id, subject, payload, key, global_seq, published; as the code before it left them.
ROWS = [
    (1, "01JZ00000000000000000000E1", "a", "1", "k", 1, True),
    (2, "01JZ00000000000000000000E1", "a", "2", "k", 1, False),  # the key again
    (3, "01JZ00000000000000000000E1", "b", "3", "k", 1, False),  # on another subject
    (4, "01JZ00000000000000000000E1", "c", "4", "k", 1, True),  # likewise, and marked
    (5, "01JZ00000000000000000000E2", "a", "5", None, 2, False),
    (6, "01JZ00000000000000000000E2", "a", "6", None, 3, False),  # the id again
    (7, "01JZ00000000000000000000E4", "d", "7", "kr", 4, False),  # a key of a recorded event
    (8, "no-ulid", "a", "8", None, 5, True),  # skipped
    (9, "01JZ00000000000000000000E9", "a", "9", None, 0, False),
    (10, "01JZ0000000000000000000E10", "a", "10", "k", 6, True),  # after the first was pruned
]


@pytest.fixture
def execute(store_url: str) -> Execute:
    def run(sql: str) -> list[Any]:
        if store_url.startswith("sqlite:"):
            path = store_url.removeprefix("sqlite:")
            with contextlib.closing(sqlite3.connect(path)) as db, db:
                return db.execute(sql.replace("bus.", "bus_")).fetchall()
        with psycopg.connect(store_url, autocommit=True) as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []

    return run


def put_rows(execute: Execute) -> None:
    for row_id, event_id, subject, payload, key, seq, published in ROWS:
        error = "skipped: a slip; was: no JSON" if row_id == 8 else ""
        statement = (
            "INSERT INTO bus.outbox (id, event_id, subject, payload_json, idempotency_key, "
            "global_seq, published_to_nats, last_error) OVERRIDING SYSTEM VALUE "
            f"VALUES ({row_id}, '{event_id}', '{subject}', '{payload}', "
            f"nullif('{key or ''}', ''), {seq}, {published}, '{error}')"
        )
        execute(statement)


async def test_rows_of_before_are_settled(
    store_url: str, execute: Execute, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = "tape.stores." + store_url.partition(":")[0]
    before = load_migrations(package)[:9]
    with monkeypatch.context() as patch:
        patch.setattr(f"{package}.migrate.load_migrations", lambda _package: before)
        await (await open_store(store_url, Settings())).close()
    execute(JOURNAL)
    if store_url.startswith("postgres"):
        execute("SELECT setval('tape_global_seq', 6)")
        put_rows(execute)
    else:
        put_rows(lambda sql: execute(sql.replace("OVERRIDING SYSTEM VALUE", "")))

    store = await open_store(store_url, Settings())
    told = execute(
        "SELECT id, event_id, global_seq, has_entry, repeat_of, repeat_of_seq, repeated_at_ms > 0 "
        "FROM bus.outbox ORDER BY id"
    )
    e1, e2, e9 = (f"01JZ00000000000000000000{which}" for which in ("E1", "E2", "E9"))
    fresh = {row[0]: row[1] for row in told if row[0] in (3, 6, 7)}
    assert [tuple(row) for row in told] == [
        (1, e1, 1, True, "", 0, False),
        (2, e1, -1, False, e1, 1, True),
        (3, fresh[3], 0, False, "", 0, False),
        (4, e1, 1, False, "", 0, False),
        (5, e2, 2, True, "", 0, False),
        (6, fresh[6], 0, False, "", 0, False),
        (7, fresh[7], 0, False, "", 0, False),
        (8, "no-ulid", 5, False, "", 0, False),
        (9, e9, 0, False, "", 0, False),
        (10, "01JZ0000000000000000000E10", 6, False, "", 0, False),
    ]
    leader = await store.outbox.lead_outbox(
        Lead("nats", "me", 4242, 60.0, "01JZ0000000000000000000000")
    )
    assert leader is not None
    waiting = await leader.read_unpromoted(99)
    done = await play(store, PromoteOutbox(waiting, Limits()))
    assert (done.promoted, done.repeats, done.unfit) == (4, 0, [])
    rows = await leader.read_unpublished(99)
    assert [row.payload_json for row in rows] == ["5", "3", "6", "7", "9"]
    events = [entry for entry in await read_all(store) if entry.kind == "event"]
    assert [entry.idempotency_key for entry in events][-4:] == [
        "bus.outbox/b/k", "", "bus.outbox/d/kr", "",
    ]  # fmt: skip
    await leader.release()
    await store.close()


async def test_the_code_before_may_go_on_beside_this(store_url: str, execute: Execute) -> None:
    """It gives a row with a used key the id and the place of the first."""
    store = await open_store(store_url, Settings())
    columns = "event_id, subject, payload_json, idempotency_key"
    for number in range(2):
        execute(f"INSERT INTO bus.outbox ({columns}) VALUES ('e{number}', 's', '1', 'k')")
    execute("UPDATE bus.outbox SET global_seq = 7, event_id = 'e0'")
    rows = "SELECT event_id, global_seq, has_entry FROM bus.outbox"
    assert [tuple(row) for row in execute(rows)] == [("e0", 7, False)] * 2
    await store.close()
