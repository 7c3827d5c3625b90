"""Compensation: what was done is undone, newest first, once; and what cannot be is loud."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tape.errors import AckLost, GiveUp, StaleLease, StoreFailed, TooLarge
from tape.model.lease import NewRun, Taker
from tape.model.obligation import (
    ObligationKey,
    ObligationStatus,
    RegisterCompensation,
    ResolveObligation,
)
from tape.model.run import Run, RunName, RunStatus
from tape.model.run_end import EndRun
from tape.model.run_write import RunWrite
from tape.runs.ambient import idempotency_key
from tape.runs.boundary import set_boundary_hook
from tape.runs.declare import App, RetryPolicy, app, effect
from tape.runs.driving.context import Context
from tape.runs.reactors import claimed_work
from tape.telemetry import metrics
from tests.unit.runs.durable import TTL_S, World, settle

SLOWLY = RetryPolicy(first_s=100.0, most_s=1000.0)
PENDING, COMMITTED, COMPENSATED, STUCK = ObligationStatus


class Undoing:
    """Undoes, and remembers; each tool may be told what to do instead."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.keys: list[str] = []
        self.then: dict[str, Callable[[], Any]] = {}

    def __call__(self, tool: str) -> Any:
        self.done.append(tool)
        self.keys.append(idempotency_key())
        return self.then.get(tool, lambda: None)()


def errors_told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What reactors said at ERROR; that the run itself has failed is its driver's line."""
    records = (record for record in caplog.records if record.name == "tape.reactors")
    return [record.message for record in records if record.levelname == "ERROR"]


def raising(error: Exception) -> Callable[[], Any]:
    def then() -> Any:
        raise error

    return then


def failing_after(world: World, undoing: Undoing, *tools: str, attempts: int = 3) -> App[Any]:
    """An app that does these and then fails."""
    effects = [_undoable(world, undoing, tool, attempts) for tool in tools]

    @app("failing", registry=world.apps)
    async def failing(ctx: Context) -> None:
        for each in effects:
            await ctx.call(each, each.spec.name)
        raise ValueError("after all")

    return failing


def _undoable(world: World, undoing: Undoing, tool: str, attempts: int) -> Any:
    async def undo(response: str) -> Any:
        assert response == f"{tool} done"
        result = undoing(tool)
        return await result if asyncio.iscoroutine(result) else result

    undo.__name__ = f"undo_{tool}"

    @effect(name=tool, compensate=undo, compensate_attempts=attempts, registry=world.apps)
    async def act(what: str) -> str:
        return f"{what} done"

    return act


async def test_a_run_that_fails_is_unwound_newest_first(world: World) -> None:
    undoing = Undoing()
    run = await world.begin(failing_after(world, undoing, "a", "b", "c"))
    assert await world.status(run) is RunStatus.COMPENSATING
    assert await settle(world.compensation()) == 3
    assert undoing.done == ["c", "b", "a"]
    assert set((await world.obligations(run)).values()) == {COMPENSATED}
    ended = await world.run(run.run_id)
    assert ended.status == RunStatus.FAILED
    assert "after all" in ended.outcome_json
    assert await settle(world.compensation()) == 0


async def test_many_that_race_keep_the_order_and_undo_once(world: World) -> None:
    undoing = Undoing()
    failing = failing_after(world, undoing, "a", "b", "c")
    runs = [await world.begin(failing) for _ in range(5)]
    reactors = [world.compensation(owner) for owner in "abcd"]
    assert sum(await asyncio.gather(*(reactor.once() for reactor in reactors))) >= 5
    await settle(*reactors)
    assert sorted(undoing.done) == sorted(5 * ["a", "b", "c"])
    for run in runs:
        mine = [key for key in undoing.keys if run.run_id in key]
        assert [key[-1] for key in mine] == ["c", "b", "a"]
        assert await world.status(run) is RunStatus.FAILED


