"""What only Postgres can do to a claim: let it wait while the journal goes on, or forget it."""

import asyncio
import contextlib

import psycopg

from tape.bus import Bus
from tape.errors import StoreUnavailable
from tape.model.event import NewEvent
from tape.model.reaction import HandlerKind, NewReaction
from tape.model.task import ExpireTasks
from tape.ports.tasks import Claim, Want
from tape.programs.connect import open_bus
from tests.conformance.reacting import a_task, expect_sound, queue, until
from tests.crash import watching
from tests.servers.postgres import PostgresServer

BOUND_S = 60.0
REACTION = NewReaction("r", "/tape/**", HandlerKind.TASK, max_concurrency=100)
QUEUE_ONE = """
INSERT INTO tape_task_queue (reaction_id, shard, source_global_seq, status, created_at_ms)
VALUES ('r', 0, %s, 1, 0)
"""
WAITING = """
SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%%tape_claim%%'
"""


ASKING = """
SELECT count(*) FROM pg_stat_activity
WHERE wait_event_type = 'Lock' AND query LIKE '%%next_attempt_at_ms%%'
"""
NOT_FREE_FOR_LONG = """
UPDATE tape_reaction_tallies SET next_free_us = next_free_us + 3600000000
WHERE reaction_id = 'rated'
"""
SESSIONS = "SELECT pid FROM pg_stat_activity WHERE application_name = 'tape'"
FREE_TALLIES = """
SELECT reaction_id FROM tape_reaction_tallies ORDER BY reaction_id FOR UPDATE SKIP LOCKED
"""
CLAIMED = """
SELECT reaction_id || '/' || shard || '/' || source_global_seq FROM tape_task_queue
WHERE status = 2
"""


async def test_a_claim_that_waited_brings_the_entries_recorded_meanwhile(
    postgres_url: str,
) -> None:
    bus = await open_bus(postgres_url)
    await bus.reactions.register_reaction(REACTION)
    (first,) = await bus.record_events([NewEvent("before")])
    with (
        psycopg.connect(postgres_url) as other,
        psycopg.connect(postgres_url, autocommit=True) as look,
    ):
        look.execute(QUEUE_ONE, (first.global_seq,))
        other.execute("SELECT FROM tape_reaction_tallies FOR UPDATE")
        claiming = asyncio.create_task(
            bus.tasks.claim_tasks(Claim("me", 60_000, [Want("r", -1, 10)]))
        )
        await until(lambda: _is(look.execute(WAITING).fetchone() == (1,)))
        (second,) = await bus.record_events([NewEvent("meanwhile")])
        other.execute(QUEUE_ONE, (second.global_seq,))
        other.commit()
        claimed = await claiming
    await bus.close()
    assert [(task.entry.event_type, task.entry.event_id) for task in claimed] == [
        ("before", first.event_id),
        ("meanwhile", second.event_id),
    ]


async def test_a_claim_that_waits_holds_nothing(postgres_url: str) -> None:
    """What it passed over has no room, and somebody else may be waiting for that."""
    bus = await open_bus(postgres_url)
    for reaction in (
        REACTION._replace(reaction_id="full", max_concurrency=1),
        REACTION._replace(reaction_id="rated", rate_limit_per_s=1),
        REACTION,
    ):
        await bus.reactions.register_reaction(reaction)
    wants = [Want(name, -1, 1) for name in ("full", "rated", "r")]
    await bus.record_events([NewEvent("a") for _ in range(5)])
    await queue(bus._store, [a_task(k, want.reaction_id) for k in range(1, 6) for want in wants])
    claim = Claim("me", 60_000, wants, 10)
    assert len(await bus.tasks.claim_tasks(claim)) == 3
    with (
        psycopg.connect(postgres_url) as other,
        psycopg.connect(postgres_url, autocommit=True) as look,
    ):
        look.execute(NOT_FREE_FOR_LONG)
        other.execute("SELECT FROM tape_reaction_tallies WHERE reaction_id = 'r' FOR UPDATE")
        claiming = asyncio.create_task(bus.tasks.claim_tasks(claim))
        await until(lambda: _is(look.execute(WAITING).fetchone() == (1,)))
        free = look.execute(FREE_TALLIES).fetchall()
        other.rollback()
        (task,) = await claiming
    await bus.close()
    assert free == [("full",), ("rated",)]
    assert task.reaction_id == "r"


