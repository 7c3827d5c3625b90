"""The outbox: what is left there is done once, and what is in doubt is not done again."""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tape.errors import AckLost, GiveUp, InvalidArgument, StaleLease, StoreFailed, StoreUnavailable
from tape.model.effect import BeginEffect, DispatchMode, EffectStatus, Semantics
from tape.model.effect_claim import (
    ClaimEffect,
    RecordDispatchAttempt,
    RecordExternalObservation,
    RenewClaim,
    Resolution,
)
from tape.model.lease import NewRun, Taker
from tape.model.run import Run, RunName, RunStatus
from tape.model.run_end import EndRun
from tape.runs.ambient import idempotency_key
from tape.runs.boundary import set_boundary_hook
from tape.runs.declare import App, DeclaredEffect, RetryPolicy, app, effect
from tape.runs.driving.context import Context
from tape.runs.reactors import claimed_work
from tape.settings import ReactorSettings
from tests.unit.runs.durable import TTL_S, World, settle

THRICE = RetryPolicy(attempts=3, first_s=100.0, most_s=1000.0)
PENDING, CONFIRMED, FAILED, UNKNOWN = EffectStatus


class Bank:
    """Counts what it is asked to do, and does as it is told."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.seen: list[Any] = []
        self.then: Callable[[], Any] = lambda: {"id": len(self.keys)}

    def act(self, *given: Any) -> Any:
        self.keys.append(idempotency_key())
        self.seen.append(given)
        return self.then()


def raising(error: Exception) -> Callable[[], Any]:
    def then() -> Any:
        raise error

    return then


def paying(
    world: World,
    bank: Bank,
    *,
    semantics: str = "non_idempotent",
    retry: RetryPolicy = THRICE,
    **options: Any,
) -> App[Any]:
    """An app that pays once, through the outbox."""

    @effect(
        semantics=semantics,
        dispatch="outbox",
        retry=retry,
        check=lambda _key, _request: None,
        registry=world.apps,
        **options,
    )
    async def pay(cents: int, *, to: str = "") -> Any:
        result = bank.act(cents, to)
        return await result if asyncio.iscoroutine(result) else result

    return calling(world, pay)


def calling(world: World, pay: DeclaredEffect[..., Any]) -> App[Any]:
    @app("payer", registry=world.apps)
    async def payer(ctx: Context) -> Any:
        return await ctx.call(pay, 5, to="bob")

    return payer


class Slow:
    """An act that goes on until it is let go."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.go = asyncio.Event()
        self._cancelled = False

    async def __call__(self) -> str:
        self.begun.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self._cancelled = True
            raise
        return "slow"

    def was_cancelled(self) -> bool:
        return self._cancelled


async def test_an_effect_is_done_and_its_run_goes_on(world: World) -> None:
    bank = Bank()
    run = await world.begin(paying(world, bank, compensate=lambda response: response))
    assert await world.status(run) is RunStatus.WAITING
    assert not bank.keys
    assert await settle(world.outbox()) == 1
    row = await world.effect(run, "pay")
    assert (row.status, row.response_json) == (CONFIRMED, '{"id":1}')
    assert bank.keys == [row.idempotency_key]
    assert bank.seen == [(5, "bob")]
    assert list(await world.obligations(run)) == ["<lambda>"]
    await world.drive()
    assert (await world.run(run.run_id)).outcome_json == '{"id":1}'
    assert len(bank.keys) == 1


async def test_an_effect_that_is_not_asynchronous_is_done_in_a_thread(world: World) -> None:
    seen: list[Any] = []

    @effect(dispatch="outbox", registry=world.apps)
    def pay(cents: int, *, to: str) -> str:
        seen.append((cents, to, idempotency_key(), threading.current_thread()))
        return "paid"

    run = await world.begin(calling(world, pay))
    await settle(world.outbox())
    row = await world.effect(run, "pay")
    assert row.status == CONFIRMED
    assert seen[0][:3] == (5, "bob", row.idempotency_key)
    assert seen[0][3] is not threading.current_thread()


