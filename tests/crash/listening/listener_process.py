"""A process that listens as servers and workers do, on a real source, and notes where it is."""

import asyncio
import contextlib
import os
import signal
from pathlib import Path
from typing import Any, Final, NamedTuple

from tape.bus import Bus
from tape.model.subscription import SubscriptionState
from tape.model.subscription_spec import SourceKind, SourceSpec
from tape.settings import ListenerSettings, Settings, SqliteSettings
from tape.sources.by_spec import open_source
from tape.stores.by_url import open_store
from tape.subscriptions import operations
from tape.subscriptions.keep_listening import KeepListening
from tests.crash.listening.tracing import REPORTS, TracedOperations, TracedSource, trace
from tests.crash.listening.trail import Spot, Trail
from tests.crash.listening.truth import FETCHED
from tests.integration.sources.credentials import opened

NAME: Final = "orders"
LEASE_S: Final = 1.0
DUE_AGAIN_MS: Final = 150
"""As cadences go by minutes, a moment stands for one."""
REPORTED_S: Final = 20.0
FETCHED_S: Final = 1.0
"""So long a move waits for something to be on its way."""


class Listening(NamedTuple):
    """What a listening process is given. It is killed at `spot`, or stops itself there.

    `awaits_report`: the first messages are offered only when the source has extended its claim on
    them. `moves`: it also moves the subscription, by these verbs.
    """

    store_url: str
    kind: SourceKind
    credential: Any
    trail: Path
    spot: Spot | None = None
    stops: bool = False
    awaits_report: bool = False
    moves: tuple[str, ...] = ()
    lease_s: float = LEASE_S

    def fetched(self, number: int) -> Path:
        """Of each source that it opens, one after the other."""
        return self.trail.with_suffix(f".{number}{FETCHED}")

    @property
    def ready(self) -> Path:
        """Is there once it can be asked to end."""
        return self.trail.with_suffix(".ready")

    @property
    def log(self) -> Path:
        return self.trail.with_suffix(".log")


def settings(lease_s: float = LEASE_S) -> Settings:
    listeners = ListenerSettings(lease_s=lease_s, look_s=0.1, grace_s=20.0)
    return Settings(sqlite=SqliteSettings(poll_s=0.02), listeners=listeners)


def listen(given: Listening) -> None:
    """Until SIGTERM."""
    os.dup2(os.open(given.log, os.O_CREAT | os.O_APPEND | os.O_WRONLY), 2)
    vars(operations)["next_due_ms"] = lambda _cadence, after_ms: after_ms + DUE_AGAIN_MS
    trail = Trail(given.trail, given.store_url, given.spot, stops=given.stops)
    trace(trail, given.kind)
    asyncio.run(_listen(given, trail))


async def _listen(given: Listening, trail: Trail) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    given.ready.touch()
    ours = settings(given.lease_s)
    bus = Bus(await open_store(given.store_url, ours), ours)

    async def open_traced(spec: SourceSpec, name: str) -> Any:
        trail.note("before opening the source")
        source = await open_source(spec, opened(given.credential), name=name)
        trail.note("after opening the source")
        number = trail.seen["after opening the source"]
        return TracedSource(source, trail, given.fetched(number))

    async def until_reported() -> None:
        if given.awaits_report:
            await _until(trail, REPORTS[given.kind])

    traced: Any = TracedOperations(bus.subscriptions, trail, until_reported)
    keeper = KeepListening(
        traced, open_traced, lambda _row: True, ours.listeners, owner=f"listener-{os.getpid()}"
    )
    listening = asyncio.create_task(keeper.run(stop))
    for verb in given.moves:
        await _move(traced, verb, trail)
    await listening
    await bus.close()


async def _until(trail: Trail, name: str) -> None:
    async with asyncio.timeout(REPORTED_S):
        while not trail.seen[name]:  # noqa: ASYNC110 - threads note, too
            await asyncio.sleep(0.01)


async def _move(subscriptions: Any, verb: str, trail: Trail) -> None:
    """Move it while something is on its way, if its state allows that."""
    if (await _state(subscriptions)) == SubscriptionState.ACTIVE:
        fetched = trail.seen["after fetch"]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FETCHED_S):
                while trail.seen["after fetch"] == fetched:  # noqa: ASYNC110 - likewise
                    await asyncio.sleep(0.005)
    await subscriptions.move_subscription(NAME, verb)
    while (await _state(subscriptions)) == SubscriptionState.DRAINING:  # noqa: ASYNC110
        await asyncio.sleep(0.02)


async def _state(subscriptions: Any) -> str:
    view = await subscriptions.get_subscription(NAME)
    state: str = view.subscription.state
    return state
