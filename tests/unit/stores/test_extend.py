"""Writes for runs in one statement on Postgres: used when it can be, and right when it cannot."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest

from tape.bus import Bus
from tape.errors import LeaseHeld, NotFound, RunCancelled, StaleLease
from tape.model.decision import RecordDecision
from tape.model.effect import BeginEffect, CompleteEffect, EffectStatus
from tape.model.gate import AwaitSignal, SendSignal
from tape.model.lease import NewRun, Taker
from tape.model.run import RunName, RunStatus
from tape.model.run_end import CancelRun, EndRun
from tape.stores import guesses
from tape.stores.postgres import turn
from tape.stores.postgres.extend import WrongGuess, send
from tests.unit.stores.two_buses import ME, begun, take_step, two_buses

OTHER = Taker("other")


class Statements:
    """How many batches went as one statement, and how many of those were guessed wrong."""

    sent = 0
    wrong = 0


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> Statements:
    counted = Statements()

    async def counting(*args: Any) -> tuple[int, int]:
        counted.sent += 1
        try:
            return await send(*args)
        except WrongGuess:
            counted.wrong += 1
            raise

    monkeypatch.setattr(turn, "send", counting)
    return counted


@pytest.fixture
async def buses(postgres_url: str) -> AsyncIterator[tuple[Bus, Bus]]:
    async with two_buses(postgres_url) as both:
        yield both


async def test_a_run_is_driven_by_single_statements(
    buses: tuple[Bus, Bus], statements: Statements, postgres_url: str
) -> None:
    runs = buses[0].runs
    run_id = await begun(runs)
    for number in range(5):
        await take_step(runs, run_id, number)
    await runs.extend_run(run_id, 1, [RecordDecision(0, "m"), EndRun(RunStatus.TERMINAL, "1", "")])
    assert (statements.sent, statements.wrong) == (6, 0)
    with psycopg.connect(postgres_url) as database:
        effects = database.execute(
            "SELECT call_index, status FROM tape_effects ORDER BY 1"
        ).fetchall()
        assert effects == [(0, 2), (1, 2), (2, 2), (3, 2), (4, 1)]
        row = database.execute(
            "SELECT status, seq_cursor, outcome_json, lease_owner FROM tape_runs"
        ).fetchone()
        assert row == (4, 12, "1", "")
        seqs = database.execute("SELECT seq FROM tape_journal ORDER BY global_seq").fetchall()
        assert [seq for (seq,) in seqs] == list(range(1, 13))


async def test_a_new_run_and_its_first_writes_are_one_statement(
    buses: tuple[Bus, Bus], statements: Statements
) -> None:
    runs = buses[0].runs
    await begun(runs)  # tells the store's time
    new = NewRun(RunName("app", "", "", "2"))
    first = await runs.begin_run(new, ME, [BeginEffect(0, "tool", 0)])
    assert first.extended is not None
    assert (statements.sent, statements.wrong) == (1, 0)
    again = await buses[1].runs.begin_run(new, OTHER, [BeginEffect(0, "tool", 0)])
    assert (again.resumed, again.fencing_token, again.extended) == (True, 0, None)


async def test_what_another_process_wrote_is_seen(
    buses: tuple[Bus, Bus], statements: Statements
) -> None:
    runs, others = buses[0].runs, buses[1].runs
    run_id = await begun(runs)
    await take_step(runs, run_id, 0)
    await others.change_run(run_id, SendSignal("gate", "1"))
    extended = await take_step(runs, run_id, 1)
    assert extended.first_seq == 4
    assert statements.wrong == 1
    await take_step(runs, run_id, 2)
    assert statements.wrong == 1


async def test_a_takeover_elsewhere_makes_the_token_stale(buses: tuple[Bus, Bus]) -> None:
    runs, others = buses[0].runs, buses[1].runs
    run_id = await begun(runs)
    await take_step(runs, run_id, 0)
    await runs.heartbeat_run(run_id, 1, 1)
    taken = None
    while taken is None:
        try:
            taken = await others.resume_run(run_id, OTHER)
        except LeaseHeld:  # until the millisecond is over
            continue
    with pytest.raises(StaleLease):
        await take_step(runs, run_id, 1)
    await take_step(others, run_id, 1, token=2)


async def test_a_renewal_elsewhere_is_not_written_over(
    buses: tuple[Bus, Bus], statements: Statements
) -> None:
    runs, others = buses[0].runs, buses[1].runs
    run_id = await begun(runs)
    await take_step(runs, run_id, 0)
    renewed = await others.heartbeat_run(run_id, 1, 3_600_000)
    await take_step(runs, run_id, 1)
    assert statements.wrong == 1
    found = await runs.get_run(run_id)
    assert found is not None
    assert found.lease_expires_at_ms == renewed.lease_expires_at_ms


async def test_a_cancellation_elsewhere_is_seen(buses: tuple[Bus, Bus]) -> None:
    runs, others = buses[0].runs, buses[1].runs
    run_id = await begun(runs)
    await take_step(runs, run_id, 0)
    await others.change_run(run_id, CancelRun("enough"))
    with pytest.raises(RunCancelled, match="enough"):
        await take_step(runs, run_id, 1)


async def test_a_refusal_is_never_decided_on_memory(buses: tuple[Bus, Bus]) -> None:
    runs, others = buses[0].runs, buses[1].runs
    run_id = await begun(runs)
    await take_step(others, run_id, 0)
    await take_step(runs, run_id, 1)  # it remembers nothing of the effect
    with pytest.raises(NotFound):
        await runs.extend_run(run_id, 1, [CompleteEffect("none", EffectStatus.CONFIRMED)])


async def test_a_repeat_of_a_settled_effect_is_answered(
    buses: tuple[Bus, Bus], statements: Statements
) -> None:
    runs = buses[0].runs
    run_id = await begun(runs)
    await take_step(runs, run_id, 0)
    await take_step(runs, run_id, 1)
    extended = await runs.extend_run(run_id, 1, [BeginEffect(0, "tool", 0)])
    assert extended.replies[0].status == EffectStatus.CONFIRMED
    assert statements.wrong == 1


@pytest.mark.parametrize("by", ["a gate", "a signal", "an unknown run beside it"])
async def test_what_was_remembered_is_not_kept_through_a_look(
    buses: tuple[Bus, Bus], by: str
) -> None:
    """The run is read anew and remembered; its effects as they were before must not be."""
    one, two = (bus.runs for bus in buses)
    run_id = await begun(one)
    await one.extend_run(run_id, 1, [BeginEffect(0, "pay", 0)])
    key = f"{run_id}/decision-0/pay/0"
    paid = CompleteEffect(key, EffectStatus.CONFIRMED, '"paid"')
    await two.extend_run(run_id, 1, [paid])
    if by == "a gate":
        await one.extend_run(run_id, 1, [AwaitSignal("go")])
    elif by == "a signal":
        await one.change_run(run_id, SendSignal("go"))
    else:
        other = await begun(two, "2")
        await asyncio.gather(
            one.extend_run(run_id, 1, [RecordDecision(0, "model")]),
            one.extend_run(other, 1, [RecordDecision(0, "model")]),
        )
    doubt = CompleteEffect(key, EffectStatus.UNKNOWN, error_json='"timed out"')
    again = BeginEffect(0, "pay", 0)
    for write in (again, doubt):
        extended = await one.extend_run(run_id, 1, [write, RecordDecision(1, "model")])
        assert extended.replies[0].status == EffectStatus.CONFIRMED
    row = await one.get_effect(run_id, key)
    assert row is not None
    assert (row.status, row.response_json) == (EffectStatus.CONFIRMED, '"paid"')


async def test_what_is_large_or_many_is_not_remembered(
    buses: tuple[Bus, Bus], statements: Statements
) -> None:
    one, _two = (bus.runs for bus in buses)
    run_id = await begun(one)
    large = BeginEffect(0, "large", 0, request_json=f'"{"x" * guesses.MOST_BYTES}"')
    many = [BeginEffect(0, "small", n) for n in range(guesses.MOST_EFFECTS + 5)]
    await one.extend_run(run_id, 1, [large, *many])
    (known,) = buses[0]._store._turns._guesses._known.values()  # type: ignore[attr-defined]
    assert sorted(known.pending) == sorted(
        begin.key(run_id) for begin in many[: guesses.MOST_EFFECTS]
    )
    for begin in (large, *many):
        done = CompleteEffect(begin.key(run_id), EffectStatus.CONFIRMED)
        extended = await one.extend_run(run_id, 1, [done])
        assert extended.replies[0].status == EffectStatus.CONFIRMED


async def test_a_run_that_is_only_looked_at_is_proven_too(
    buses: tuple[Bus, Bus], statements: Statements
) -> None:
    runs, others = buses[0].runs, buses[1].runs
    parent = await begun(runs)

    async def begin_child(name: str) -> str:
        new = NewRun(RunName("app", "", "", name), parent_run_id=parent, parent_fencing_token=1)
        return (await runs.begin_run(new, ME)).run.parent_run_id

    assert await begin_child("2") == parent
    assert (statements.sent, statements.wrong) == (1, 0)
    await others.change_run(parent, CancelRun("enough"))
    with pytest.raises(RunCancelled, match="enough"):
        await begin_child("3")
    assert statements.wrong == 1


async def test_many_runs_are_written_for_in_one_statement(
    buses: tuple[Bus, Bus], statements: Statements
) -> None:
    runs = buses[0].runs
    run_ids = [await begun(runs, str(number)) for number in range(20)]
    before = statements.sent
    for number in range(3):
        await asyncio.gather(*(take_step(runs, run_id, number) for run_id in run_ids))
    assert statements.sent - before < len(run_ids)
    assert statements.wrong == 0
    for run_id in run_ids:
        found = await runs.get_run(run_id)
        assert found is not None
        assert found.seq_cursor == 6
        effect = await runs.get_effect(run_id, f"{run_id}/decision-0/tool/1")
        assert effect is not None
        assert (effect.call_index, effect.status) == (1, EffectStatus.CONFIRMED)
