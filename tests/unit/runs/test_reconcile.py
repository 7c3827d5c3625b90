"""The reconciler: it looks what became of an effect, and never does it."""

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tape.errors import AckLost, GiveUp, InvalidArgument
from tape.model.effect import BeginEffect, EffectStatus
from tape.model.effect_claim import STUCK_PAUSE_MS, RecordExternalObservation
from tape.model.lease import NewRun, Taker
from tape.model.obligation import ObligationStatus
from tape.model.run import Run, RunName, RunStatus
from tape.runs.ambient import idempotency_key
from tape.runs.boundary import set_boundary_hook
from tape.runs.declare import App, Observed, RetryPolicy, app, effect
from tape.runs.driving.context import Context
from tape.telemetry import metrics
from tests.unit.runs.durable import TTL_S, World, settle

PENDING, CONFIRMED, FAILED, UNKNOWN = EffectStatus
FEW = RetryPolicy(attempts=4, first_s=100.0, most_s=1000.0)


class Counterparty:
    """Acts, loses its first acknowledgements, and tells of its acts when it is asked."""

    def __init__(self, says: Observed | BaseException | None = None) -> None:
        self.keys: list[str] = []
        self.asked: list[tuple[str, Any]] = []
        self.says: Any = says or Observed("confirmed", {"id": 1}, external_ref="wire-1")
        self.lost = 1
        self.undone: list[str] = []

    async def act(self, cents: int) -> Any:
        self.keys.append(idempotency_key())
        if len(self.keys) <= self.lost:
            raise AckLost("the line went dead")
        return {"cents": cents}

    async def check(self, key: str, request: Any) -> Any:
        self.asked.append((key, request))
        if isinstance(self.says, BaseException):
            raise self.says
        return self.says

    async def undo(self, key: str) -> None:
        self.undone.append(f"undo {key}")

    async def undo_second(self, key: str) -> None:
        self.undone.append(f"undo second {key}")


def paying(
    world: World,
    there: Counterparty,
    *,
    check: Callable[..., Any] | None = None,
    inline: bool = False,
    **options: Any,
) -> App[Any]:
    @effect(
        semantics="idempotent" if inline else "non_idempotent",
        dispatch="inline" if inline else "outbox",
        check=check or there.check,
        registry=world.apps,
        **options,
    )
    async def pay(cents: int) -> Any:
        return await there.act(cents)

    return calling(world, pay)


def calling(world: World, pay: Any) -> App[Any]:
    @app("payer", registry=world.apps)
    async def payer(ctx: Context) -> Any:
        return await ctx.call(pay, 5)

    return payer


async def in_doubt(world: World, payer: App[Any]) -> Run:
    """A run whose payment may have been made or not."""
    run = await world.begin(payer)
    await settle(world.outbox())
    assert await world.effect_status(run, "pay") is UNKNOWN
    return run


async def test_a_lost_acknowledgement_is_found(world: World) -> None:
    there = Counterparty()
    run = await in_doubt(world, paying(world, there, compensate=there.undo))
    assert await settle(world.reconciler(), world.outbox()) == 1
    row = await world.effect(run, "pay")
    assert there.asked == [(row.idempotency_key, {"args": [5], "kwargs": {}})]
    assert (row.status, row.response_json, row.external_ref) == (CONFIRMED, '{"id":1}', "wire-1")
    assert await world.obligations(run) == {"undo": ObligationStatus.PENDING}
    await world.drive()
    assert (await world.run(run.run_id)).outcome_json == '{"id":1}'
    assert len(there.keys) == 1


async def test_a_check_that_is_not_asynchronous_is_asked_in_a_thread(world: World) -> None:
    seen: list[threading.Thread] = []

    def check(_key: str, _request: Any) -> Observed:
        seen.append(threading.current_thread())
        return Observed("confirmed")

    run = await in_doubt(world, paying(world, Counterparty(), check=check))
    await settle(world.reconciler())
    assert await world.effect_status(run, "pay") is CONFIRMED
    assert seen[0] is not threading.current_thread()


async def test_what_certainly_was_not_done_is_done_now(world: World) -> None:
    there = Counterparty(Observed("absent"))
    run = await in_doubt(world, paying(world, there))
    await settle(world.reconciler(), world.outbox())
    assert await world.effect_status(run, "pay") is CONFIRMED
    assert there.keys == 2 * [(await world.effect(run, "pay")).idempotency_key]
    assert len(there.asked) == 1


