"""Journals with odd texts and gaps, written row by row: what is read must be what was written."""

import asyncio
import random
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing

import psycopg

from tape.model.entry import Entry
from tape.settings import Settings
from tape.stores.by_url import open_store, sqlite_path

TEXTS = (
    "",
    "a",
    "A",
    "it's",
    "back\\slash",
    "\\'; --",
    "ü",
    "\U0001d54a",
    "\ud7ff",
    "\uffff",
    "$1 ? %s",
    "a b",
)
SUBJECTS = (
    "/tape/event/recorded/order/acc/1",
    "/tape/event/recorded/order/acc/2",
    "/tape/event/recorded/order",
    "/tape/event/recorded/order%20x/acc/1",
    "/tape/eventual/recorded",
    "/tape/value/changed/n/k",
    "/tape/event/recorded/fill.v-1~x/acc/1",
)
PAYLOADS = (
    '{"n": 1}',
    '{"n": 2.5}',
    '{"n": "x"}',
    "{}",
    "null",
    '{"n":1,"n":3}',
    '{"text": "ü\'\\\\"}',
)
COLUMNS = ", ".join(Entry._fields)


def odd_entries(numbers: Iterable[int], seed: int = 1) -> Iterator[Entry]:
    """Entries with these numbers, of which no two of a run and no two keys are alike."""
    draw = random.Random(seed)
    for number in numbers:
        subject = draw.choice(SUBJECTS)
        kind = subject.split("/")[2]
        payload = draw.choice(PAYLOADS)
        if kind == "value":
            payload = '{"version": 1, "prev_value_json": "null"}'
        in_run = number % 3 == 0
        yield Entry(
            number, "r'1" if in_run else "", number if in_run else 0, kind, subject, payload,
            draw.choice((1, 2, 7)), draw.choice(TEXTS), draw.choice(TEXTS), draw.choice(TEXTS),
            draw.choice((-5, 0, 2**53 + 1, 2**63 - 1)), f"id{number}", draw.choice(TEXTS),
            draw.choice(TEXTS), draw.choice(TEXTS), draw.choice(TEXTS), draw.choice(TEXTS),
            draw.choice((-1, 0, 10**12)), f"key'{number}" if number % 2 else "",
        )  # fmt: skip


def write_journal(url: str, entries: Iterable[Entry]) -> list[Entry]:
    """Make the store and put these into it, as they are."""

    async def made() -> None:
        await (await open_store(url, Settings())).close()

    asyncio.run(made())
    written = list(entries)
    nullable = ("run_id", "seq", "idempotency_key")
    rows = [
        tuple(
            None if name in nullable and not value else value for name, value in e._asdict().items()
        )
        for e in written
    ]
    if url.startswith("sqlite:"):
        marks = ",".join("?" * len(Entry._fields))
        with closing(sqlite3.connect(sqlite_path(url))) as db, db:
            db.executemany(f"INSERT INTO tape_journal ({COLUMNS}) VALUES ({marks})", rows)
    else:
        with psycopg.connect(url) as connection, connection.cursor() as cursor:
            with cursor.copy(f"COPY tape_journal ({COLUMNS}) FROM STDIN".encode()) as copy:
                for row in rows:
                    copy.write_row(row)
            if written:
                cursor.execute("SELECT setval('tape_global_seq', %s)", (written[-1].global_seq,))
    return written


def run_sql(url: str, statements: Sequence[str]) -> None:
    """In one transaction."""
    if url.startswith("sqlite:"):
        with closing(sqlite3.connect(sqlite_path(url))) as db, db:
            for statement in statements:
                db.execute(statement)
    else:
        with psycopg.connect(url) as connection:
            for statement in statements:
                connection.execute(statement.encode())


def prune(url: str, through: int) -> None:
    """As `tape prune` does it: what is gone is said in the transaction that removes it."""
    run_sql(
        url,
        [
            f"DELETE FROM tape_journal WHERE global_seq <= {through}",
            f"UPDATE tape_retention SET pruned_through = {through} WHERE name = 'journal'",
        ],
    )
