"""Who can hold the others up, and for how long.

A foreign transaction that sits idle delays nobody: the order does not hang on a horizon of
transactions. A server stopped in the middle of a batch holds the turn to write until the database
itself cuts it off; continued, it loses nothing it acknowledged and writes nothing twice.
"""

import asyncio
import time
from collections.abc import Iterator
from statistics import median
from typing import NamedTuple

import orjson
import psycopg
import pytest

from tape.bus import FollowQuery
from tape.model.event import NewEvent
from tape.programs.connect import open_bus
from tape.settings import PostgresSettings
from tests.crash.racing import reach
from tests.servers.tape_server import ServerProcess

IDLE_S = PostgresSettings().idle_in_transaction_s + 10.0
"""With what busy cores add. If the database did not cut it off, it would take for ever."""
ARRIVES_S = 30.0
IDLE = [pytest.param(3.0, id="short"), pytest.param(60.0, id="minute", marks=pytest.mark.long)]

# An insert of type `slow` waits until the test lets go of its own lock.
SLOW_INSERT = """
CREATE FUNCTION tape_test_slow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.event_type = 'slow' THEN PERFORM pg_advisory_xact_lock_shared(4711); END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER tape_test_slow BEFORE INSERT ON tape_journal
  FOR EACH ROW EXECUTE FUNCTION tape_test_slow();
"""
Admin = psycopg.Connection[tuple[object, ...]]


@pytest.fixture
def admin(postgres_url: str) -> Iterator[Admin]:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        yield connection


@pytest.mark.parametrize("idle_s", IDLE)
@pytest.mark.timeout(300)
async def test_a_foreign_idle_transaction_delays_no_follower(
    postgres_url: str, idle_s: float
) -> None:
    bus = await open_bus(postgres_url)
    await bus.record_events([NewEvent("before")])
    with psycopg.connect(postgres_url) as foreign:
        foreign.execute("CREATE TABLE somebody_elses (id int)")
        foreign.execute("INSERT INTO somebody_elses VALUES (1)")
        foreign.execute("SELECT count(*) FROM tape_journal")
        waits = await _delays_while(bus_url=postgres_url, seconds=idle_s)
        foreign.rollback()
    await bus.close()
    assert median(waits) < 1.0, "followers waited for somebody else's transaction"


async def _delays_while(bus_url: str, seconds: float) -> list[float]:
    """Record and follow for a while and more than ten times a second of it, however busy the cores
    are; how long each entry took to arrive."""
    writer, reader = await open_bus(bus_url), await open_bus(bus_url)
    pages = reader.follow(FollowQuery("/tape/event/recorded/tick/**"))
    waits: list[float] = []
    give_up = time.monotonic() + seconds
    while time.monotonic() < give_up or len(waits) <= 10 * seconds:
        started = time.monotonic()
        await writer.record_events([NewEvent("tick")])
        async with asyncio.timeout(ARRIVES_S):
            async for page in pages:
                if page.entries:
                    break
        waits.append(time.monotonic() - started)
    await writer.close()
    await reader.close()
    return waits


class Stopped(NamedTuple):
    """A batch in whose middle the server is stopped, and how long others may wait for it."""

    batch: list[NewEvent]
    seconds_at_most: float


BATCHES = [
    pytest.param(
        Stopped([NewEvent("slow")] * 2, IDLE_S), id="one statement", marks=pytest.mark.middle
    ),
    pytest.param(
        Stopped([NewEvent("slow", idempotency_key="once"), NewEvent("slow")], IDLE_S),
        id="whole transaction",
    ),
    pytest.param(
        Stopped([NewEvent("slow", orjson.dumps("x" * 50_000).decode())] * 300, IDLE_S),
        id="copy",
        marks=pytest.mark.middle,
    ),
]


@pytest.mark.parametrize("stopped", BATCHES)
async def test_a_server_stopped_in_mid_batch(
    postgres_url: str, admin: Admin, stopped: Stopped
) -> None:
    await (await open_bus(postgres_url)).close()
    admin.execute(SLOW_INSERT)
    with ServerProcess(postgres_url) as one, ServerProcess(postgres_url) as two:
        first, second = await reach(one.url), await reach(two.url)
        acknowledged = (await first.record_events([NewEvent("early")]))[0]
        admin.execute("SELECT pg_advisory_lock(4711)")
        pending = asyncio.create_task(first.record_events(stopped.batch))
        await _until(admin, "wait_event_type = 'Lock' AND application_name = 'tape writer'")
        one.pause()
        admin.execute("SELECT pg_advisory_unlock(4711)")
        started = time.monotonic()
        await second.record_events([NewEvent("other")])
        held_up = time.monotonic() - started
        one.resume()
        recorded = await pending
        await first.close()
        await second.close()
    assert held_up < stopped.seconds_at_most
    rows = admin.execute("SELECT event_type, event_id FROM tape_journal ORDER BY global_seq")
    found = rows.fetchall()
    slow = ["slow"] * len(stopped.batch)
    assert sorted(str(kind) for kind, _ in found) == ["early", "other", *slow]
    told = {acknowledged.event_id, *(place.event_id for place in recorded)}
    assert told <= {event_id for _, event_id in found}


async def _until(admin: Admin, condition: str) -> None:
    """Wait for a session that fits; the database is asked, no time is assumed."""
    query = f"SELECT count(*) FROM pg_stat_activity WHERE {condition}"
    give_up = time.monotonic() + 30
    while (await asyncio.to_thread(admin.execute, query)).fetchone() == (0,):
        assert time.monotonic() < give_up, f"no session came to have {condition}"