async def test_an_inline_effect_that_was_not_done_is_done_by_its_run(world: World) -> None:
    there = Counterparty(Observed("absent"))
    run = await in_doubt(world, paying(world, there, inline=True))
    assert await settle(world.outbox(), world.reconciler()) == 1
    await world.drive()
    assert await world.status(run) is RunStatus.TERMINAL
    assert there.keys == 2 * [(await world.effect(run, "pay")).idempotency_key]


@pytest.mark.parametrize(
    ("said", "recorded"), [(None, "its check says"), ({"code": 51}, '"code":51')]
)
async def test_what_failed_fails_the_step(world: World, said: Any, recorded: str) -> None:
    there = Counterparty(Observed("failed", error=said))
    run = await in_doubt(world, paying(world, there, compensate=there.undo))
    await settle(world.reconciler())
    row = await world.effect(run, "pay")
    assert row.status == FAILED
    assert recorded in row.error_json
    assert not await world.obligations(run)
    await world.drive()
    assert await world.status(run) is RunStatus.FAILED
    assert len(there.keys) == 1


async def test_what_was_done_twice_is_undone_once_though_its_run_succeeds(world: World) -> None:
    there = Counterparty(Observed("duplicate", {"id": 1}))
    payer = paying(world, there, compensate=there.undo, undo_duplicate=there.undo_second)
    run = await in_doubt(world, payer)
    await settle(world.reconciler())
    assert await world.obligations(run) == {
        "duplicate:undo_second": ObligationStatus.PENDING,
        "undo": ObligationStatus.PENDING,
    }
    await settle(world.compensation("a"), world.compensation("b"))
    await world.drive()
    assert await world.status(run) is RunStatus.TERMINAL
    key = (await world.effect(run, "pay")).idempotency_key
    assert there.undone == [f"undo second {key}"]
    assert (await world.obligations(run))["undo"] is ObligationStatus.PENDING


async def test_the_duplicate_is_found_and_registered_in_one_transaction(world: World) -> None:
    there = Counterparty(Observed("duplicate"))
    payer = paying(world, there, compensate=there.undo, undo_duplicate=there.undo_second)
    run = await in_doubt(world, payer)
    watched = world.watched()
    await settle(world.reconciler(runs=watched))
    assert watched.counts() == {"ClaimEffect": 1, "RecordExternalObservation": 1}
    entries = await world.runs.read_run(run.run_id, 0)
    verbs = await world.verbs(run)
    first = verbs.index("effect reconciled")
    written = ["effect reconciled", "run runnable", *2 * ["obligation registered"]]
    assert verbs[first : first + 4] == written
    places = [entry.global_seq for entry in entries[first : first + 4]]
    assert places == list(range(places[0], places[0] + 4))


