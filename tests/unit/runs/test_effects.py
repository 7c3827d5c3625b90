"""Effects: done once, replayed ever after, whatever they come to."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import tape
from tape.errors import (
    AckLost,
    BudgetExceeded,
    BusinessKeyTaken,
    EffectFailed,
    GiveUp,
    InvalidArgument,
    TooLarge,
)
from tape.model.effect import BeginEffect, Effect, Semantics
from tape.model.lease import Taker
from tape.model.run import Run, RunStatus
from tape.runs.declare import Apps, RetryPolicy, Spend
from tape.runs.driving.context import Context
from tape.runs.driving.effect_loop import EffectLoop
from tape.runs.driving.run_here import new_run
from tape.runs.driving.sync_context import SyncContext
from tape.runs.operations import Runs
from tape.settings import Limits, Settings
from tape.testing.runs import AppKit, app_kit, crashes
from tests.unit.runs.driven import LEASE_S, gone_on, outcome, ran, signalled, soon


async def spent(kit: AppKit, run: Run) -> tuple[float, int]:
    budget = (await kit._operations.runs.admit_budget(run.run_id, 0, 0)).budget
    return budget.usd_spent, budget.tokens_spent


async def row_of(kit: AppKit, run: Run, tool: str, key: str = "decision-0/{}/0") -> Effect:
    row = await kit._operations.runs.get_effect(run.run_id, f"{run.run_id}/{key.format(tool)}")
    assert row is not None
    return row


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long was waited before an act was tried again, without the wait."""
    taken: list[float] = []

    async def pause(self: EffectLoop, seconds: float) -> None:
        taken.append(seconds)

    monkeypatch.setattr(EffectLoop, "pause", pause)
    return taken


async def test_a_body_is_called_once_and_its_result_is_what_json_makes_of_it(
    kit: AppKit, apps: Apps
) -> None:
    calls, results = [], []

    @tape.effect(registry=apps)
    async def look(at: str) -> dict[str, Any]:
        calls.append(tape.idempotency_key())
        return {"at": at, "pair": (1, 2), "day": datetime(2026, 1, 2, tzinfo=UTC)}

    @tape.app("looks", registry=apps)
    async def looks(ctx: Context) -> Any:
        results.append(await look("x"))
        await ctx.gate("go")
        return results[-1]

    run = await signalled(kit, await ran(kit, looks))
    json_made = {"at": "x", "pair": [1, 2], "day": "2026-01-02T00:00:00+00:00"}
    assert results == [json_made, json_made]
    assert outcome(run) == json_made
    assert calls == [f"{run.run_id}/decision-0/look/0"]


async def test_a_failure_is_recorded_and_raised_in_every_replay(kit: AppKit, apps: Apps) -> None:
    calls, words = [], []

    @tape.effect(registry=apps)
    async def wire(cents: int) -> None:
        calls.append(cents)
        raise LookupError("no such account")

    @tape.app("wires", registry=apps)
    async def wires(ctx: Context) -> Any:
        with pytest.raises(EffectFailed) as failed:
            await wire(5)
        words.append(str(failed.value))
        await ctx.gate("go")
        await wire(6)

    run = await ran(kit, wires)
    assert (await kit.journal(run.run_id)).effects("wire") == ["failed"]
    run = await signalled(kit, run)
    assert words == ["wire: LookupError: no such account"] * 2
    assert calls == [5, 6]
    assert run.status == RunStatus.FAILED
    assert outcome(run) == "EffectFailed: wire: LookupError: no such account"