@pytest.mark.parametrize("semantics", ["non_idempotent", "idempotent"])
async def test_a_lost_acknowledgement_is_never_answered_by_doing_it_again(
    world: World, semantics: str
) -> None:
    bank = Bank()
    bank.then = raising(AckLost("the line went dead"))
    run = await world.begin(paying(world, bank, semantics=semantics))
    outbox = world.outbox()
    await settle(outbox)
    assert await world.effect_status(run, "pay") is UNKNOWN
    for _ in range(3):
        world.clock.pass_s(3600)
        assert await settle(outbox, world.outbox("b")) == 0
    assert len(bank.keys) == 1
    assert await world.status(run) is RunStatus.WAITING


async def test_whatever_a_once_only_act_raises_leaves_it_in_doubt(world: World) -> None:
    bank = Bank()
    bank.then = raising(ValueError("what \0 now \udcff"))
    run = await world.begin(paying(world, bank))
    await settle(world.outbox())
    row = await world.effect(run, "pay")
    assert row.status == UNKNOWN
    assert row.last_dispatch_error == "ValueError: what \ufffd now ?"
    assert len(bank.keys) == 1


async def test_an_act_that_gives_up_has_certainly_failed(world: World) -> None:
    bank = Bank()
    bank.then = raising(GiveUp("no such account \udcff"))
    run = await world.begin(paying(world, bank))
    await settle(world.outbox())
    assert await world.effect_status(run, "pay") is FAILED
    await world.drive()
    ended = await world.run(run.run_id)
    assert ended.status == RunStatus.FAILED
    assert "no such account" in ended.outcome_json
    assert len(bank.keys) == 1


async def test_an_idempotent_act_is_tried_again_under_its_key_when_its_pause_is_over(
    world: World,
) -> None:
    bank = Bank()
    bank.then = raising(ConnectionError("away"))
    run = await world.begin(paying(world, bank, semantics="idempotent"))
    for attempt, pause_s in enumerate((100.0, 200.0), 1):
        outbox = world.outbox()
        assert await outbox.due_in_s() is None
        assert await settle(outbox) == 1
        row = await world.effect(run, "pay")
        assert (row.status, row.dispatch_attempts) == (PENDING, attempt)
        due = await outbox.due_in_s()
        assert due is not None
        assert pause_s - 50 < due <= pause_s + 0.01
        world.clock.pass_s(pause_s - 0.1)
        assert await settle(outbox) == 0
        world.clock.pass_s(50)
    assert await settle(outbox) == 1
    assert await world.effect_status(run, "pay") is FAILED
    assert bank.keys == 3 * [(await world.effect(run, "pay")).idempotency_key]
    world.clock.pass_s(3600)
    assert await settle(outbox) == 0


async def test_an_idempotent_act_may_succeed_at_last(world: World) -> None:
    bank = Bank()
    bank.then = raising(ConnectionError("away"))
    run = await world.begin(paying(world, bank, semantics="idempotent"))
    outbox = world.outbox()
    await settle(outbox)
    bank.then = lambda: "paid"
    world.clock.pass_s(150)
    await settle(outbox)
    row = await world.effect(run, "pay")
    assert (row.status, row.response_json) == (CONFIRMED, '"paid"')
    assert len(bank.keys) == 2


async def test_a_once_only_act_that_was_cut_off_is_in_doubt_and_not_done_again(
    world: World,
) -> None:
    bank, slow = Bank(), Slow()
    bank.then = slow
    run = await world.begin(paying(world, bank))
    cut_off = world.outbox("a")
    assert await cut_off.once() == 1
    await slow.begun.wait()
    await cut_off.drain(0)
    assert slow.was_cancelled()
    successor = world.outbox("b")
    world.clock.pass_s(TTL_S - 1)
    assert await settle(successor) == 0
    assert await world.effect_status(run, "pay") is PENDING
    world.clock.pass_s(1)
    assert await settle(successor) == 0
    assert await world.effect_status(run, "pay") is UNKNOWN
    assert len(bank.keys) == 1


async def test_an_idempotent_act_that_was_cut_off_is_done_again_under_its_key(
    world: World,
) -> None:
    bank, slow = Bank(), Slow()
    bank.then = slow
    run = await world.begin(paying(world, bank, semantics="idempotent"))
    cut_off = world.outbox("a")
    await cut_off.once()
    await slow.begun.wait()
    await cut_off.drain(0)
    world.clock.pass_s(TTL_S)
    bank.then = lambda: "paid"
    assert await settle(world.outbox("b")) == 1
    assert await world.effect_status(run, "pay") is CONFIRMED
    assert bank.keys == 2 * [(await world.effect(run, "pay")).idempotency_key]