async def test_a_duplicate_that_nothing_undoes_is_loud(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    there = Counterparty(Observed("duplicate"))
    run = await in_doubt(world, paying(world, there))
    await settle(world.reconciler())
    assert "happened more than once" in caplog.text
    assert await world.effect_status(run, "pay") is CONFIRMED


async def test_without_a_check_it_stays_unknown_and_is_told_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    there = Counterparty()

    @effect(dispatch="outbox", registry=world.apps)
    async def pay(cents: int) -> Any:
        return await there.act(cents)

    run = await in_doubt(world, calling(world, pay))
    watched = world.watched()
    reconciler = world.reconciler(runs=watched, sweep_every_s=0.0)
    for _ in range(3):
        world.clock.pass_s(3600)
        assert await settle(reconciler, world.outbox()) == 0
    assert metrics.EFFECTS_UNCHECKED.value == 1
    told = [record for record in caplog.records if "has no check" in record.message]
    assert [record.levelno for record in told] == [logging.ERROR]
    assert not watched.writes
    assert await world.effect_status(run, "pay") is UNKNOWN
    assert len(there.keys) == 1


async def test_a_check_that_cannot_tell_is_asked_later_and_later(world: World) -> None:
    there = Counterparty(ConnectionError("away"))
    run = await in_doubt(world, paying(world, there))
    for asked, pause_s in enumerate((100.0, 200.0, 400.0), 1):
        reconciler = world.reconciler("ab"[asked % 2], checks=FEW)
        assert await settle(reconciler) == 1
        assert len(there.asked) == asked
        due = await reconciler.due_in_s()
        assert due is not None
        assert pause_s - 50 < due <= pause_s + 0.01
        world.clock.pass_s(pause_s - 0.1)
        assert await settle(reconciler) == 0
        world.clock.pass_s(50)
    there.says = Observed("confirmed")
    await settle(world.reconciler(checks=FEW))
    assert await world.effect_status(run, "pay") is CONFIRMED
    assert len(there.keys) == 1


async def stuck_for_its_check(world: World, there: Counterparty) -> Run:
    run = await in_doubt(world, paying(world, there))
    reconciler = world.reconciler(checks=FEW)
    for _ in range(FEW.attempts):
        assert await settle(reconciler) == 1
        world.clock.pass_s(500)
    return run


async def test_a_check_that_never_can_tell_makes_the_run_stuck(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    stuck = metrics.RUNS_ENDED.labels("stuck").value
    run = await stuck_for_its_check(world, Counterparty(ConnectionError("away")))
    assert await world.status(run) is RunStatus.STUCK
    assert "ConnectionError" in (await world.run(run.run_id)).outcome_json
    assert await world.effect_status(run, "pay") is UNKNOWN
    assert [r.levelname for r in caplog.records if "its check cannot tell" in r.message] == [
        "ERROR"
    ]
    assert metrics.RUNS_ENDED.labels("stuck").value == stuck + 1


async def test_a_stuck_run_goes_on_when_it_is_put_back_and_the_check_can_tell(
    world: World,
) -> None:
    there = Counterparty(ConnectionError("away"))
    run = await stuck_for_its_check(world, there)
    reconciler = world.reconciler(checks=FEW)
    assert await settle(reconciler) == 0  # for a while
    there.says = Observed("confirmed", "found")
    await world.runs.resume_run(run.run_id)
    await world.drive()
    world.clock.pass_s(STUCK_PAUSE_MS / 1000)
    assert await settle(reconciler) == 1
    await world.drive()
    assert (await world.run(run.run_id)).outcome_json == '"found"'
    assert len(there.keys) == 1


async def test_one_that_is_stuck_may_be_looked_at_as_often_again(world: World) -> None:
    there = Counterparty(ConnectionError("away"))
    run = await stuck_for_its_check(world, there)
    await world.runs.resume_run(run.run_id)
    await world.drive()
    world.clock.pass_s(STUCK_PAUSE_MS / 1000)
    await settle(world.reconciler(checks=FEW))
    assert await world.status(run) is RunStatus.WAITING


@pytest.mark.parametrize("says", [Observed("stuck", error="two halves"), GiveUp("no such desk")])
async def test_a_check_can_say_that_somebody_must_look(
    world: World, says: Observed | Exception, caplog: pytest.LogCaptureFixture
) -> None:
    run = await in_doubt(world, paying(world, Counterparty(says)))
    await settle(world.reconciler())
    assert await world.status(run) is RunStatus.STUCK
    assert "ERROR" in {record.levelname for record in caplog.records}


@pytest.mark.parametrize(
    ("says", "words"),
    [
        ("confirmed", "not tape.Observed"),
        (Observed("perhaps"), "'perhaps' is not one of"),
        (Observed("confirmed", object()), "cannot be written as JSON"),
        (Observed("confirmed", external_ref="x" * 10_000), "external_ref"),
        (SystemExit(3), "SystemExit(3)"),
        (KeyboardInterrupt(), "KeyboardInterrupt()"),
        (asyncio.CancelledError(), "CancelledError()"),
    ],
)
async def test_what_makes_no_sense_counts_as_no_answer(world: World, says: Any, words: str) -> None:
    run = await in_doubt(world, paying(world, Counterparty(says)))
    await settle(world.reconciler())
    row = await world.effect(run, "pay")
    assert row.status == UNKNOWN
    assert words in row.last_dispatch_error
    assert row.next_dispatch_at_ms > world.clock()


async def test_an_observation_that_the_store_refuses_counts_as_no_answer(world: World) -> None:
    run = await in_doubt(world, paying(world, Counterparty()))
    watched = world.watched()
    watched.refusals[RecordExternalObservation] = [InvalidArgument("too large")]
    await settle(world.reconciler(runs=watched))
    assert "too large" in (await world.effect(run, "pay")).last_dispatch_error


async def test_many_that_race_look_once(world: World) -> None:
    there = Counterparty()
    there.lost = 10
    payer = paying(world, there)
    runs = [await in_doubt(world, payer) for _ in range(10)]
    reconcilers = [world.reconciler(owner) for owner in "abcd"]
    assert sum(await asyncio.gather(*(each.once() for each in reconcilers))) == 10
    await settle(*reconcilers)
    assert len({key for key, _ in there.asked}) == len(there.asked) == 10
    assert {await world.effect_status(run, "pay") for run in runs} == {CONFIRMED}


async def test_a_look_that_was_cut_off_is_taken_again_when_its_claim_ran_out(
    world: World,
) -> None:
    asked = asyncio.Event()

    async def check(_key: str, _request: Any) -> Observed:
        if asked.is_set():
            return Observed("confirmed")
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    run = await in_doubt(world, paying(world, Counterparty(), check=check))
    cut_off, successor = world.reconciler("a"), world.reconciler("b")
    await cut_off.once()
    await asked.wait()
    await cut_off.drain(0)
    assert await settle(successor) == 0
    world.clock.pass_s(TTL_S)
    assert await settle(successor) == 1
    assert await world.effect_status(run, "pay") is CONFIRMED


async def test_what_is_found_after_the_end_is_compensated(world: World) -> None:
    there = Counterparty()
    run = await in_doubt(world, paying(world, there, compensate=there.undo))
    await world.cancel(run)
    assert await world.status(run) is RunStatus.CANCELLED
    await settle(world.reconciler(), world.compensation())
    assert await world.status(run) is RunStatus.CANCELLED
    assert await world.obligations(run) == {"undo": ObligationStatus.COMPENSATED}
    assert len(there.undone) == 1


async def test_each_write_and_look_is_between_two_boundaries(world: World) -> None:
    await in_doubt(world, paying(world, Counterparty()))
    places: list[str] = []
    set_boundary_hook(places.append)
    try:
        await settle(world.reconciler())
    finally:
        set_boundary_hook(None)
    steps = ("ClaimEffect", "check pay", "RecordExternalObservation")
    assert places == [f"{side} {step}" for step in steps for side in ("before", "after")]


async def in_the_hands_of_a_driver(world: World, ttl_s: float = TTL_S) -> Run:
    """A run whose driver was last heard of when it was about to pay."""
    begun = await world.runs.begin_run(
        NewRun(RunName("payer", "", "", "1")), Taker("gone", "agent", round(1000 * ttl_s))
    )
    begin = BeginEffect(0, "pay", 0, '{"args":[5],"kwargs":{}}')
    await world.runs.extend_run(begun.run.run_id, begun.fencing_token, [begin])
    return begun.run


async def test_what_a_driver_had_in_hand_when_its_run_was_ended_is_looked_for(
    world: World,
) -> None:
    there = Counterparty()
    paying(world, there, inline=True, compensate=there.undo)
    run = await in_the_hands_of_a_driver(world)
    world.clock.pass_s(TTL_S)
    await world.cancel(run)
    assert await world.status(run) is RunStatus.CANCELLED
    await settle(world.reconciler("a"), world.reconciler("b"), world.compensation())
    assert len(there.asked) == 1
    assert await world.effect_status(run, "pay") is CONFIRMED
    assert await world.obligations(run) == {"undo": ObligationStatus.COMPENSATED}
    assert not there.keys


async def test_what_was_begun_just_now_may_still_be_on_its_way(world: World) -> None:
    there = Counterparty()
    paying(world, there, inline=True)
    run = await in_the_hands_of_a_driver(world, 1.0)
    world.clock.pass_s(TTL_S - 1)
    await world.cancel(run)
    reconciler = world.reconciler(sweep_every_s=0.0)
    assert await settle(reconciler) == 0
    assert await world.effect_status(run, "pay") is PENDING
    world.clock.pass_s(1)
    assert await settle(reconciler) == 1
    assert await world.effect_status(run, "pay") is CONFIRMED


async def test_what_a_driver_has_in_hand_is_its_own(world: World) -> None:
    there, watched = Counterparty(), world.watched()
    paying(world, there, inline=True)
    run = await in_the_hands_of_a_driver(world)
    world.clock.pass_s(3600)
    assert await settle(world.reconciler(runs=watched)) == 0
    assert await world.effect_status(run, "pay") is PENDING
    assert not watched.writes


async def test_what_nobody_can_look_for_is_told_of(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    @effect(registry=world.apps)
    async def pay(_cents: int) -> None: ...

    run = await in_the_hands_of_a_driver(world)
    world.clock.pass_s(TTL_S)
    await world.cancel(run)
    reconcilers = [world.reconciler(owner, sweep_every_s=0.0) for owner in "abcd"]
    await asyncio.gather(*(each.once() for each in reconcilers))
    await settle(*reconcilers)
    row = await world.effect(run, "pay")
    assert (row.status, row.dispatch_claimed_by) == (UNKNOWN, "")
    assert "has no check" in caplog.text