async def test_it_is_tried_again_under_the_same_key(
    kit: AppKit, apps: Apps, pauses: list[float]
) -> None:
    keys = []

    @tape.effect(registry=apps, retry=RetryPolicy(attempts=5, first_s=0.5, most_s=1.5))
    async def wire() -> str:
        keys.append(tape.idempotency_key())
        if len(keys) < 5:
            raise OSError("away")
        return "done"

    @tape.app("wires", registry=apps)
    async def wires(ctx: Context) -> Any:
        return await wire()

    run = await ran(kit, wires)
    assert outcome(run) == "done"
    assert keys == [f"{run.run_id}/decision-0/wire/0"] * 5
    assert pauses == [0.5, 1.0, 1.5, 1.5]
    assert (await kit.journal(run.run_id)).subjects.count("effect/pending") == 1


@pytest.mark.parametrize(("error", "tries"), [(OSError("away"), 3), (GiveUp("never"), 1)])
async def test_how_often_it_is_tried(
    kit: AppKit, apps: Apps, pauses: list[float], error: Exception, tries: int
) -> None:
    calls = []

    @tape.effect(registry=apps, retry=RetryPolicy(attempts=3))
    async def wire() -> None:
        calls.append(1)
        raise error

    @tape.app("wires", registry=apps)
    async def wires(ctx: Context) -> Any:
        return await wire()

    run = await ran(kit, wires)
    assert (len(calls), len(pauses)) == (tries, tries - 1)
    assert outcome(run) == f"EffectFailed: wire: {type(error).__name__}: {error}"


async def test_a_lost_acknowledgement_is_waited_for_and_never_tried_again(
    kit: AppKit, apps: Apps
) -> None:
    calls = []

    @tape.effect(registry=apps, retry=RetryPolicy(attempts=3))
    async def wire() -> str:
        calls.append(1)
        raise AckLost("the line is dead")

    @tape.app("wires", registry=apps)
    async def wires(ctx: Context) -> Any:
        return await wire()

    run = await ran(kit, wires)
    assert run.status == RunStatus.WAITING
    assert run.waiting_on == f"effect {run.run_id}/decision-0/wire/0"
    assert (await kit.journal(run.run_id)).effects("wire") == ["unknown"]
    await kit.resume_run(run.run_id)
    assert (await gone_on(kit, run)).status == RunStatus.WAITING
    assert calls == [1]


@pytest.mark.parametrize("result", [object(), {1: 2}, float("nan"), "x" * 2**21])
async def test_a_result_that_cannot_be_written_down_did_happen_all_the_same(
    kit: AppKit, apps: Apps, result: Any
) -> None:
    calls = []

    def find(key: str, request: Any) -> tape.Observed:
        return tape.Observed("confirmed", {"found": request["args"]})

    @tape.effect(registry=apps, check=find, retry=RetryPolicy(attempts=3))
    async def wire(cents: int) -> Any:
        calls.append(cents)
        return result

    @tape.app("wires", registry=apps)
    async def wires(ctx: Context) -> Any:
        return await wire(5)

    run = await ran(kit, wires)
    assert outcome(run) == {"found": [5]}
    assert calls == [5]
    verbs = (await kit.journal(run.run_id)).subjects
    assert [verb for verb in verbs if verb.startswith("effect/")][:2] == [
        "effect/pending",
        "effect/unknown",
    ]


async def test_an_undoing_that_would_not_fit_leaves_the_effect_in_doubt(
    kit: AppKit, apps: Apps
) -> None:
    """What would undo it has to hold both, and each alone is within the limit."""

    @tape.effect(registry=apps, compensate=print)
    async def wire(text: str) -> str:
        return text

    @tape.app("wires", registry=apps)
    async def wires(ctx: Context) -> Any:
        await wire("x" * 700_000)

    run = await ran(kit, wires)
    assert run.status == RunStatus.WAITING
    row = await row_of(kit, run, "wire")
    assert "payload: 140" in row.error_json


