"""The loop of a reactor: woken, on time, patient with what goes wrong, and gone when told."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager

import pytest

from tape.bus import FollowQuery
from tape.errors import AckLost, StoreUnavailable
from tape.runs.declare import Observed, app, effect
from tape.runs.driving.context import Context
from tape.runs.driving.run_here import new_run
from tape.runs.reactors.reactor import Listen, Reactor, Ring, jittered, react
from tape.settings import ReactorsSettings
from tests.unit.runs.durable import World

NEVER_S = 3600.0
ASLEEP = ReactorsSettings(poll_s=NEVER_S, backoff_first_s=NEVER_S, backoff_most_s=NEVER_S)


class Counting:
    """A reactor that tells of each look, and finds or raises what it was given."""

    name = "counting"
    patterns: Sequence[str] = ("/tape/a/**", "/tape/b/**")

    def __init__(self, *finds: int | Exception, due: float | None = None) -> None:
        self._finds = list(finds)
        self._due = due
        self.looks = 0
        self._looked = asyncio.Condition()

    async def once(self) -> int:
        async with self._looked:
            self.looks += 1
            self._looked.notify_all()
        found = self._finds.pop(0) if self._finds else 0
        if isinstance(found, Exception):
            raise found
        return found

    async def due_in_s(self) -> float | None:
        return self._due

    async def looked(self, times: int) -> None:
        async with asyncio.timeout(10), self._looked:
            await self._looked.wait_for(lambda: self.looks >= times)


class Bells:
    """Keeps the ring of each pattern."""

    def __init__(self) -> None:
        self.rings: dict[str, Ring] = {}
        self.gone: list[str] = []

    async def listen(self, pattern: str, ring: Ring) -> None:
        self.rings[pattern] = ring
        try:
            await asyncio.Event().wait()
        finally:
            self.gone.append(pattern)


async def deaf(_pattern: str, _ring: Ring) -> None:
    await asyncio.Event().wait()


@asynccontextmanager
async def reacting(
    reactor: Reactor, listen: Listen = deaf, settings: ReactorsSettings = ASLEEP
) -> AsyncIterator[Callable[[], None]]:
    """With the loop running; ends when it has."""
    stop = asyncio.Event()
    task = asyncio.create_task(react(reactor, listen, settings, stop))
    try:
        yield stop.set
    finally:
        stop.set()
        async with asyncio.timeout(10):
            await task


async def test_it_looks_until_there_is_nothing_more() -> None:
    reactor = Counting(3, 1)
    async with reacting(reactor):
        await reactor.looked(3)
    assert reactor.looks == 3


async def test_each_of_its_patterns_wakes_it() -> None:
    reactor, bells = Counting(), Bells()
    async with reacting(reactor, bells.listen):
        await reactor.looked(1)
        for times, pattern in enumerate(("/tape/a/**", "/tape/b/**"), 2):
            bells.rings[pattern]()
            await reactor.looked(times)
    assert sorted(bells.gone) == ["/tape/a/**", "/tape/b/**"]


async def test_it_comes_back_when_more_is_due() -> None:
    reactor = Counting(due=0.0)
    async with reacting(reactor):
        await reactor.looked(3)


async def test_it_looks_now_and_then_though_nothing_wakes_it() -> None:
    reactor = Counting(due=NEVER_S)
    async with reacting(reactor, settings=ReactorsSettings(poll_s=0.001)):
        await reactor.looked(3)


async def test_it_outlives_a_store_that_is_away(caplog: pytest.LogCaptureFixture) -> None:
    reactor = Counting(StoreUnavailable("away"), StoreUnavailable("away"), 0)
    patient = ReactorsSettings(backoff_first_s=0.001, backoff_most_s=0.002, poll_s=NEVER_S)
    with caplog.at_level(logging.WARNING):
        async with reacting(reactor, settings=patient):
            await reactor.looked(3)
    assert caplog.text.count("counting waits: away") == 1
    assert caplog.text.count("counting goes on after") == 1


async def test_it_may_be_woken_from_a_pause() -> None:
    reactor, bells = Counting(StoreUnavailable("away")), Bells()
    async with reacting(reactor, bells.listen):
        await reactor.looked(1)
        bells.rings["/tape/a/**"]()
        await reactor.looked(2)


async def test_one_that_cannot_listen_still_looks(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(_pattern: str, _ring: Ring) -> None:
        raise StoreUnavailable("no bell")

    reactor = Counting()
    async with reacting(reactor, broken, ReactorsSettings(poll_s=0.001)):
        await reactor.looked(3)
    assert "listening to /tape/a/** waits: no bell" in caplog.text


async def test_a_fault_of_its_own_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        await react(Counting(ZeroDivisionError()), deaf, ASLEEP, asyncio.Event())


async def test_told_to_stop_it_does_not_look_again() -> None:
    reactor, stop = Counting(), asyncio.Event()
    stop.set()
    await react(reactor, deaf, ASLEEP, stop)
    assert reactor.looks == 0


def test_many_who_back_off_do_not_come_back_together() -> None:
    pauses = [jittered(8.0) for _ in range(1000)]
    assert min(pauses) >= 4.0
    assert max(pauses) <= 8.0
    assert max(pauses) - min(pauses) > 1.0


async def test_the_journal_alone_wakes_those_that_have_work(world: World) -> None:
    """Lost, looked for, absent, done, failed after all, undone: with nobody looking by himself."""
    acts: list[str] = []

    async def check(_key: str, _request: object) -> Observed:
        acts.append("looked")
        return Observed("absent")

    async def undo() -> None:
        acts.append("undone")

    @effect(
        semantics="non_idempotent",
        dispatch="outbox",
        check=check,
        compensate=undo,
        registry=world.apps,
    )
    async def act() -> None:
        acts.append("done")
        if acts == ["done"]:
            raise AckLost

    @app("failing", registry=world.apps)
    async def failing(ctx: Context) -> None:
        await ctx.call(act)
        raise ValueError

    async def listen(pattern: str, ring: Ring) -> None:
        async with aclosing(world.bus.follow(FollowQuery(pattern))) as pages:
            async for page in pages:
                if page.entries:
                    ring()

    reactors: list[Reactor] = [
        world.recovery,
        world.outbox(),
        world.reconciler(),
        world.compensation(),
    ]
    async with AsyncExitStack() as running:
        for reactor in reactors:
            await running.enter_async_context(reacting(reactor, listen))
        await world.runs.begin_run(new_run(failing))
        ended = asyncio.Event()
        listening = asyncio.create_task(listen("/tape/run/failed/**", ended.set))
        async with asyncio.timeout(10):
            await ended.wait()
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
    assert acts == ["done", "looked", "done", "undone"]
