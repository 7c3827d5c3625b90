"""Leases: one driver at a time extends a run, and one that has lost it does and writes nothing."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest

import tape
from tape.errors import LeaseHeld, RunCancelled, StaleLease, StoreUnavailable
from tape.model.lease import Taker
from tape.model.run import Run, RunStatus
from tape.reactions.threads import HandlerThreads
from tape.runs.declare import App, Apps
from tape.runs.driving import drive
from tape.runs.driving.context import Context
from tape.runs.driving.drive import RunDriver
from tape.runs.driving.lease_keeper import LeaseKeeper
from tape.runs.driving.sync_context import SyncContext
from tape.runs.reactors.recovery import Recovery
from tape.settings import ReactorSettings, ReactorsSettings
from tape.testing.runs import AppKit
from tests.unit.runs.driven import LEASE_S, Between, found, gone_on, outcome, ran, soon

BEATING = ReactorsSettings(recovery=ReactorSettings(LEASE_S, heartbeat_s=0.005))
STILL = ReactorsSettings(recovery=ReactorSettings(LEASE_S))
"""No renewal is on its way when the clock is moved."""


class Worker:
    """Drives runs when it is told to, over operations that a test can get in the way of."""

    def __init__(self, kit: AppKit, apps: Apps, owner: str, settings: ReactorsSettings) -> None:
        self.between = Between(kit._operations)
        self.keeper = LeaseKeeper(self.between.runs, settings.recovery)
        driver = RunDriver(self.between, self.keeper, HandlerThreads(8))
        taker = Taker(owner, "recovery", self.keeper.ttl_ms)
        self.recovery = Recovery(self.between.runs, driver, apps, settings, taker, "shared")

    async def beat(self) -> None:
        """Wait until a lease has been renewed from now on."""
        beaten = asyncio.Event()

        async def note(name: str, _args: Any) -> None:
            if name == "heartbeat_run":
                beaten.set()

        self.between.after = note
        await soon(beaten)

    async def drive(self) -> None:
        """All there is to drive, as far as it goes."""
        async with asyncio.timeout(20):
            while await self.recovery.once():
                await self.recovery.settled()

    async def close(self) -> None:
        await self.recovery.drain(0)
        await self.keeper.close()


Hire = Callable[..., Worker]


@pytest.fixture
async def hire(kit: AppKit, apps: Apps) -> AsyncIterator[Hire]:
    workers: list[Worker] = []

    def hired(settings: ReactorsSettings = BEATING) -> Worker:
        workers.append(Worker(kit, apps, f"worker-{len(workers)}", settings))
        return workers[-1]

    yield hired
    for worker in workers:
        await worker.close()


class Hanging:
    """An app that pays, hangs and pays again. Whoever drives it second does not hang."""

    def __init__(self, apps: Apps) -> None:
        self.paid: list[int] = []
        self.cut_off: list[str] = []
        self.hangs = asyncio.Event()
        self.go_on = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._drivers = 0
        self._thread_goes_on = threading.Event()

        @tape.effect(registry=apps)
        async def pay(cents: int) -> int:
            self.paid.append(cents)
            return cents

        @tape.effect(registry=apps)
        def pay_plainly(cents: int) -> int:
            self.paid.append(cents)
            return cents

        @tape.effect(registry=apps)
        async def hang_in_act() -> None:
            await self._hang()

        @tape.effect(registry=apps)
        def hang_in_thread() -> None:
            self._hang_in_thread()

        @tape.app("hangs", registry=apps)
        async def hangs(ctx: Context, where: str) -> str:
            await pay(1)
            if where == "await":
                await self._hang()
            else:
                await ctx.call(hang_in_act if where == "act" else hang_in_thread)
            await pay(2)
            return "done"

        @tape.app("hangs in a thread", registry=apps)
        def hangs_plainly(ctx: SyncContext, where: str) -> str:
            pay_plainly(1)
            if where == "await":
                self._hang_in_thread()
            else:
                hang_in_thread()
            pay_plainly(2)
            return "done"

        self.app: App[Any] = hangs
        self.plain_app: App[Any] = hangs_plainly

    async def _hang(self) -> None:
        self._drivers += 1
        if self._drivers == 1:
            self.hangs.set()
            try:
                await self.go_on.wait()
            except asyncio.CancelledError:
                self.cut_off.append("here")
                raise

    def _hang_in_thread(self) -> None:
        self._drivers += 1
        if self._drivers == 1:
            self._loop.call_soon_threadsafe(self.hangs.set)
            assert self._thread_goes_on.wait(20)

    def let_thread_go_on(self) -> None:
        self._thread_goes_on.set()


@pytest.fixture
async def hanging(apps: Apps) -> AsyncIterator[Hanging]:
    hanging = Hanging(apps)
    yield hanging
    hanging.let_thread_go_on()


async def test_a_long_run_is_kept(kit: AppKit, hanging: Hanging, hire: Hire) -> None:
    keeps, looks = hire(), hire()
    run = await kit.start_run(hanging.app, "await")
    assert await keeps.recovery.once() == 1
    await soon(hanging.hangs)
    for _ in range(4):
        kit.clock.advance(LEASE_S - 1)
        await keeps.beat()
        assert await looks.recovery.once() == 0
    hanging.go_on.set()
    await keeps.recovery.settled()
    assert outcome(await found(kit, run)) == "done"
    assert (await kit.journal(run.run_id)).tokens() == [1]
    renewals = [e for e in await kit.read_run(run.run_id) if "heartbeat" in e.subject]
    assert renewals == []


async def taken_over(kit: AppKit, worker: Worker, run: Run) -> int:
    """Have another drive the run to its end; how many entries it has then."""
    async with asyncio.timeout(20):
        while outcome(await found(kit, run)) != "done":
            # A heartbeat that was on its way when the driver was held up may renew it once more.
            kit.clock.advance(LEASE_S + 1)
            await worker.drive()
    return len(await kit.read_run(run.run_id))


@pytest.mark.parametrize("where", ["await", "act"])
async def test_an_app_that_waits_is_abandoned_there(
    kit: AppKit, hanging: Hanging, hire: Hire, where: str
) -> None:
    loses, wins = hire(), hire(ReactorsSettings())
    loses.between.before = holding_heartbeats_back(until := asyncio.Event())
    run = await kit.start_run(hanging.app, where)
    await loses.recovery.once()
    await soon(hanging.hangs)
    entries = await taken_over(kit, wins, run)
    until.set()
    async with asyncio.timeout(20):
        await loses.recovery.settled()
    assert hanging.cut_off == ["here"]
    assert hanging.paid.count(2) == 1
    assert len(await kit.read_run(run.run_id)) == entries
    assert (await kit.journal(run.run_id)).tokens() == [1, 2]


def holding_heartbeats_back(until: asyncio.Event) -> Any:
    """Hold heartbeats back until then, as a network might."""

    async def before(name: str, _args: Any) -> None:
        if name == "heartbeat_run":
            await until.wait()

    return before


@pytest.mark.parametrize("where", ["await", "act"])
async def test_an_app_in_a_thread_is_abandoned_at_its_next_step(
    kit: AppKit, hanging: Hanging, hire: Hire, where: str
) -> None:
    loses, wins = hire(), hire(ReactorsSettings())
    loses.between.before = holding_heartbeats_back(until := asyncio.Event())
    run = await kit.start_run(hanging.plain_app, where)
    await loses.recovery.once()
    await soon(hanging.hangs)
    entries = await taken_over(kit, wins, run)
    until.set()
    hanging.let_thread_go_on()
    async with asyncio.timeout(20):
        await loses.recovery.settled()
    assert hanging.paid.count(2) == 1
    assert len(await kit.read_run(run.run_id)) == entries


async def test_an_act_in_a_thread_keeps_its_run_from_being_driven_here_again(
    kit: AppKit, hanging: Hanging, hire: Hire
) -> None:
    """Else one process would do one act twice at once, whatever its lease says."""
    worker = hire()
    run = await kit.start_run(hanging.app, "thread")
    await worker.recovery.once()
    await soon(hanging.hangs)
    lost = asyncio.Event()

    async def lose(name: str, _args: Any) -> None:
        if name == "heartbeat_run":
            lost.set()
            raise StaleLease

    worker.between.before = lose
    await soon(lost)
    kit.clock.advance(LEASE_S + 1)
    assert await worker.recovery.once() == 0
    assert (await found(kit, run)).fencing_token == 1
    hanging.let_thread_go_on()
    await worker.recovery.settled()


WRITES = {"extend_run", "write_value", "record_events", "release_run", "begin_run"}


@pytest.mark.parametrize("paused_at", range(1, 9))
@pytest.mark.parametrize("colour", ["async", "thread"])
async def test_a_driver_that_was_taken_over_writes_nothing(
    kit: AppKit, apps: Apps, hire: Hire, paused_at: int, colour: str
) -> None:
    """It is held up at each of its writes in turn, and goes on when another has finished."""
    paid: list[str] = []

    @tape.effect(registry=apps)
    async def pay(cents: int) -> int:
        paid.append(f"{cents} {tape.idempotency_key()}")
        return cents

    @tape.app("child", registry=apps, pool="elsewhere")
    def child(ctx: SyncContext) -> None: ...

    @tape.app("works", registry=apps)
    async def works(ctx: Context) -> str:
        await pay(1)
        await ctx.set_value("ns", "k", 1)
        await ctx.record("worked")
        await ctx.start(child)
        await ctx.decide("m", None, ctx.heartbeat)
        await pay(2)
        return "done"

    @tape.app("works in a thread", registry=apps)
    def works_plainly(ctx: SyncContext) -> str:
        ctx.call(pay, 1)
        ctx.set_value("ns", "k", 1)
        ctx.record("worked")
        ctx.start(child)
        ctx.decide("m", None, ctx.heartbeat)
        ctx.call(pay, 2)
        return "done"

    loses, wins = hire(ReactorsSettings()), hire(ReactorsSettings())
    paused, resume = asyncio.Event(), asyncio.Event()
    writes: list[str] = []

    async def pause(name: str, _args: Any) -> None:
        if name in WRITES:
            writes.append(name)
            if len(writes) == paused_at:
                paused.set()
                await resume.wait()

    loses.between.before = pause
    run = await kit.start_run(works if colour == "async" else works_plainly)
    await loses.recovery.once()
    if not await either(paused, loses.recovery.settled()):
        assert paused_at > 6
        assert outcome(await found(kit, run)) == "done"
        return
    entries = await taken_over(kit, wins, run)
    done = list(paid)
    resume.set()
    async with asyncio.timeout(20):
        await loses.recovery.settled()
    assert len(await kit.read_run(run.run_id)) == entries
    assert paid == done
    assert len(set(paid)) == 2
    assert (await kit.journal(run.run_id)).tokens() == [1, 2]


async def either(event: asyncio.Event, otherwise: Any) -> bool:
    """Whether the event came, or the other thing before it."""
    waiting = [asyncio.ensure_future(event.wait()), asyncio.ensure_future(otherwise)]
    done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED, timeout=20)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert done
    return event.is_set()


@pytest.mark.parametrize("app", ["app", "plain_app"])
async def test_what_was_begun_is_not_done_if_the_lease_is_gone_by_then(
    kit: AppKit, hanging: Hanging, hire: Hire, app: str
) -> None:
    """The write was in time, and its answer was not."""
    loses, wins = hire(), hire(ReactorsSettings())
    answered, resume = asyncio.Event(), asyncio.Event()

    async def hold_answer(name: str, args: Any) -> None:
        if name == "extend_run" and not answered.is_set():
            answered.set()
            await resume.wait()

    loses.between.after = hold_answer
    loses.between.before = holding_heartbeats_back(until := asyncio.Event())
    gone = asyncio.Event()
    loses.keeper._lose = noting(loses.keeper._lose, gone)  # type: ignore[method-assign]
    hanging.go_on.set()
    hanging.let_thread_go_on()
    run = await kit.start_run(getattr(hanging, app), "await")
    await loses.recovery.once()
    await soon(answered)
    await taken_over(kit, wins, run)
    until.set()
    await soon(gone)
    resume.set()
    await loses.recovery.settled()
    assert hanging.paid == [1, 2]


def noting(call: Callable[..., None], event: asyncio.Event) -> Callable[..., None]:
    def noted(*args: Any) -> None:
        call(*args)
        event.set()

    return noted


async def test_the_lease_is_kept_while_the_journal_is_read(
    kit: AppKit, hanging: Hanging, hire: Hire
) -> None:
    worker, beaten = hire(), asyncio.Event()

    async def read_slowly(name: str, _args: Any) -> None:
        if name == "read_run":
            await beaten.wait()

    async def note(name: str, _args: Any) -> None:
        if name == "heartbeat_run":
            beaten.set()

    worker.between.before, worker.between.after = read_slowly, note
    hanging.go_on.set()
    run = await kit.start_run(hanging.app, "await")
    await worker.drive()
    assert outcome(await found(kit, run)) == "done"


class Heart:
    """The runs of a keeper: whether their leases are renewed."""

    def __init__(self) -> None:
        self.renewed: list[str] = []
        self.errors: dict[str, BaseException] = {}
        self.hung: set[str] = set()

    async def heartbeat_run(self, run_id: str, token: int, ttl_ms: int) -> Run:
        if run_id in self.hung:
            await asyncio.Event().wait()
        if run_id in self.errors:
            raise self.errors[run_id]
        self.renewed.append(run_id)
        return a_run(run_id)


def a_run(run_id: str) -> Run:
    return Run(run_id, "app", "", "", "1", "shared", RunStatus.RUNNING, 1, "me", "", 0, 1, 0, 0)


def unexpected(what: object) -> None:
    pytest.fail(repr(what))


async def test_leases_that_are_not_renewed_are_given_up_before_they_are_over() -> None:
    heart, ttl_s = Heart(), 3.0
    heart.errors = {"away": StoreUnavailable(), "odd": OSError("no route")}
    heart.hung = {"hung"}
    keeper = LeaseKeeper(heart, ReactorSettings(ttl_s))  # type: ignore[arg-type]
    loop, all_lost = asyncio.get_running_loop(), asyncio.Event()
    lost: dict[str, tuple[float, BaseException]] = {}

    def losing(name: str) -> Callable[[BaseException], None]:
        def on_lost(error: BaseException) -> None:
            lost[name] = (loop.time(), error)
            if len(lost) == 3:
                all_lost.set()

        return on_lost

    granted = loop.time()
    held = [keeper.hold(a_run(name), losing(name), unexpected) for name in ("away", "odd", "hung")]
    held.append(keeper.hold(a_run("good"), unexpected, lambda _run: None))
    await soon(all_lost)
    for one in held:
        keeper.let_go(one)
    await keeper.close()
    assert all(ttl_s / 2 < when - granted < ttl_s for when, _ in lost.values())
    kinds = {name: type(error) for name, (_, error) in lost.items()}
    assert kinds == {"away": StoreUnavailable, "odd": OSError, "hung": TimeoutError}
    assert heart.renewed == ["good", "good"]


async def test_who_loses_the_race_for_a_run_backs_off(
    kit: AppKit, hanging: Hanging, hire: Hire
) -> None:
    settings = ReactorsSettings(backoff_first_s=1.0, backoff_most_s=3.0)
    first, second = hire(settings), hire(settings)
    both_have_seen_it = asyncio.Barrier(2)

    async def race(name: str, _args: Any) -> None:
        if name == "resume_run":
            await both_have_seen_it.wait()

    befores = [worker.between.before for worker in (first, second)]
    first.between.before = second.between.before = race
    run = await kit.start_run(hanging.app, "await")
    taken = await asyncio.gather(first.recovery.once(), second.recovery.once())
    first.between.before, second.between.before = befores
    assert sorted(taken) == [0, 1]
    await soon(hanging.hangs)
    loser = second if taken[0] else first
    kit.clock.advance(LEASE_S + 1)
    assert await loser.recovery.once() == 0
    backoff = loser.recovery._backoffs.by_name[run.run_id]
    assert 0.4 < backoff.until - asyncio.get_running_loop().time() < 1.0

    async def held(name: str, _args: Any) -> None:
        if name == "resume_run":
            raise LeaseHeld

    loser.between.before = held
    pauses = []
    for _ in range(4):
        pauses.append(loser.recovery._backoffs.by_name[run.run_id].pause_s)
        loser.recovery._backoffs.by_name[run.run_id].until = 0
        assert await loser.recovery.once() == 0
    assert pauses == [1.0, 2.0, 3.0, 3.0]
    loser.between.before = holding_heartbeats_back(asyncio.Event())
    loser.recovery._backoffs.by_name[run.run_id].until = 0
    assert await loser.recovery.once() == 1
    assert loser.recovery._backoffs.by_name == {}


async def test_who_cannot_have_one_run_still_drives_the_others(
    kit: AppKit, hanging: Hanging, hire: Hire
) -> None:
    """They are its own by now: nobody else could drive them until their leases are over."""
    hanging.go_on.set()
    runs = [await kit.start_run(hanging.app, "await") for _ in range(3)]
    worker = hire(ReactorsSettings())

    async def fail(name: str, args: Any) -> None:
        if name == "resume_run" and args[0] == runs[1].run_id:
            raise StoreUnavailable

    worker.between.before = fail
    with pytest.raises(StoreUnavailable):
        await worker.recovery.once()
    await worker.recovery.settled()
    statuses = [RunStatus((await found(kit, run)).status) for run in runs]
    assert statuses == [RunStatus.TERMINAL, RunStatus.RUNNABLE, RunStatus.TERMINAL]


async def test_a_worker_that_stops_lets_go_at_once(
    kit: AppKit, hanging: Hanging, hire: Hire
) -> None:
    leaves, stays = hire(), hire()
    run = await kit.start_run(hanging.app, "await")
    await leaves.recovery.once()
    await soon(hanging.hangs)
    await leaves.recovery.drain(0)
    assert hanging.cut_off == ["here"]
    let_go = await found(kit, run)
    assert (let_go.status, let_go.lease_owner) == (RunStatus.RUNNABLE, "")
    journal = await kit.journal(run.run_id)
    assert journal.effects("pay") == ["confirmed"]  # what is known is not left behind
    await stays.drive()
    assert outcome(await found(kit, run)) == "done"
    assert hanging.paid == [1, 2]


async def test_a_worker_that_stops_right_after_it_took_a_run_lets_go(
    kit: AppKit, hanging: Hanging, hire: Hire
) -> None:
    leaves, stays = hire(), hire()
    hanging.go_on.set()
    run = await kit.start_run(hanging.app, "await")
    assert await leaves.recovery.once() == 1
    await leaves.recovery.drain(0)
    assert leaves.recovery._driving == {}
    assert (await found(kit, run)).lease_owner == ""
    await stays.drive()
    assert outcome(await found(kit, run)) == "done"


@pytest.mark.parametrize("app", ["app", "plain_app"])
async def test_a_worker_that_stops_keeps_what_it_cannot_cut_off(
    kit: AppKit, hanging: Hanging, hire: Hire, monkeypatch: pytest.MonkeyPatch, app: str
) -> None:
    """Another would do the act a second time while it is still being done here."""
    monkeypatch.setattr(drive, "LET_GO_S", 0.05)
    leaves, stays = hire(STILL), hire()
    run = await kit.start_run(getattr(hanging, app), "thread")
    await leaves.recovery.once()
    await soon(hanging.hangs)
    await leaves.recovery.drain(0)
    assert (await found(kit, run)).lease_owner == "worker-0"
    assert await stays.recovery.once() == 0
    hanging.let_thread_go_on()
    kit.clock.advance(LEASE_S + 1)
    await stays.drive()
    assert outcome(await found(kit, run)) == "done"


async def test_runs_that_have_no_thread_yet_are_let_go_of(
    kit: AppKit, hanging: Hanging, hire: Hire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drive, "LET_GO_S", 0.05)
    worker = hire()
    worker.recovery.driver._executor = HandlerThreads(1)
    runs = [await kit.start_run(hanging.plain_app, "await") for _ in range(3)]
    await worker.recovery.once()
    await soon(hanging.hangs)
    await worker.recovery.drain(0)
    hanging.let_thread_go_on()
    owners = sorted([(await found(kit, run)).lease_owner for run in runs])
    assert owners == ["", "", "worker-0"]
    assert hanging.paid == [1]


async def test_a_worker_takes_the_runs_of_its_pool_and_apps_alone(
    kit: AppKit, apps: Apps, hanging: Hanging, hire: Hire
) -> None:
    hanging.go_on.set()
    other_pool = await kit.start_run(hanging.app, "await", pool="other")
    unknown_app = await kit.start_run("somebody else's")
    ours = await kit.start_run(hanging.app, "await")
    worker = hire()
    await worker.drive()
    assert outcome(await found(kit, ours)) == "done"
    for run in (other_pool, unknown_app):
        assert (await found(kit, run)).status == RunStatus.RUNNABLE
    worker.recovery.pool = "other"
    await worker.drive()
    assert outcome(await found(kit, other_pool)) == "done"


async def test_so_many_are_driven_at_a_time(kit: AppKit, apps: Apps, hire: Hire) -> None:
    go_on, full, at_once, most = asyncio.Event(), asyncio.Event(), set(), []

    @tape.app("slow", registry=apps)
    async def slow(ctx: Context) -> None:
        at_once.add(ctx.run_id)
        most.append(len(at_once))
        if len(at_once) == 3:
            full.set()
        await go_on.wait()
        at_once.discard(ctx.run_id)

    runs = [await kit.start_run(slow) for _ in range(7)]
    worker = hire(replace(BEATING, runs=3, poll_s=0.01))
    assert await worker.recovery.once() == 3
    assert await worker.recovery.once() == 0
    await soon(full)
    go_on.set()
    await worker.recovery.settled()
    await worker.drive()
    assert max(most) == 3
    assert {(await found(kit, run)).status for run in runs} == {RunStatus.TERMINAL}


async def test_a_run_that_waits_is_cancelled_at_once(kit: AppKit, apps: Apps) -> None:
    @tape.app("waits", registry=apps)
    async def waits(ctx: Context) -> None:
        await ctx.gate("go")

    run = await ran(kit, waits)
    cancelled = await kit.cancel_run(run.run_id, "too late")
    assert cancelled.status == RunStatus.CANCELLED
    assert outcome(await found(kit, run)) == {"cancelled": "too late"}
    assert not await kit.send_signal(run.run_id, "go")


async def test_a_run_that_is_driven_is_told_by_its_next_effect(
    kit: AppKit, hanging: Hanging, hire: Hire
) -> None:
    worker = hire(ReactorsSettings())
    run = await kit.start_run(hanging.app, "await")
    await worker.recovery.once()
    await soon(hanging.hangs)
    asked = await kit.cancel_run(run.run_id, "too late")
    assert asked.status == RunStatus.RUNNING
    hanging.go_on.set()
    await worker.recovery.settled()
    ended = await found(kit, run)
    assert ended.status == RunStatus.CANCELLED
    assert "too late" in outcome(ended)["cancelled"]
    assert hanging.paid == [1]


async def test_a_run_that_is_driven_is_told_by_its_heartbeat(
    kit: AppKit, apps: Apps, hire: Hire
) -> None:
    seen: list[str] = []
    hangs, go_on = asyncio.Event(), asyncio.Event()

    @tape.app("looks", registry=apps)
    async def looks(ctx: Context) -> None:
        hangs.set()
        await go_on.wait()
        assert tape.is_cancelled()
        for step in (lambda: ctx.gate("go"), lambda: ctx.sleep(1), lambda: ctx.record("x")):
            with pytest.raises(RunCancelled):
                await step()
            seen.append("refused")
        raise RunCancelled

    worker = hire()
    run = await kit.start_run(looks)
    await worker.recovery.once()
    await soon(hangs)
    await kit.cancel_run(run.run_id, "too late")
    await worker.beat()
    go_on.set()
    await worker.recovery.settled()
    assert seen == ["refused"] * 3
    assert outcome(await found(kit, run)) == {"cancelled": "too late"}


async def test_a_run_that_was_about_to_wait_is_cancelled(
    kit: AppKit, hire: Hire, apps: Apps
) -> None:
    @tape.app("waits", registry=apps)
    async def waits(ctx: Context) -> None:
        await ctx.gate("go")

    worker = hire(ReactorsSettings())
    run = await kit.start_run(waits)

    async def cancel(name: str, _args: Any) -> None:
        if name == "release_run":
            await kit.cancel_run(run.run_id, "too late")

    worker.between.before = cancel
    await worker.drive()
    assert outcome(await found(kit, run)) == {"cancelled": "too late"}


@pytest.mark.parametrize("driven", [True, False])
async def test_what_a_cancelled_run_has_done_is_undone_newest_first(
    kit: AppKit, apps: Apps, driven: bool
) -> None:
    undone: list[int] = []
    hangs, go_on = asyncio.Event(), asyncio.Event()

    def unpay(response: int) -> None:
        undone.append(response)

    @tape.effect(registry=apps, compensate=unpay)
    async def pay(cents: int) -> int:
        return cents

    @tape.app("pays", registry=apps)
    async def pays(ctx: Context) -> None:
        await pay(1)
        await pay(2)
        if driven:
            hangs.set()
            await go_on.wait()
        else:
            await ctx.gate("go")
        await pay(3)

    run = await kit.start_run(pays)
    driving = asyncio.create_task(kit.work())
    if driven:
        await soon(hangs)
        asked = await kit.cancel_run(run.run_id, "too late")
        assert asked.status == RunStatus.RUNNING
        go_on.set()
        await driving
    else:
        await driving
        asked = await kit.cancel_run(run.run_id, "too late")
        assert asked.status == RunStatus.COMPENSATING
    ended = await gone_on(kit, run)
    assert ended.status == RunStatus.CANCELLED
    assert undone == [2, 1]
