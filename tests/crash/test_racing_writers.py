"""No skip, no duplicate, no reordering for any cursor, and nothing acknowledged is lost.

Racing processes with pauses, refusals, aborted transactions and a kill -9. The long form writes
100,000 entries; the short one proves the machinery on every run.
"""

import asyncio
import os
import random
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import orjson
import psycopg
import pytest

from tape.model.entry import Entry
from tape.programs.connect import open_bus
from tape.stores.by_url import sqlite_path
from tests.crash.racing import END, PATTERNS, POISON, Outcome, check, follow_to_end, reach, write
from tests.servers.tape_server import ServerProcess

SHORT, LONG = 6_000, 100_000
SIZES = [pytest.param(SHORT, id="short"), pytest.param(LONG, id="long", marks=pytest.mark.long)]
WRITERS = 32
SEED = int(os.environ.get("TAPE_SEED", "20261115"))

POSTGRES_FAULTS = f"""
CREATE FUNCTION tape_test_fault() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.event_type = '{POISON}' THEN RAISE EXCEPTION 'poisoned'; END IF;
  IF random() < 0.002 THEN PERFORM pg_sleep(random() * 0.02); END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER tape_test_fault BEFORE INSERT ON tape_journal
  FOR EACH ROW EXECUTE FUNCTION tape_test_fault();
"""
SQLITE_FAULT = f"""CREATE TRIGGER tape_test_fault BEFORE INSERT ON tape_journal
WHEN NEW.event_type = '{POISON}' BEGIN SELECT raise(ABORT, 'poisoned'); END"""


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("entries", SIZES)
async def test_two_servers_on_one_postgres(postgres_url: str, entries: int) -> None:
    await (await open_bus(postgres_url)).close()
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(POSTGRES_FAULTS)
        with ServerProcess(postgres_url) as one, ServerProcess(postgres_url) as two:
            outcomes, followed = await _race_servers(admin, one, two, entries)
        _finish(postgres_url, outcomes, followed, entries)


async def _race_servers(
    admin: "psycopg.Connection[tuple[object, ...]]",
    one: ServerProcess,
    two: ServerProcess,
    entries: int,
) -> tuple[list[Outcome], dict[str, list[Entry]]]:
    outcomes: list[Outcome] = []
    milestones = _Milestones(entries)

    def report(outcome: Outcome) -> None:
        outcomes.append(outcome)
        milestones.reached(len(outcomes))

    doors = [await reach(one.url), await reach(two.url)]
    followers = {
        pattern: asyncio.create_task(follow_to_end(doors[i % 2], pattern))
        for i, pattern in enumerate(PATTERNS)
    }
    async with asyncio.TaskGroup() as group:
        group.create_task(_disturb(admin, two, milestones))
        for writer in range(WRITERS):
            mine = doors if writer % 2 else doors[::-1]
            group.create_task(write(writer, entries // WRITERS, mine, report, SEED))
    await doors[0].record_events([END])
    followed = {pattern: await task for pattern, task in followers.items()}
    for door in doors:
        await door.close()
    return outcomes, followed


class _Milestones:
    """Events at tenths of the way, for a disturbance to wait on."""

    def __init__(self, total: int) -> None:
        self._step = total // 10
        self._events = [asyncio.Event() for _ in range(11)]

    def reached(self, count: int) -> None:
        for event in self._events[: count // self._step + 1]:
            event.set()

    async def tenth(self, number: int) -> None:
        await self._events[number].wait()


async def _disturb(
    admin: "psycopg.Connection[tuple[object, ...]]", victim: ServerProcess, milestones: _Milestones
) -> None:
    """Abort writers' transactions all along; kill one server half-way and start it again."""
    chance = random.Random(SEED)
    for tenth in range(1, 9):
        await milestones.tenth(tenth)
        if tenth == 4:
            await asyncio.to_thread(victim.kill)
            await asyncio.to_thread(victim.start)
            continue
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'tape writer' ORDER BY random() LIMIT %s",
            (chance.randint(1, 2),),
        )


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("entries", SIZES)
async def test_several_processes_on_one_sqlite_file(sqlite_url: str, entries: int) -> None:
    bus = await open_bus(sqlite_url)
    _run_sqlite(sqlite_url, SQLITE_FAULT)
    followers = {pattern: asyncio.create_task(follow_to_end(bus, pattern)) for pattern in PATTERNS}
    outcomes: list[Outcome] = []
    with ExitStack() as stack:
        racers = [
            stack.enter_context(_Racer(sqlite_url, 8 * k, entries // WRITERS, SEED))
            for k in range(4)
        ]
        reading = [asyncio.create_task(racer.collect(outcomes)) for racer in racers[1:]]
        await racers[0].collect(outcomes, upto=entries // 10)
        racers[0].kill()
        await racers[0].collect(outcomes)
        again = stack.enter_context(_Racer(sqlite_url, 32, entries // WRITERS, SEED))
        await asyncio.gather(*reading, again.collect(outcomes))
    await bus.record_events([END])
    followed = {pattern: await task for pattern, task in followers.items()}
    await bus.close()
    _finish(sqlite_url, outcomes, followed, entries)


class _Racer:
    """A racing process and what it was told so far."""

    def __init__(self, url: str, first: int, quota: int, seed: int) -> None:
        command = [sys.executable, "-m", "tests.crash.racer", url, str(first), "8", str(quota)]
        self._process = subprocess.Popen(
            [*command, str(seed)], stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
        )

    def __enter__(self) -> "_Racer":
        return self

    def __exit__(self, *_error: object) -> None:
        self.kill()
        self._process.wait(30)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def kill(self) -> None:
        self._process.kill()

    async def collect(self, outcomes: list[Outcome], upto: int = 10**9) -> None:
        lines = self._lines()
        for _ in range(upto):
            line = await asyncio.to_thread(next, lines, b"")
            if not line.endswith(b"\n"):
                return  # the end, or a line cut off by the kill
            outcomes.append(Outcome(**orjson.loads(line)))

    def _lines(self) -> Iterator[bytes]:
        assert self._process.stdout is not None
        return iter(self._process.stdout.readline, b"")


def _finish(
    url: str, outcomes: list[Outcome], followed: dict[str, list[Entry]], entries: int
) -> None:
    journal = _whole_journal(url)
    check(journal, outcomes, followed)
    recorded = {outcome.id for outcome in outcomes if outcome.told == "recorded"}
    assert len(recorded) > 0.7 * entries, "too few were acknowledged for the race to mean anything"
    assert any(outcome.told == "refused" for outcome in outcomes)


def _whole_journal(url: str) -> list[Entry]:
    """The journal as the database has it, read without any of our code."""
    query = f"SELECT {', '.join(Entry._fields)} FROM tape_journal ORDER BY global_seq"
    if url.startswith("postgres"):
        with psycopg.connect(url) as connection:
            rows = connection.execute(query).fetchall()
    else:
        rows = _run_sqlite(url, query)
    return [_read_back(Entry(*row)) for row in rows]


def _read_back(entry: Entry) -> Entry:
    """NULL reads back as nothing: no run, no number in it, no key."""
    return entry._replace(
        run_id=entry.run_id or "",
        seq=entry.seq or 0,
        idempotency_key=entry.idempotency_key or "",
    )


def _run_sqlite(url: str, statement: str) -> list[tuple[Any, ...]]:
    db = sqlite3.connect(sqlite_path(url))
    try:
        with db:
            return db.execute(statement).fetchall()
    finally:
        db.close()