async def test_a_run_that_is_cancelled_is_unwound_too(world: World) -> None:
    undoing = Undoing()
    act = _undoable(world, undoing, "a", 3)

    @app("waiting", registry=world.apps)
    async def waiting(ctx: Context) -> None:
        await ctx.call(act, "a")
        await ctx.gate("never")

    run = await world.begin(waiting)
    await world.cancel(run)
    await settle(world.compensation())
    assert undoing.done == ["a"]
    assert await world.status(run) is RunStatus.CANCELLED


async def test_what_failed_is_tried_again_under_its_key_when_its_pause_is_over(
    world: World,
) -> None:
    undoing = Undoing()
    undoing.then["a"] = raising(AckLost("perhaps"))
    run = await world.begin(failing_after(world, undoing, "a"))
    for pause_s in (100.0, 200.0):
        reactor = world.compensation(pauses=SLOWLY)
        assert await settle(reactor) == 1
        assert await world.obligations(run) == {"undo_a": PENDING}
        due = await reactor.due_in_s()
        assert due is not None
        assert pause_s - 50 < due <= pause_s + 0.01
        world.clock.pass_s(pause_s - 0.1)
        assert await settle(reactor) == 0
        world.clock.pass_s(50)
    undoing.then.clear()
    await settle(world.compensation(pauses=SLOWLY))
    assert await world.status(run) is RunStatus.FAILED
    assert undoing.keys == 3 * [f"{run.run_id}/decision-0/a/0/undo_a"]


async def stuck(world: World, undoing: Undoing, error: Exception) -> Run:
    """A run of which the second of three cannot be undone."""
    undoing.then["b"] = raising(error)
    run = await world.begin(failing_after(world, undoing, "a", "b", "c"))
    reactor = world.compensation(pauses=SLOWLY)
    for _ in range(5):
        await settle(reactor)
        world.clock.pass_s(1000)
    return run


