"""Any sequence of writes for runs leaves a store as plain dictionaries say it should be."""

from itertools import pairwise
from typing import Any

import pytest

from tape.journal.batch import Verdict, decide_all, needs_of, settle
from tape.model.effect import EFFECTS
from tape.model.move import Move, Need, State
from tape.model.obligation import OBLIGATIONS
from tape.model.run import RUNS, RunStatus
from tape.model.timer import TIMERS
from tape.ports.runs import PendingQuery, RecoverQuery, RunQuery
from tape.ports.store import Store
from tests.conformance.in_memory import (
    effects_pending,
    effects_to_dispatch,
    obligations_unresolved,
    runs_listed,
    runs_to_recover,
    timers_due,
)
from tests.conformance.playing import MANY, Look, OpenStore, play
from tests.conformance.run_steps import RunWalk
from tests.conformance.running import LONG_MS, clock_of, pass_beyond

WALKS = 6
BATCHES = 300
IN_A_ROW = 10


async def commit(store: Store, moves: list[Move[Any]]) -> tuple[list[Any], int]:
    """The outcome of each in one batch, and the time by which they were decided."""
    verdicts: list[Verdict] = []
    now_ms = 0

    def decide(state: State) -> None:
        nonlocal now_ms
        now_ms = state.now_ms
        verdicts[:] = decide_all(moves, state)

    place = await store.commit(needs_of(moves), decide)
    return [v if isinstance(v, Exception) else settle(v, place) for v in verdicts], now_ms


def plain(outcome: Any) -> Any:
    """Refusals compare by what they say."""
    return (type(outcome), str(outcome)) if isinstance(outcome, Exception) else outcome


async def play_batch(store: Store, walk: RunWalk) -> None:
    moves = walk.batch()
    outcomes, now_ms = await commit(store, moves)
    expected = [walk.memory.play(move, now_ms) for move in moves]
    assert list(map(plain, outcomes)) == list(map(plain, expected))


async def expect_rows(store: Store, walk: RunWalk) -> None:
    needs = [Need(table, key) for table, rows in walk.memory.rows.items() for key in rows]
    found = await play(store, Look(*needs))
    assert found == [walk.memory.get(table, key) for table, key, _ in needs]
    for run in walk.memory.all(RUNS):
        assert await store.runs.get_run(run.run_id) == run
        timers = [timer for timer in walk.memory.all(TIMERS) if timer.run_id == run.run_id]
        assert sorted(await store.runs.list_timers(run.run_id)) == sorted(timers)
        owed = [row for row in walk.memory.all(OBLIGATIONS) if row.run_id == run.run_id]
        owed.sort(key=lambda row: -row.seq)
        assert await store.runs.list_obligations(run.run_id) == owed


async def expect_journal(store: Store, walk: RunWalk) -> None:
    """Each run's entries are those that were decided, numbered without a gap."""
    for run in walk.memory.all(RUNS):
        entries = await store.read_run(run.run_id, 0, MANY)
        assert [e.seq for e in entries] == list(range(1, run.seq_cursor + 1))
        assert [(e.event_id, e.kind, e.subject, e.payload_json) for e in entries] == [
            draft[:4] for draft in walk.memory.journal_of(run.run_id)
        ]
        assert all(one.global_seq < other.global_seq for one, other in pairwise(entries))
        granted = [e.payload for e in entries if e.kind == "run" and e.payload.get("owner")]
        tokens = [grant["fencing_token"] for grant in granted]
        assert tokens == list(range(1, run.fencing_token + 1))


async def expect_lists(store: Store, walk: RunWalk) -> None:
    """What the lists tell, once all that was for a short while is over."""
    memory, app = walk.memory, walk.name
    now_ms = await clock_of(store)
    await pass_beyond(store, max(deadline for deadline in deadlines(walk, now_ms)))
    now_ms = await clock_of(store)
    for status in (0, *RunStatus):
        for session in (None, ("u", "s")):
            query = RunQuery(int(status), app, "", MANY, session=session)
            assert await store.runs.list_runs(query) == runs_listed(memory.all(RUNS), query)
    for recover in (
        RecoverQuery(f"pool of {app}", (), MANY),
        RecoverQuery("", [app], MANY),
        RecoverQuery(f"pool of {app}", [app], MANY),
    ):
        expected = runs_to_recover(memory, recover, now_ms)
        assert await store.runs.list_runs_to_recover(recover) == expected
    connectors = [f"connector of {app}"]
    found = await store.runs.list_effects_to_dispatch(connectors, MANY)
    assert found == effects_to_dispatch(memory, now_ms)
    for pending in (
        PendingQuery(0, MANY, connectors=connectors),
        PendingQuery(0, MANY, include_pending=True, connectors=connectors),
        PendingQuery(LONG_MS, MANY, include_pending=True, connectors=connectors),
    ):
        assert await store.runs.list_pending_effects(pending) == effects_pending(
            memory, pending, now_ms
        )
    mine = {run.run_id for run in memory.all(RUNS)}
    for include_stuck in (False, True):
        owed = await store.runs.list_unresolved_obligations(MANY, include_stuck=include_stuck)
        assert [row for row in owed if row.run_id in mine] == obligations_unresolved(
            memory, now_ms, include_stuck=include_stuck
        )
    due = [timer for timer in await store.runs.list_due_timers(MANY) if timer.run_id in mine]
    assert due == timers_due(memory, now_ms)


def deadlines(walk: RunWalk, now_ms: int) -> list[int]:
    """When leases and claims that were for a short while run out."""
    memory = walk.memory
    every = [
        *(run.lease_expires_at_ms for run in memory.all(RUNS)),
        *(row.dispatch_claim_expires_at_ms for row in memory.all(EFFECTS)),
        *(row.claim_expires_at_ms for row in memory.all(OBLIGATIONS)),
    ]
    return [0, *(moment for moment in every if moment < now_ms + LONG_MS // 2)]


class RunSequencesContract:
    @pytest.mark.parametrize("seed", range(WALKS))
    async def test_any_sequence_ends_as_the_dictionaries_say(
        self, open_store: OpenStore, seed: int
    ) -> None:
        stores = [await open_store(), await open_store()]
        walk = RunWalk("app", seed)
        for number in range(BATCHES):
            await play_batch(stores[number // IN_A_ROW % 2], walk)
        for store in stores:
            await expect_rows(store, walk)
            await expect_journal(store, walk)
            await expect_lists(store, walk)