async def test_a_claimer_that_was_taken_over_is_refused(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    bank, slow = Bank(), Slow()
    bank.then = slow
    run = await world.begin(paying(world, bank, semantics="idempotent"))
    stale, watched = world.outbox("a"), world.watched()
    await stale.once()
    await slow.begun.wait()
    world.clock.pass_s(TTL_S)
    bank.then = lambda: "paid"
    await settle(world.outbox("b", runs=watched))
    slow.go.set()
    with caplog.at_level(logging.WARNING):
        await stale.settled()
    assert "is left to other workers" in caplog.text
    row = await world.effect(run, "pay")
    assert (row.status, row.response_json) == (CONFIRMED, '"paid"')
    old = RecordExternalObservation(row.idempotency_key, 1, Resolution.FAILED)
    with pytest.raises(StaleLease):
        await world.runs.change_run(run.run_id, old)


async def test_many_that_race_do_each_once(world: World) -> None:
    bank = Bank()
    payer = paying(world, bank)
    runs = [await world.begin(payer) for _ in range(20)]
    outboxes = [world.outbox(owner) for owner in "abcd"]
    taken = await asyncio.gather(*(outbox.once() for outbox in outboxes))
    assert sum(taken) == 20
    await settle(*outboxes)
    assert len(set(bank.keys)) == len(bank.keys) == 20
    assert {await world.effect_status(run, "pay") for run in runs} == {CONFIRMED}


async def test_a_slow_one_holds_nobody_up(world: World) -> None:
    bank, slow = Bank(), Slow()
    payer = paying(world, bank)
    bank.then = slow
    first = await world.begin(payer)
    watched = world.watched()
    outbox = world.outbox(runs=watched)
    await outbox.once()
    await slow.begun.wait()
    bank.then = lambda: "paid"
    second = await world.begin(payer)
    assert await outbox.once() == 1
    await watched.seen(RecordExternalObservation).wait()
    assert await world.effect_status(second, "pay") is CONFIRMED
    assert await world.effect_status(first, "pay") is PENDING
    slow.go.set()
    await outbox.settled()
    assert await world.effect_status(first, "pay") is CONFIRMED


async def test_no_more_are_taken_than_can_be_held(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claimed_work, "MOST", 2)
    monkeypatch.setattr(claimed_work, "FULL_S", 0.0)
    bank, slow = Bank(), Slow()
    bank.then = slow
    payer = paying(world, bank)
    for _ in range(3):
        await world.begin(payer)
    outbox = world.outbox()
    assert await outbox.once() == 2
    assert await outbox.once() == 0
    assert len(bank.keys) <= 2
    slow.go.set()
    await outbox.settled()
    assert await settle(outbox) == 1
    assert len(bank.keys) == 3


async def test_a_claim_is_renewed_while_the_act_goes_on(world: World) -> None:
    bank, slow, watched = Bank(), Slow(), world.watched()
    bank.then = slow
    run = await world.begin(paying(world, bank))
    short = ReactorSettings(lease_ttl_s=TTL_S, heartbeat_s=0.01)
    outbox = world.outbox("a", short, watched)
    await outbox.once()
    await slow.begun.wait()
    for _ in range(3):
        world.clock.pass_s(TTL_S - 1)
        renewed = watched.seen(RenewClaim)
        renewed.clear()
        await renewed.wait()
    assert await settle(world.outbox("b")) == 0
    slow.go.set()
    await outbox.settled()
    assert await world.effect_status(run, "pay") is CONFIRMED
    assert len(bank.keys) == 1


async def test_an_act_whose_claim_is_lost_is_given_up(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    bank, slow, watched = Bank(), Slow(), world.watched()
    bank.then = slow
    run = await world.begin(paying(world, bank))
    outbox = world.outbox("a", ReactorSettings(lease_ttl_s=TTL_S, heartbeat_s=0.01), watched)
    watched.refusals[RenewClaim] = [StoreUnavailable("away")]
    await outbox.once()
    await slow.begun.wait()
    await watched.seen(RenewClaim).wait()
    assert not slow.was_cancelled()  # there is time to try again
    watched.refusals[RenewClaim] = [StaleLease("another has it")]
    with caplog.at_level(logging.WARNING):
        await outbox.settled()
    assert "another has it" in caplog.text
    assert slow.was_cancelled()
    assert await world.effect_status(run, "pay") is PENDING


async def test_a_claim_that_cannot_be_renewed_in_time_is_lost(world: World) -> None:
    bank, slow, watched = Bank(), Slow(), world.watched()
    bank.then = slow
    await world.begin(paying(world, bank))
    # Long enough for the act to begin on busy cores.
    outbox = world.outbox("a", ReactorSettings(lease_ttl_s=2.0, heartbeat_s=0.1), watched)
    watched.refusals[RenewClaim] = [StoreUnavailable("away") for _ in range(100)]
    await outbox.once()
    await outbox.settled()
    assert slow.was_cancelled()


async def test_what_was_done_is_written_as_soon_as_the_store_is_back(world: World) -> None:
    bank, watched = Bank(), world.watched()
    run = await world.begin(paying(world, bank))
    watched.refusals[RecordExternalObservation] = [
        StoreUnavailable("away"),
        StoreUnavailable("still away"),
    ]
    await settle(world.outbox(runs=watched))
    assert await world.effect_status(run, "pay") is CONFIRMED
    assert watched.counts()["RecordExternalObservation"] == 3
    assert len(bank.keys) == 1


async def test_a_claim_that_fails_leaves_the_others_to_be_done(world: World) -> None:
    bank, watched = Bank(), world.watched()
    payer = paying(world, bank)
    for _ in range(3):
        await world.begin(payer)
    watched.refusals[ClaimEffect] = [StoreUnavailable("away")]
    outbox = world.outbox(runs=watched)
    with pytest.raises(StoreUnavailable):
        await outbox.once()
    await outbox.settled()
    assert len(bank.keys) == 2
    await settle(outbox)
    assert len(bank.keys) == 3


@pytest.mark.parametrize("result", [object(), float("nan")])
async def test_a_result_that_cannot_be_written_down_leaves_doubt(
    world: World, result: object
) -> None:
    bank = Bank()
    bank.then = lambda: result
    run = await world.begin(paying(world, bank, semantics="idempotent"))
    await settle(world.outbox())
    row = await world.effect(run, "pay")
    assert row.status == UNKNOWN
    assert "result of pay" in row.last_dispatch_error


@pytest.mark.parametrize("error", [InvalidArgument("too large"), StoreFailed("no")])
async def test_a_result_that_the_store_refuses_leaves_doubt(world: World, error: Exception) -> None:
    bank, watched = Bank(), world.watched()
    run = await world.begin(paying(world, bank, semantics="idempotent"))
    watched.refusals[RecordExternalObservation] = [error]
    await settle(world.outbox(runs=watched))
    assert await world.effect_status(run, "pay") is UNKNOWN
    assert len(bank.keys) == 1


@pytest.mark.parametrize("on_the_loop", [True, False])
@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
async def test_what_would_end_a_process_fails_the_act_and_nothing_else(
    world: World, error: BaseException, on_the_loop: bool
) -> None:
    async def waited(_cents: int, *, to: str) -> None:
        raise error

    def plain(_cents: int, *, to: str) -> None:
        raise error

    body = waited if on_the_loop else plain
    pay = effect(name="pay", dispatch="outbox", registry=world.apps)(body)
    run = await world.begin(calling(world, pay))
    await settle(world.outbox())
    row = await world.effect(run, "pay")
    assert row.status == FAILED
    assert type(error).__name__ in row.error_json


async def test_a_body_that_runs_out_of_something_does_not_hang(world: World) -> None:
    nothing: Iterator[str] = iter(())

    @effect(dispatch="outbox", registry=world.apps)
    def pay(_cents: int, *, to: str) -> str:
        return next(nothing)

    run = await world.begin(calling(world, pay))
    await settle(world.outbox())
    row = await world.effect(run, "pay")
    assert row.status == FAILED
    assert "StopIteration" in row.error_json


@pytest.mark.parametrize(
    "request_json",
    ['{"args":[5],"kwargs":{"whom":"bob"}}', '{"args":[]}', '{"args":5,"kwargs":{}}', '"five"'],
)
async def test_what_could_not_even_begin_has_failed(world: World, request_json: str) -> None:
    """Somebody else's request, or one of another version of this effect."""
    bank = Bank()
    paying(world, bank)
    run = await begun_elsewhere(world, "pay", request_json)
    await settle(world.outbox())
    row = await world.effect(run, "pay")
    assert row.status == FAILED
    assert "started with" in row.error_json
    assert not bank.keys


async def begun_elsewhere(world: World, tool: str, request_json: str, connector: str = "") -> Run:
    new = NewRun(RunName("other", "", "", "1"))
    begun = await world.runs.begin_run(new, Taker("elsewhere", "agent", 30_000))
    write = BeginEffect(
        0,
        tool,
        0,
        request_json,
        semantics=Semantics.NON_IDEMPOTENT,
        dispatch_mode=DispatchMode.OUTBOX,
        connector=connector,
    )
    await world.runs.extend_run(begun.run.run_id, begun.fencing_token, [write])
    return begun.run


async def test_effects_of_others_are_left_to_them(world: World) -> None:
    outbox = world.outbox()
    assert await outbox.once() == 0
    bank = Bank()
    paying(world, bank, connector="bank")
    run = await begun_elsewhere(world, "transfer", "{}", connector="bank")
    assert await settle(outbox) == 0
    assert await world.effect_status(run, "transfer") is PENDING


async def test_what_an_ended_run_left_behind_is_not_done(world: World) -> None:
    bank = Bank()
    run = await world.begin(paying(world, bank))
    await world.cancel(run)
    assert await settle(world.outbox()) == 0
    assert await world.effect_status(run, "pay") is FAILED
    assert not bank.keys


async def test_each_write_and_act_is_between_two_boundaries(world: World) -> None:
    bank = Bank()
    await world.begin(paying(world, bank))
    places: list[str] = []
    set_boundary_hook(places.append)
    try:
        await settle(world.outbox())
    finally:
        set_boundary_hook(None)
    steps = ("ClaimEffect", "act pay", "RecordExternalObservation")
    assert places == [f"{side} {step}" for step in steps for side in ("before", "after")]


async def test_an_attempt_that_is_written_again_is_written_once(world: World) -> None:
    """The store may have taken it and the answer have been lost."""
    bank, watched = Bank(), world.watched()
    bank.then = raising(AckLost())
    run = await world.begin(paying(world, bank))
    await settle(world.outbox(runs=watched))
    (attempt,) = [write for write in watched.writes if isinstance(write, RecordDispatchAttempt)]
    assert (await world.runs.change_run(run.run_id, attempt)).status == UNKNOWN
    assert (await world.verbs(run)).count("effect unknown") == 1


@pytest.mark.parametrize(
    ("error", "status"), [(ConnectionError("away"), UNKNOWN), (GiveUp("no account"), FAILED)]
)
async def test_what_was_cut_off_once_has_not_failed_because_it_failed_later(
    world: World, error: Exception, status: EffectStatus
) -> None:
    bank, slow = Bank(), Slow()
    bank.then = slow
    twice = RetryPolicy(attempts=2, first_s=0.0)
    run = await world.begin(paying(world, bank, semantics="idempotent", retry=twice))
    cut_off = world.outbox("a")
    await cut_off.once()
    await slow.begun.wait()
    await cut_off.drain(0)
    world.clock.pass_s(TTL_S)
    bank.then = raising(error)
    await settle(world.outbox("b"))
    assert await world.effect_status(run, "pay") is status
    assert len(bank.keys) == 2


async def test_what_another_worker_knows_does_not_hide_what_is_to_be_had(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claimed_work, "LOOK", 1)
    bank, watched = Bank(), world.watched()
    payer = paying(world, bank, connector="bank")
    old = await begun_elsewhere(world, "transfer", "null", connector="bank")
    world.clock.pass_s(1)
    new = await world.begin(payer)
    outbox = world.outbox(runs=watched)
    assert await outbox.once() == 1
    for _ in range(3):
        await settle(outbox)
    assert await world.effect_status(new, "pay") is CONFIRMED
    assert await world.effect_status(old, "transfer") is PENDING
    assert watched.counts()["ClaimEffect"] == 1


async def test_what_a_stuck_run_has_left_in_the_outbox_is_done(world: World) -> None:
    bank = Bank()
    run = await world.begin(paying(world, bank))
    taken = await world.runs.resume_run(run.run_id, Taker("another"))
    await world.runs.extend_run(run.run_id, taken.fencing_token, [EndRun(RunStatus.STUCK)])
    await settle(world.outbox())
    assert await world.effect_status(run, "pay") is CONFIRMED
    assert len(bank.keys) == 1