async def test_what_keeps_failing_makes_its_run_stuck_and_is_loud(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    counted = metrics.OBLIGATIONS_ENDED.labels("stuck")
    before, undoing = counted.value, Undoing()
    run = await stuck(world, undoing, ConnectionError("away"))
    assert undoing.done == ["c", "b", "b", "b"]
    assert await world.status(run) is RunStatus.STUCK
    assert await world.obligations(run) == {
        "undo_c": COMPENSATED,
        "undo_b": STUCK,
        "undo_a": PENDING,
    }
    loud = errors_told(caplog)
    assert len(loud) == 1
    assert "is stuck after 3 attempts: ConnectionError: away" in loud[0]
    assert counted.value == before + 1
    assert "obligation stuck" in await world.verbs(run)


async def test_a_stuck_run_that_is_put_back_unwinds_further(world: World) -> None:
    undoing = Undoing()
    run = await stuck(world, undoing, ConnectionError("away"))
    await world.runs.resume_run(run.run_id)
    assert await world.status(run) is RunStatus.COMPENSATING
    assert await settle(world.compensation(pauses=SLOWLY)) == 1
    assert await world.status(run) is RunStatus.COMPENSATING  # it has all its attempts again
    undoing.then.clear()
    world.clock.pass_s(1000)
    await settle(world.compensation())
    assert undoing.done[-2:] == ["b", "a"]
    ended = await world.run(run.run_id)
    assert ended.status == RunStatus.FAILED
    assert "after all" in ended.outcome_json


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
async def test_what_would_end_a_process_fails_the_compensator_and_nothing_else(
    world: World, error: BaseException
) -> None:
    async def undo() -> None:
        raise error

    @effect(name="a", compensate=undo, compensate_attempts=1, registry=world.apps)
    async def act(what: str) -> str:
        return what

    @app("failing", registry=world.apps)
    async def failing(ctx: Context) -> None:
        await ctx.call(act, "a")
        raise ValueError("after all")

    run = await world.begin(failing)
    await settle(world.compensation())
    assert await world.status(run) is RunStatus.STUCK
    (row,) = await world.runs.list_obligations(run.run_id)
    assert type(error).__name__ in row.last_error


async def test_a_compensator_that_gives_up_is_stuck_at_once(world: World) -> None:
    undoing = Undoing()
    run = await stuck(world, undoing, GiveUp("it is spent"))
    assert undoing.done == ["c", "b"]
    assert await world.status(run) is RunStatus.STUCK


Seen = list[tuple[Any, ...]]


def _compensators(seen: Seen) -> list[Callable[..., Any]]:
    def all_of_it(request: Any, response: Any, key: str) -> None:
        seen.append((request, response, key))

    def some_of_it(key: str, *, request: Any, other: int = 7) -> None:
        seen.append((request, other, key))

    def whatever_there_is(**given: Any) -> None:
        seen.append((given["request"], given["response"], given["key"]))

    async def nothing() -> None:
        seen.append(())

    return [all_of_it, some_of_it, whatever_there_is, nothing]


@pytest.mark.parametrize("which", range(4))
async def test_a_compensator_is_given_what_it_asks_for_by_name(world: World, which: int) -> None:
    seen: Seen = []

    @effect(compensate=_compensators(seen)[which], registry=world.apps)
    async def act(what: str) -> str:
        return f"{what} done"

    @app("failing", registry=world.apps)
    async def failing(ctx: Context) -> None:
        await ctx.call(act, "it")
        raise ValueError

    run = await world.begin(failing)
    await settle(world.compensation())
    assert await world.status(run) is RunStatus.FAILED
    request, key = {"args": ["it"], "kwargs": {}}, f"{run.run_id}/decision-0/act/0"
    whole = (request, "it done", key)
    assert seen == [(whole, (request, 7, key), whole, ())[which]]


async def test_an_effect_may_be_the_compensator_of_another(world: World) -> None:
    seen: list[Any] = []

    @effect(registry=world.apps)
    def put_back(response: str) -> None:
        seen.append((response, threading.current_thread()))

    @effect(compensate=put_back, registry=world.apps)
    def take(what: str) -> str:
        return what

    @app("failing", registry=world.apps)
    async def failing(ctx: Context) -> None:
        await ctx.call(take, "it")
        raise ValueError

    await world.begin(failing)
    await settle(world.compensation())
    assert seen[0][0] == "it"
    assert seen[0][1] is not threading.current_thread()


async def test_a_compensator_that_asks_for_what_there_is_not_is_stuck_at_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    async def undo(wire: str) -> None:
        raise AssertionError(wire)

    @effect(compensate=undo, registry=world.apps)
    async def act(what: str) -> str:
        return what

    @app("failing", registry=world.apps)
    async def failing(ctx: Context) -> None:
        await ctx.call(act, "it")
        raise ValueError

    run = await world.begin(failing)
    assert await settle(world.compensation()) == 1
    assert await world.status(run) is RunStatus.STUCK
    assert "'wire'" in caplog.text


async def test_what_it_returns_is_kept_and_what_cannot_be_kept_does_no_harm(world: World) -> None:
    undoing = Undoing()
    undoing.then = {"a": lambda: {"id": 9}, "b": object}
    run = await world.begin(failing_after(world, undoing, "a", "b"))
    await settle(world.compensation())
    assert await world.status(run) is RunStatus.FAILED
    b, a = await world.runs.list_obligations(run.run_id)
    assert a.result_json == '{"id":9}'
    assert "cannot be written as JSON" in b.result_json
    assert undoing.done == ["b", "a"]


@pytest.mark.parametrize("error", [TooLarge("too large"), StoreFailed("no")])
async def test_a_result_that_the_store_refuses_does_no_harm_either(
    world: World, error: Exception
) -> None:
    undoing, watched = Undoing(), world.watched()
    run = await world.begin(failing_after(world, undoing, "a"))
    watched.refusals[ResolveObligation] = [error]
    await settle(world.compensation(runs=watched))
    assert await world.status(run) is RunStatus.FAILED
    assert undoing.done == ["a"]


async def with_obligation(world: World, payload_json: str, ref: str) -> Run:
    """A run of another program that has failed with something to undo."""
    new = NewRun(RunName("other", "", "", "1"))
    begun = await world.runs.begin_run(new, Taker("elsewhere", "agent", 30_000))
    register = RegisterCompensation("e", "undo", payload_json, ref)
    writes: list[RunWrite] = [register, EndRun(RunStatus.FAILED, parent_run_id="")]
    await world.runs.extend_run(begun.run.run_id, begun.fencing_token, writes)
    return begun.run


async def test_what_nothing_here_undoes_is_left_to_others_and_told_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    run = await with_obligation(world, "null", "elsewhere")
    watched = world.watched()
    reactor = world.compensation(runs=watched)
    for _ in range(3):
        assert await settle(reactor) == 0
    assert caplog.text.count("this process has no compensator for it") == 1
    assert not watched.writes
    assert await world.obligations(run) == {"undo": PENDING}


async def test_another_payload_is_given_as_the_response(world: World) -> None:
    seen: Seen = []

    @effect(compensate=_compensators(seen)[0], registry=world.apps)
    async def act() -> None: ...

    run = await with_obligation(world, '{"wire":7}', "act")
    await settle(world.compensation())
    assert await world.status(run) is RunStatus.FAILED
    assert seen == [(None, {"wire": 7}, "e")]


async def test_one_that_was_cut_off_is_undone_again_and_the_first_is_refused(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    undoing, begun, go = Undoing(), asyncio.Event(), asyncio.Event()

    async def slowly() -> None:
        begun.set()
        await go.wait()

    undoing.then["b"] = slowly
    run = await world.begin(failing_after(world, undoing, "a", "b"))
    stale, successor = world.compensation("a"), world.compensation("b")
    await stale.once()
    await begun.wait()
    assert await settle(successor) == 0
    world.clock.pass_s(TTL_S)
    undoing.then.clear()
    await settle(successor)
    go.set()
    await stale.settled()
    assert "is left to other workers" in caplog.text
    assert undoing.done == ["b", "b", "a"]
    assert await world.status(run) is RunStatus.FAILED
    key = ObligationKey(f"{run.run_id}/decision-0/b/1", "undo_b")
    with pytest.raises(StaleLease):
        await world.runs.change_run(run.run_id, ResolveObligation(key, 1, STUCK))


async def test_each_write_and_act_is_between_two_boundaries(world: World) -> None:
    await world.begin(failing_after(world, Undoing(), "a"))
    places: list[str] = []
    set_boundary_hook(places.append)
    try:
        await settle(world.compensation())
    finally:
        set_boundary_hook(None)
    steps = ("ClaimObligation", "act undo_a", "ResolveObligation")
    assert places == [f"{side} {step}" for step in steps for side in ("before", "after")]


async def test_one_that_takes_its_claimers_down_is_stuck_and_loud(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    undoing, begun = Undoing(), asyncio.Event()

    async def fatally() -> None:
        begun.set()
        await asyncio.Event().wait()

    undoing.then["a"] = fatally
    run = await world.begin(failing_after(world, undoing, "a", attempts=2))
    for owner in "ab":
        reactor = world.compensation(owner)
        begun.clear()
        await reactor.once()
        await begun.wait()
        await reactor.drain(0)
        world.clock.pass_s(TTL_S)
    assert await settle(world.compensation("c")) == 0
    assert undoing.done == ["a", "a"]
    assert await world.status(run) is RunStatus.STUCK
    loud = errors_told(caplog)
    assert len(loud) == 1
    assert "is stuck after 2 attempts: its claim ran out" in loud[0]


async def test_what_others_undo_does_not_hide_what_is_ours(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claimed_work, "LOOK", 1)
    await with_obligation(world, "null", "elsewhere")
    world.clock.pass_s(1)
    undoing = Undoing()
    run = await world.begin(failing_after(world, undoing, "a"))
    await settle(world.compensation())
    assert undoing.done == ["a"]
    assert await world.status(run) is RunStatus.FAILED
