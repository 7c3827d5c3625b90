"""Writes for runs on SQLite: what is remembered of them is used while it is so, and no longer."""

import sqlite3
from collections.abc import AsyncIterator

import pytest

from tape.bus import Bus
from tape.errors import NotFound, RunCancelled, StoreFull
from tape.model.decision import RecordDecision
from tape.model.effect import BeginEffect, CompleteEffect, EffectStatus
from tape.model.gate import SendSignal
from tape.model.lease import NewRun, Taker
from tape.model.run import RunName, RunStatus
from tape.model.run_end import CancelRun, EndRun
from tape.stores.sqlite.store import SqliteStore
from tests.unit.stores.two_buses import begun, take_step, two_buses


class Statements:
    """What the writer's connection has run, by the first words of its purpose."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self._seen: list[str] = []

    async def begin(self) -> None:
        def trace(db: sqlite3.Connection) -> None:
            db.set_trace_callback(self._seen.append)

        await self._store._writing.use(trace)

    def take(self, words: str) -> int:
        """How many had these words since the last time this was asked."""
        found = sum(words in text for text in self._seen)
        self._seen.clear()
        return found


LOADS = "for a batch to decide on"


@pytest.fixture
async def buses(sqlite_url: str) -> AsyncIterator[tuple[Bus, Bus]]:
    async with two_buses(sqlite_url) as both:
        yield both


@pytest.fixture
async def statements(buses: tuple[Bus, Bus]) -> Statements:
    store = buses[0]._store
    assert isinstance(store, SqliteStore)
    statements = Statements(store)
    await statements.begin()
    return statements


async def test_a_run_is_driven_without_reading(
    buses: tuple[Bus, Bus], statements: Statements
) -> None:
    runs = buses[0].runs
    run_id = await begun(runs)
    for number in range(5):
        await take_step(runs, run_id, number)
    await runs.extend_run(run_id, 1, [RecordDecision(0, "m"), EndRun(RunStatus.TERMINAL, "1", "")])
    assert statements.take(LOADS) == 0
    found = await buses[1].runs.get_run(run_id)
    assert found is not None
    assert (found.status, found.seq_cursor, found.outcome_json) == (4, 12, "1")
    settled = await buses[1].runs.get_effect(run_id, f"{run_id}/decision-0/tool/3")
    assert settled is not None
    assert (settled.status, settled.response_json) == (EffectStatus.CONFIRMED, "7")


async def test_a_step_writes_no_index_of_its_runs_status(
    buses: tuple[Bus, Bus], statements: Statements
) -> None:
    runs = buses[0].runs
    run_id = await begun(runs)
    statements.take("")
    await take_step(runs, run_id, 0)
    assert statements.take("UPDATE tape_runs SET\n  seq_cursor") == 1


async def test_what_another_connection_wrote_is_seen(
    buses: tuple[Bus, Bus], statements: Statements
) -> None:
    runs, others = buses[0].runs, buses[1].runs
    run_id = await begun(runs)
    await take_step(runs, run_id, 0)
    await others.change_run(run_id, SendSignal("gate", "1"))
    statements.take("")
    extended = await take_step(runs, run_id, 1)
    assert extended.first_seq == 4
    assert statements.take(LOADS) == 2
    await take_step(runs, run_id, 2)
    assert statements.take(LOADS) == 0


async def test_a_renewal_and_a_cancellation_elsewhere_are_not_written_over(
    buses: tuple[Bus, Bus],
) -> None:
    runs, others = buses[0].runs, buses[1].runs
    run_id = await begun(runs)
    await take_step(runs, run_id, 0)
    renewed = await others.heartbeat_run(run_id, 1, 3_600_000)
    await take_step(runs, run_id, 1)
    found = await runs.get_run(run_id)
    assert found is not None
    assert found.lease_expires_at_ms == renewed.lease_expires_at_ms
    await others.change_run(run_id, CancelRun("enough"))
    with pytest.raises(RunCancelled, match="enough"):
        await take_step(runs, run_id, 2)


async def test_what_is_there_is_not_taken_to_be_missing(
    buses: tuple[Bus, Bus], statements: Statements
) -> None:
    runs = buses[0].runs
    run_id = await begun(runs)
    await take_step(runs, run_id, 0)
    await take_step(runs, run_id, 1)
    await runs.extend_run(run_id, 1, [RecordDecision(0, "m")])
    before = await runs.get_run(run_id)
    statements.take("")
    repeated = await runs.extend_run(run_id, 1, [BeginEffect(0, "tool", 0), RecordDecision(0, "m")])
    assert statements.take("ROLLBACK") == 1
    assert repeated.replies[0].status == EffectStatus.CONFIRMED
    assert await runs.get_run(run_id) == before
    with pytest.raises(NotFound):
        await runs.extend_run(run_id, 1, [CompleteEffect("none", EffectStatus.CONFIRMED)])


async def test_a_run_that_is_there_is_found_again(buses: tuple[Bus, Bus]) -> None:
    runs, others = buses[0].runs, buses[1].runs
    run_id = await begun(runs)
    new = NewRun(RunName("app", "", "", "1"))
    again = await others.begin_run(new, Taker("other"), [BeginEffect(0, "tool", 0)])
    assert (again.run.run_id, again.resumed, again.fencing_token) == (run_id, True, 0)


async def test_a_turn_that_failed_leaves_nothing_to_go_by(buses: tuple[Bus, Bus]) -> None:
    store, runs = buses[0]._store, buses[0].runs
    assert isinstance(store, SqliteStore)
    run_id = await begun(runs)
    await take_step(runs, run_id, 0)

    async def allow(pages: int) -> None:
        def limit(db: sqlite3.Connection) -> None:
            (count,) = db.execute("PRAGMA page_count").fetchone()
            db.execute(f"PRAGMA max_page_count = {count + pages}")

        await store._writing.use(limit)

    await allow(0)
    large = BeginEffect(0, "large", 0, '"' + "x" * 100_000 + '"')
    with pytest.raises(StoreFull):
        await runs.extend_run(run_id, 1, [large])
    await allow(10_000)
    extended = await take_step(runs, run_id, 1)
    assert extended.first_seq == 3
