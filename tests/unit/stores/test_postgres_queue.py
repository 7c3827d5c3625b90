"""What claims and completions read in Postgres: what they give out, and nothing besides.

Plans inside functions cannot be explained, so the server's own counts of what was read are used.
"""

from collections.abc import AsyncIterator
from typing import NamedTuple

import asyncpg
import pytest

from tape.journal.writer import Writer
from tape.model.event import NewEvent, RecordEvents
from tape.model.reaction import NewReaction, RegisterReaction
from tape.model.task import TaskKey
from tape.ports.matching import CursorStep, MatchStep, NewTask
from tape.ports.tasks import Claim, Want
from tape.settings import Settings
from tape.stores.postgres import tasks
from tape.stores.postgres.store import PostgresStore

TASKS = 10_000
SETTINGS = Settings()


class Read(NamedTuple):
    scans: int
    index_entries: int


class Queue(NamedTuple):
    store: PostgresStore
    admin: asyncpg.Connection

    async def read(self) -> Read:
        """What all sessions have read of the queue and of what has ended, so far."""
        await self.admin.execute("SELECT pg_stat_clear_snapshot()")
        row = await self.admin.fetchrow(
            "SELECT sum(t.seq_scan), (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes "
            "WHERE relname LIKE 'tape_task%') FROM pg_stat_user_tables t "
            "WHERE t.relname LIKE 'tape_task%' OR t.relname LIKE 'tape_reaction%'"
        )
        assert row is not None
        return Read(*map(int, row))

    async def settled(self) -> Read:
        """The counts reach the server's statistics when a session rests; so let each say so."""
        for pool in self.store._pools:
            for connection in pool._idle:
                await connection.execute("SELECT pg_stat_force_next_flush()")
        return await self.read()


@pytest.fixture
async def queue(postgres_url: str) -> AsyncIterator[Queue]:
    store = await PostgresStore.open(postgres_url, SETTINGS.postgres)
    writer = Writer(store, SETTINGS.writer)
    admin = await asyncpg.connect(postgres_url)
    try:
        new = NewReaction("r", "/tape/event/**", 2, max_concurrency=100_000)
        await writer.submit(RegisterReaction(new, SETTINGS.limits))
        events = [NewEvent("x", "{}")] * TASKS
        ids = [f"{n:026d}" for n in range(TASKS)]
        await writer.submit(RecordEvents(events, ids, SETTINGS.limits))
        lease = await store.matching.acquire_matcher("m", 60_000)
        assert lease is not None
        new_tasks = [NewTask("r", 0, seq, 0, "/s", 0) for seq in range(1, TASKS + 1)]
        cursor = CursorStep("r", 0, TASKS, 1, TASKS, 0, 0, "", 0)
        assert (
            await store.matching.make_step(MatchStep(lease, 60_000, 1, TASKS, [cursor], new_tasks))
            == "made"
        )
        yield Queue(store, admin)
    finally:
        await admin.close()
        await writer.close()
        await store.close()


async def test_a_claim_reads_what_it_gives_out(queue: Queue) -> None:
    claim = Claim("me", 60_000, [Want("r", -1, 100)])
    await queue.store.tasks.claim_tasks(claim)
    before = await queue.settled()
    for _ in range(10):
        assert len(await queue.store.tasks.claim_tasks(claim)) == 100
    after = await queue.settled()
    assert after.scans == before.scans
    assert 1_000 <= after.index_entries - before.index_entries < 1_500


async def test_completion_reads_what_it_ends(queue: Queue) -> None:
    claimed = await queue.store.tasks.claim_tasks(Claim("me", 60_000, [Want("r", -1, 500)]))
    await queue.store.tasks.complete_tasks("me", [claimed[0].key])
    before = await queue.settled()
    done = await queue.store.tasks.complete_tasks("me", [task.key for task in claimed[1:]])
    after = await queue.settled()
    assert len(done.done) == 499
    assert after.scans == before.scans
    assert after.index_entries - before.index_entries < 1_000


async def test_claims_do_not_slow_down_behind_a_foreign_transaction(
    queue: Queue, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that was done since it began can be cleaned up; claims do not walk over it, but for
    the one every few seconds that begins anew."""
    monkeypatch.setattr(tasks, "ANEW_EVERY_S", 3600.0)
    foreign = await asyncpg.connect(postgres_url)
    try:
        async with foreign.transaction(isolation="repeatable_read"):
            await foreign.fetchval("SELECT count(*) FROM tape_task_queue")
            claim = Claim("me", 60_000, [Want("r", -1, 500)])
            for _ in range(10):
                claimed = await queue.store.tasks.claim_tasks(claim)
                await queue.store.tasks.complete_tasks("me", [task.key for task in claimed])
            before = await queue.settled()
            for _ in range(4):
                claimed = await queue.store.tasks.claim_tasks(claim)
                assert len(claimed) == 500
            after = await queue.settled()
            assert after.index_entries - before.index_entries < 4 * 500 * 1.5
    finally:
        await foreign.close()


async def test_a_claim_that_was_rolled_back_is_found_by_whoever_went_past_it(
    queue: Queue, postgres_url: str
) -> None:
    """Another session has rows locked, is passed over, and gives up."""
    other = await asyncpg.connect(postgres_url)
    try:
        transaction = other.transaction()
        await transaction.start()
        await other.execute(
            "SELECT 1 FROM tape_task_queue WHERE source_global_seq <= 50 FOR UPDATE"
        )
        claim = Claim("me", 60_000, [Want("r", -1, 1_000)])
        first = await queue.store.tasks.claim_tasks(claim)
        assert min(task.source_global_seq for task in first) == 51
        await transaction.rollback()
        found: set[TaskKey] = {task.key for task in first}
        while len(found) < TASKS:
            more = await queue.store.tasks.claim_tasks(claim._replace(wants=[Want("r", -1, 1_000)]))
            found |= {task.key for task in more}
        assert len(found) == TASKS
    finally:
        await other.close()
