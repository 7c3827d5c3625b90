"""Runs as drivers, reactors and the world outside would begin and change them."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from tape.model.lease import (
    WHOEVER,
    BeginRun,
    Begun,
    HeartbeatRun,
    NewRun,
    ReleaseRun,
    ResumeRun,
    Taker,
)
from tape.model.move import Decision, Move, Need, State
from tape.model.run import RUNS, Run, RunName, RunStatus
from tape.model.run_change import IDS_PER_WRITE, ChangeRun, ExtendRun
from tape.model.run_end import EndRun
from tape.model.run_write import Extended, RunWrite
from tape.ports.store import Store
from tests.conformance.playing import IDS, LIMITS, attempt, play
from tests.conformance.reacting import until

SHORT_MS = 1
LONG_MS = 3_600_000


class Driver(NamedTuple):
    """Whoever holds, or held, the lease on a run."""

    store: Store
    run_id: str
    token: int

    async def extend(self, *writes: RunWrite) -> Extended:
        return await play(self.store, extending(self.run_id, self.token, *writes))

    async def write(self, write: RunWrite) -> Any:
        """The reply to one write."""
        return (await self.extend(write)).replies[0]

    async def tell(self, write: RunWrite) -> Any:
        """The reply to a write from outside, or by a reactor."""
        return await tell(self.store, self.run_id, write)

    async def release(self, waiting_on: str = "") -> Run:
        seen = (await self.run()).seq_cursor
        move = ReleaseRun(
            self.run_id, self.token, next(IDS), LIMITS, waiting_on=waiting_on, seen_seq=seen
        )
        return await play(self.store, move)

    async def heartbeat(self, ttl_ms: int = LONG_MS) -> Run:
        return await play(self.store, HeartbeatRun(self.run_id, self.token, ttl_ms, LIMITS))

    async def end(self, status: RunStatus = RunStatus.TERMINAL, parent_run_id: str = "") -> Run:
        run: Run = await self.write(EndRun(status, parent_run_id=parent_run_id))
        return run

    async def run(self) -> Run:
        found = await self.store.runs.get_run(self.run_id)
        assert found is not None
        return found


def beginning(name: RunName, taker: Taker, **fields: Any) -> BeginRun:
    return BeginRun(NewRun(name, **fields), taker, next(IDS), LIMITS)


def resuming(run_id: str, taker: Taker, expected_token: int = WHOEVER) -> ResumeRun:
    return ResumeRun(run_id, taker, next(IDS), LIMITS, expected_token=expected_token)


def extending(run_id: str, token: int, *writes: RunWrite) -> ExtendRun:
    ids = IDS.take(IDS_PER_WRITE * len(writes))
    return ExtendRun(run_id, token, writes, ids=ids, limits=LIMITS)


def changing(run_id: str, write: RunWrite) -> ChangeRun:
    return ChangeRun(run_id, [write], ids=IDS.take(IDS_PER_WRITE), limits=LIMITS)


async def begin(
    store: Store,
    invocation_id: str = "1",
    *,
    owner: str = "a",
    ttl_ms: int = LONG_MS,
    app_name: str = "app",
    session: tuple[str, str] = ("u", "s"),
    **fields: Any,
) -> Begun:
    name = RunName(app_name, *session, invocation_id)
    return await play(store, beginning(name, Taker(owner, "worker", ttl_ms), **fields))


async def drive(store: Store, invocation_id: str = "1", **fields: Any) -> Driver:
    """Begin a run and hold its lease."""
    begun = await begin(store, invocation_id, **fields)
    assert begun.fencing_token
    return Driver(store, begun.run.run_id, begun.fencing_token)


async def take_over(
    store: Store, run_id: str, owner: str, ttl_ms: int = LONG_MS, expected: int = WHOEVER
) -> Driver:
    run = await play(store, resuming(run_id, Taker(owner, "recovery", ttl_ms), expected))
    return Driver(store, run_id, run.fencing_token)


async def tell(store: Store, run_id: str, write: RunWrite) -> Any:
    return (await play(store, changing(run_id, write))).replies[0]


async def race(stores: Sequence[Store], moves: Iterable[Move[Any]]) -> list[Any]:
    """Each move on a store of its own, all at once; the reply or the refusal of each."""
    outcomes = await asyncio.gather(
        *(attempt(store, move) for store, move in zip(stores, moves, strict=True))
    )
    return [outcome for (outcome,) in outcomes]


class _Ask:
    """What time it is in the store."""

    weight = 1

    def needs(self) -> Iterable[Need]:
        yield Need(RUNS, "what time is it")

    def decide(self, state: State) -> Decision[int]:
        now_ms = state.now_ms
        return Decision(lambda _place: now_ms)


async def clock_of(store: Store) -> int:
    return await play(store, _Ask())


async def pass_beyond(store: Store, moment_ms: int) -> None:
    """Wait until the store's clock is later than that."""

    async def is_later() -> bool:
        return await clock_of(store) > moment_ms

    await until(is_later)