async def test_a_result_that_only_the_store_refuses(
    tmp_path: Path, apps: Apps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its limits are lower than those the app was checked by, as with a server that was started
    again with others: the app has gone on by then."""
    monkeypatch.setattr(Runs, "limits", Limits())
    seen = []

    @tape.effect(registry=apps)
    async def wire() -> str:
        return "x" * 5_000

    @tape.effect(registry=apps)
    async def after(size: int) -> None:
        seen.append(size)

    @tape.app("wires", registry=apps)
    async def wires(ctx: Context) -> Any:
        await after(len(await wire()))

    settings = Settings(limits=Limits(payload_bytes=4_000))
    async with app_kit(tmp_path, apps=apps, settings=settings) as kit:
        run = await ran(kit, wires)
        assert run.status == RunStatus.FAILED
        assert outcome(run).startswith("TooLarge: response_json: 5002 bytes")
        assert (await kit.journal(run.run_id)).effects("wire") == ["unknown"]
        assert seen == []


@pytest.mark.parametrize("argument", [object(), float("inf"), "x" * 2**21])
async def test_arguments_that_are_no_json_are_refused_and_nothing_is_begun(
    kit: AppKit, apps: Apps, argument: Any
) -> None:
    @tape.effect(registry=apps)
    async def wire(cents: Any) -> int:
        return 1

    @tape.app("wires", registry=apps)
    async def wires(ctx: Context) -> Any:
        with pytest.raises(InvalidArgument, match="arguments of wire"):
            await wire(argument)
        await ctx.gate("go")
        return await wire(5)

    run = await signalled(kit, await ran(kit, wires))
    assert outcome(run) == 1
    assert (await row_of(kit, run, "wire")).status == 2


async def test_what_a_dead_driver_left_pending_is_done_again_with_the_same_key(
    kit: AppKit, apps: Apps
) -> None:
    keys: list[str] = []
    begun, hang = asyncio.Event(), asyncio.Event()

    @tape.effect(registry=apps)
    async def wire() -> int:
        keys.append(tape.idempotency_key())
        if len(keys) == 1:
            begun.set()
            await hang.wait()
        return len(keys)

    @tape.app("wires", registry=apps)
    async def wires(ctx: Context) -> Any:
        return await wire()

    run = await kit.start_run(wires)
    dead = asyncio.create_task(kit.work())
    await soon(begun)
    kit.clock.advance(LEASE_S + 1)
    ended = await gone_on(kit, run)
    assert outcome(ended) == 2
    assert keys == [f"{run.run_id}/decision-0/wire/0"] * 2
    hang.set()
    await dead
    journal = await kit.journal(run.run_id)
    assert journal.subjects[-1] == "run/terminal"
    assert journal.subjects.count("effect/confirmed") == 1
    assert journal.tokens() == [1, 2]


def test_not_idempotent_is_refused_inline_where_it_is_declared(apps: Apps) -> None:
    with pytest.raises(InvalidArgument, match="dispatch: 'wire' is not idempotent"):

        @tape.effect(registry=apps, semantics="non_idempotent", check=print)
        async def wire() -> None: ...

    with pytest.raises(InvalidArgument, match="needs a status check"):

        @tape.effect(registry=apps, semantics="non_idempotent", dispatch="outbox", name="wire")
        async def other() -> None: ...

    assert apps.effects == {}


@pytest.mark.parametrize("options", [{"semantics": "once"}, {"dispatch": "later"}])
def test_words_that_are_none_of_the_known_ones(apps: Apps, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match="is not one of"):
        tape.effect(registry=apps, **options)(print)


async def test_not_idempotent_is_refused_inline_by_the_store(kit: AppKit, apps: Apps) -> None:
    runs = kit._operations.runs
    begun = await runs.begin_run(new_run("any"), Taker("me"))
    begin = BeginEffect(0, "wire", 0, semantics=Semantics.NON_IDEMPOTENT)
    with pytest.raises(InvalidArgument, match="must go through the outbox"):
        await runs.extend_run(begun.run.run_id, begun.fencing_token, [begin])


async def test_a_business_key_belongs_to_one_effect_of_a_connector(kit: AppKit, apps: Apps) -> None:
    refused: list[str] = []

    def of_order(order: str) -> str:
        return order

    @tape.effect(registry=apps, connector="bank", business_key=of_order)
    async def wire(order: str) -> str:
        return f"wired {order}"

    @tape.effect(registry=apps, connector="post", business_key=of_order)
    async def send(order: str) -> str:
        return f"sent {order}"

    @tape.app("wires", registry=apps)
    async def wires(ctx: Context, order: str) -> Any:
        try:
            done = [await wire(order)]
        except BusinessKeyTaken as taken:
            refused.append(str(taken))
            done = []
        await ctx.gate("go")
        return [*done, await send(order + str(len(done)))]

    first = await signalled(kit, await ran(kit, wires, "7"))
    assert outcome(first) == ["wired 7", "sent 71"]
    second = await signalled(kit, await ran(kit, wires, "7"))
    assert outcome(second) == ["sent 70"]
    assert refused == [f"bank/7 belongs to effect '{first.run_id}/decision-0/wire/0'"] * 2
    assert (await kit.journal(second.run_id)).effects("wire") == ["failed"]


async def test_a_taken_key_among_branches_keeps_its_place(kit: AppKit, apps: Apps) -> None:
    @tape.effect(registry=apps, business_key=lambda _order: "same")
    async def wire(order: int) -> int:
        return order

    @tape.app("wires", registry=apps)
    async def wires(ctx: Context) -> Any:
        done = await asyncio.gather(wire(1), wire(2), wire(3), return_exceptions=True)
        await ctx.gate("go")
        return [str(one) for one in done]

    run = await signalled(kit, await ran(kit, wires))
    assert run.status == RunStatus.TERMINAL
    taken = f"wire/same belongs to effect '{run.run_id}/decision-0/wire/0'"
    assert outcome(run) == ["1", taken, taken]


async def test_a_business_key_that_is_no_text(kit: AppKit, apps: Apps) -> None:
    @tape.effect(registry=apps, business_key=lambda number: number)
    async def wire(number: int) -> None: ...

    @tape.app("wires", registry=apps)
    async def wires(ctx: Context) -> Any:
        await wire(7)

    assert outcome(await ran(kit, wires)) == "InvalidArgument: business_key: 7 is not text"


async def test_a_budget_admits_before_and_is_charged_after(kit: AppKit, apps: Apps) -> None:
    calls = []

    @tape.effect(
        registry=apps,
        estimate=lambda _text: Spend(usd=0.5, tokens=100),
        spent=lambda response: Spend(usd=0.375, tokens=response),
    )
    async def ask(text: str) -> int:
        calls.append(text)
        return 90

    @tape.app("asks", registry=apps)
    async def asks(ctx: Context) -> Any:
        await tape.with_budget(tape.Budget(usd=1.0))
        await ask("a")
        await ask("b")
        with pytest.raises(BudgetExceeded) as refused:
            await ask("c")
        await ctx.gate("go")
        await ctx.set_budget(usd=2.0)
        await ask("d")
        await ctx.charge(usd=0.125, tokens=1)
        return str(refused.value)

    run = await ran(kit, asks)
    assert await spent(kit, run) == (0.75, 180)
    run = await signalled(kit, run)
    assert outcome(run) == "ask: 0.75 of 1 USD are spent, 0.5 more would exceed the cap"
    assert calls == ["a", "b", "d"]
    assert await spent(kit, run) == (1.25, 271)


async def test_a_budget_is_charged_once_wherever_it_is_cut_off(tmp_path: Path, apps: Apps) -> None:
    @tape.effect(registry=apps, estimate=lambda _n: Spend(usd=1.0), spent=lambda n: Spend(tokens=n))
    async def ask(number: int) -> int:
        return number

    @tape.effect(registry=apps, estimate=lambda: Spend(usd=4.0), dispatch="outbox")
    async def later() -> None: ...

    @tape.app("asks", registry=apps)
    async def asks(ctx: Context) -> Any:
        await ctx.set_budget(usd=10)
        await asyncio.gather(ask(10), ask(200))
        await ctx.charge(usd=2)
        await later()

    places = []
    async for crash in crashes(tmp_path, asks, apps=apps):
        run = await crash.recovered()
        assert run.status == RunStatus.TERMINAL, (crash.boundary, outcome(run))
        async with app_kit(crash.folder, apps=apps, clock=crash.clock) as kit:
            assert await spent(kit, run) == (6.0, 210), crash.boundary
        places.append(crash.boundary)
    assert len(places) > 15


async def test_a_cost_that_cannot_be_told_is_raised_in_every_replay(
    kit: AppKit, apps: Apps
) -> None:
    raised = []

    @tape.effect(registry=apps, spent=lambda response: response["no such key"])
    async def ask() -> dict[str, int]:
        return {}

    @tape.effect(registry=apps, spent=lambda response: response)
    async def tell() -> int:
        return 5

    @tape.app("asks", registry=apps)
    async def asks(ctx: Context) -> None:
        for effect in (ask, tell):
            try:
                await ctx.call(effect)
            except (KeyError, InvalidArgument) as error:
                raised.append(str(error))
        await ctx.gate("go")

    run = await signalled(kit, await ran(kit, asks))
    assert run.status == RunStatus.TERMINAL
    words = ["'no such key'", "spent: returned 5, not tape.Spend"]
    assert raised == [*words, *words]


@pytest.mark.parametrize("amounts", [(-1.0, 0), (float("nan"), 0), (0.0, -1)])
def test_costs_that_are_no_amounts(amounts: tuple[float, int]) -> None:
    with pytest.raises(InvalidArgument, match="is not a"):
        Spend(*amounts)


async def test_either_colour_is_called_through_the_context(kit: AppKit, apps: Apps) -> None:
    @tape.effect(registry=apps)
    def plain(text: str) -> str:
        return f"{text} {tape.idempotency_key()[-3:]}"

    @tape.effect(registry=apps)
    async def waited(text: str) -> str:
        return f"{text} {tape.idempotency_key()[-3:]}"

    @tape.app("asynchronous", registry=apps)
    async def asynchronous(ctx: Context) -> Any:
        with pytest.raises(InvalidArgument, match=r"await ctx.call\(plain, …\)"):
            plain("x")
        return [await ctx.call(plain, "a"), await ctx.call(waited, "b")]

    @tape.app("synchronous", registry=apps)
    def synchronous(ctx: SyncContext) -> Any:
        with pytest.raises(InvalidArgument, match=r"this app is not: ctx.call\(waited, …\)"):
            _ = waited("x")
        return [ctx.call(plain, "a"), ctx.call(waited, "b")]

    for app in (asynchronous, synchronous):
        assert outcome(await ran(kit, app)) == ["a n/0", "b d/1"]


def test_outside_of_a_run_an_effect_is_refused(apps: Apps) -> None:
    @tape.effect(registry=apps)
    def wire() -> int:
        return 5

    with pytest.raises(InvalidArgument, match="effect 'wire' works only in a run"):
        wire()
    with pytest.raises(InvalidArgument, match="only while an effect is executed"):
        tape.idempotency_key()
    assert wire.body() == 5


async def test_inside_of_an_effect_there_are_no_steps(kit: AppKit, apps: Apps) -> None:
    """It is not called again in a replay, and its steps would be missing."""

    @tape.effect(registry=apps)
    async def inner() -> None: ...

    @tape.effect(registry=apps)
    async def outer(step: str) -> None:
        await inner() if step == "effect" else tape.now()

    @tape.app("nests", registry=apps)
    async def nests(ctx: Context) -> Any:
        words = []
        for step in ("effect", "now"):
            with pytest.raises(EffectFailed) as failed:
                await outer(step)
            words.append(str(failed.value))

        async def beat_and_draw() -> None:
            await ctx.heartbeat()
            ctx.now()

        with pytest.raises(EffectFailed, match="recorded now cannot be called in decision 'm'"):
            await ctx.decide("m", None, beat_and_draw)
        return words

    run = await ran(kit, nests)
    first, second = outcome(run)
    assert first.startswith(
        "outer: InvalidArgument: effect inner cannot be called in effect 'outer'"
    )
    assert second.startswith(
        "outer: InvalidArgument: decision recorded now cannot be called in effect"
    )
    assert (await kit.journal(run.run_id)).effects("inner") == []


NO_ERRORS = [
    StopIteration(7),
    SystemExit(3),
    KeyboardInterrupt(),
    asyncio.CancelledError(),
    BaseException("own"),
]


@pytest.mark.parametrize("error", NO_ERRORS)
async def test_errors_that_are_none_fail_their_effect_and_nothing_else(
    kit: AppKit, apps: Apps, error: BaseException
) -> None:
    @tape.effect(registry=apps)
    async def waited() -> None:
        raise error

    @tape.effect(registry=apps)
    def plain() -> None:
        raise error

    @tape.app("calls", registry=apps)
    async def calls(ctx: Context) -> Any:
        async def ask() -> None:
            raise error

        for effect in (waited, plain):
            with pytest.raises(EffectFailed, match=type(error).__name__):
                await ctx.call(effect)
        with pytest.raises(EffectFailed, match=type(error).__name__):
            await ctx.decide("m", None, ask)
        return "done"

    assert outcome(await ran(kit, calls)) == "done"


@pytest.mark.parametrize("branching", ["gather", "group"])
async def test_what_a_branch_has_begun_is_settled_before_its_run_ends(
    kit: AppKit, apps: Apps, branching: str
) -> None:
    """Else what it did would be neither known nor undone."""
    begun, failed, undone = asyncio.Event(), asyncio.Event(), []

    def undo(response: str) -> None:
        undone.append(response)

    @tape.effect(registry=apps, compensate=undo)
    async def slow() -> str:
        begun.set()
        await failed.wait()
        return "slow"

    @tape.effect(registry=apps)
    async def fails() -> None:
        await begun.wait()
        raise OSError("no")

    @tape.app("branches", registry=apps)
    async def branches(ctx: Context) -> None:
        try:
            if branching == "gather":
                await asyncio.gather(slow(), fails())
            async with asyncio.TaskGroup() as group:
                group.create_task(ctx.call(slow))
                group.create_task(ctx.call(fails))
        finally:
            failed.set()

    run = await ran(kit, branches)
    assert run.status == RunStatus.FAILED
    assert outcome(run) == "EffectFailed: fails: OSError: no"
    assert (await kit.journal(run.run_id)).effects("slow") == ["confirmed"]
    assert undone == ["slow"]


async def test_what_is_begun_when_the_app_has_returned_is_not_done(kit: AppKit, apps: Apps) -> None:
    strays, done = [], []

    @tape.effect(registry=apps)
    async def wire() -> None:
        done.append(1)

    @tape.app("strays", registry=apps)
    async def strays_app(ctx: Context) -> str:
        strays.append(asyncio.ensure_future(ctx.call(wire)))
        return "returned"

    run = await ran(kit, strays_app)
    assert outcome(run) == "returned"
    assert len((await kit.journal(run.run_id)).tokens()) == 1
    (stray,) = strays
    assert "the app has returned" in str(stray.exception())
    assert done == []


async def test_names_that_no_store_takes_are_refused_before_anything_is_done(
    kit: AppKit, apps: Apps
) -> None:
    @tape.effect(registry=apps, name="x" * 600)
    async def long() -> None: ...

    @tape.app("refused", registry=apps)
    async def refused(ctx: Context) -> None:
        with pytest.raises(TooLarge, match="tool_name"):
            await long()
        await ctx.gate("go")

    run = await signalled(kit, await ran(kit, refused))
    assert run.status == RunStatus.TERMINAL