async def test_who_settles_late_and_who_takes_back_do_not_lock_each_other_out(
    postgres_url: str,
) -> None:
    """Both hold some of the same tasks and wait for the others, unless both begin at one end."""
    bus = await open_bus(postgres_url)
    await bus.reactions.register_reaction(REACTION._replace(max_concurrency=1_000))
    await bus.record_events([NewEvent("a") for _ in range(400)])
    deadlocks = watching.deadlocks(postgres_url)
    await queue(bus._store, range(1, 401))
    for _ in range(4):
        held = await bus.tasks.claim_tasks(Claim("late", 1, [Want("r", -1, 100)]))
        keys = [task.key for task in held]
        taking_back = ExpireTasks(keys[::-1], list(bus._ids.take(len(keys))))
        await asyncio.gather(
            bus._store.tasks.complete_tasks("late", keys),
            bus._writer.submit(taking_back),
            bus._store.tasks.extend_tasks("late", 1, keys[50:] + keys[:50]),
            bus._store.tasks.complete_tasks("late", keys[::-1]),
        )
    await expect_sound(bus._store)
    await bus.close()
    assert watching.deadlocks(postgres_url) == deadlocks


async def test_a_renewal_does_not_wait_for_what_is_being_settled(postgres_url: str) -> None:
    bus = await open_bus(postgres_url)
    await bus.reactions.register_reaction(REACTION)
    await bus.record_events([NewEvent("a") for _ in range(2)])
    await queue(bus._store, (1, 2))
    keys = [
        task.key for task in await bus.tasks.claim_tasks(Claim("me", 1_000, [Want("r", -1, 2)]))
    ]
    with psycopg.connect(postgres_url) as other:
        other.execute("SELECT FROM tape_task_queue WHERE source_global_seq = 1 FOR UPDATE")
        async with asyncio.timeout(BOUND_S):
            assert await bus._store.tasks.extend_tasks("me", 60_000, keys) == keys
        assert await bus._store.tasks.extend_tasks("another", 60_000, keys) == []
        other.rollback()
        expiries = other.execute("SELECT lease_expires_at_ms FROM tape_task_queue ORDER BY 1")
        (first,), (second,) = expiries.fetchall()
    await bus.close()
    assert second - first > 50_000, "only the free one was prolonged"


async def test_who_stops_listening_costs_the_store_no_session(postgres_url: str) -> None:
    bus = await open_bus(postgres_url)
    await bus.reactions.register_reaction(REACTION)
    await bus.tasks.listen_for_tasks(["r"], 0, 1)
    with (
        psycopg.connect(postgres_url) as other,
        psycopg.connect(postgres_url, autocommit=True) as look,
    ):
        before = look.execute(SESSIONS).fetchall()
        for _ in range(3):
            other.execute("LOCK TABLE tape_reaction_tallies IN ACCESS EXCLUSIVE MODE")
            listening = asyncio.create_task(bus.tasks.listen_for_tasks(["r"], 0, 1_000))
            await until(lambda: _is(look.execute(ASKING).fetchone() == (1,)))
            listening.cancel()
            await asyncio.wait([listening])
            other.rollback()
            await bus.tasks.listen_for_tasks(["r"], 0, 1)
        after = look.execute(SESSIONS).fetchall()
    await bus.close()
    assert set(before) <= set(after)


async def test_claims_that_a_crash_of_the_database_undid_are_made_again() -> None:
    """Who claims goes on from where it was; what is behind that is looked at again in time."""
    with PostgresServer("wal_writer_delay=10000ms") as server:
        bus = await open_bus(server.create_database("crashed"))
        await bus.reactions.register_reaction(REACTION)
        bus.start_matching()
        await bus.record_events([NewEvent("a") for _ in range(50)])
        claimed = await _claim(bus, 50)
        server.kill()
        server.start()
        with psycopg.connect(server.url("crashed")) as look:
            kept = {task_id for (task_id,) in look.execute(CLAIMED)}
        assert len(kept) < 50, "the crash undid no claim"
        again = await _claim(bus, 50 - len(kept))
        await bus.close()
    assert set(again) == set(claimed) - kept


async def _is(true: bool) -> bool:
    return true


async def _claim(bus: Bus, count: int) -> list[str]:
    found: list[str] = []
    async with asyncio.timeout(BOUND_S):
        while len(found) < count:
            with contextlib.suppress(StoreUnavailable):
                tasks = await bus.tasks.claim_tasks(Claim("me", 60_000, [Want("r", -1, 7)]), 500)
                found += [task.task_id for task in tasks]
    return found
