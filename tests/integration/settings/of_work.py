"""The matcher, the dispatcher, the reactors and the drainers."""

import asyncio
import itertools
import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import tape
from tape.api.http.recent import _Search
from tape.bus import Bus
from tape.errors import StoreUnavailable
from tape.journal.pacer import READ_S
from tape.model.drain import Pauses
from tape.model.drainer import AcquireDrainer
from tape.model.entry import Entry
from tape.model.event import NewEvent
from tape.model.event_subscription import NewEventSubscription
from tape.model.reaction import HandlerKind, NewReaction
from tape.model.run import Run
from tape.model.task import Task
from tape.ports.matching import MatcherLease
from tape.programs.connect import open_bus
from tape.reactions.dispatch import Dispatcher, ReactionJob, _ClaimedTask
from tape.reactions.lead import Leader
from tape.reactions.match import Matcher
from tape.reactions.threads import HandlerThreads
from tape.runs.declare import Apps
from tape.runs.reactors.reactor import react
from tape.runs.reactors.recovery import Recovery
from tape.runs.reactors.run_reactors import RunReactors
from tape.settings import DispatcherSettings, Settings
from tests.integration.settings.demonstrating import (
    Demonstration,
    Demonstrations,
    Waited,
    cancelled,
    first_wait,
    said,
    told,
)

Observed = dict[str, Any]


async def _matched(settings: Settings, folder: Path) -> Observed:
    """What a matcher asks of its store while it makes twenty tasks."""
    bus = await open_bus(f"sqlite:{folder / 'tape.db'}")
    store = bus._store
    await bus.reactions.register_reaction(
        NewReaction("r", "/tape/**", HandlerKind.TASK, from_global_seq=0)
    )
    await bus.record_events([NewEvent("a")] * 20)
    limits: list[int] = []
    tasks: list[int] = []
    ttls: set[int] = set()
    made = asyncio.Event()
    real_step, real_read = store.matching.make_step, store.read_entries

    async def make_step(step: Any) -> Any:
        tasks.append(len(step.tasks))
        if sum(tasks) >= 20:
            made.set()
        ttls.add(step.ttl_ms)
        return await real_step(step)

    async def read_entries(query: Any) -> Any:
        limits.append(query.limit)
        return await real_read(query)

    lease = await store.matching.acquire_matcher("me", 60_000)
    assert lease is not None
    with (
        patch.object(store.matching, "make_step", make_step),
        patch.object(store, "read_entries", read_entries),
    ):
        matching = asyncio.create_task(Matcher(store, lease, settings.matcher).run())
        await made.wait()
        await cancelled(matching)
    await bus.close()
    return {"limits": set(limits), "tasks": max(tasks), "ttls": ttls}


async def _settles(settings: Settings, _folder: Path) -> float:
    """How soon a matcher notes that it has passed entries that made nothing."""
    store = cast("Any", SimpleNamespace(head=0))
    matcher = Matcher(store, MatcherLease("me", 1, 0), settings.matcher)
    matcher._through = 5
    loop = asyncio.get_running_loop()
    matcher._stepped_at = 10.0
    with patch.object(loop, "time", lambda: 10.0):
        return matcher._patience()


class _NobodysTasks:
    """A queue that has nothing to take back."""

    task_bell = 0

    async def read_expired(self, _limit: int) -> list[Any]:
        return []


async def _takes_back(settings: Settings, _folder: Path) -> float:
    store = SimpleNamespace(tasks=_NobodysTasks())
    leader = Leader(cast("Any", store), cast("Any", None), iter(["x"]),  # type: ignore[arg-type]
                    settings.matcher, cast("Any", None))  # fmt: skip
    return await first_wait(leader._take_back())


MATCHER: Demonstrations = {
    "ttl_s": Demonstration((3, 4), _matched),
    "settle_s": Demonstration((1, 2), _settles),
    "page_entries": Demonstration((5, 6), _matched),
    "step_tasks": Demonstration((5, 6), _matched),
    "expiry_s": Demonstration((3, 4), _takes_back),
}


class _Source:
    """Tasks that never end; what is claimed of them."""

    def __init__(self) -> None:
        self.claims: list[Any] = []

    async def claim_tasks(self, claim: Any, _wait_ms: int = 0) -> list[Any]:
        self.claims.append(claim)
        raise Waited(0)


class _Work:
    batch, threaded = 1, True

    async def do(self, _tasks: Any) -> Any:
        await asyncio.Event().wait()


def _dispatcher(settings: DispatcherSettings, source: Any) -> Dispatcher:
    return Dispatcher(source, {"r": ReactionJob(cast("Any", _Work()), 5_000)}, "me", settings)


async def _claims(settings: Settings, _folder: Path) -> Any:
    source = _Source()
    dispatcher = _dispatcher(settings.dispatcher, source)
    wants, _limited = dispatcher._wants()
    try:
        await dispatcher._claim(wants)
    except Waited:
        return source.claims
    raise AssertionError("nothing was claimed")


def _held(dispatcher: Dispatcher) -> None:
    """A task that has been in hand for ten seconds."""
    entry = Entry._make(0 if kind is int else "" for kind in Entry.__annotations__.values())
    task = Task("r/0/1", "r", 0, 1, 2, 1, 0, "me", 0, 0, "", 0, 0, entry)
    dispatcher._held["r/0/1"] = _ClaimedTask(task, asyncio.get_running_loop().time() - 10)


async def _warns(settings: Settings, _folder: Path) -> int:
    dispatcher = _dispatcher(settings.dispatcher, None)
    _held(dispatcher)
    with patch.object(logging.getLogger("tape.dispatcher"), "warning") as warned:
        dispatcher._log_stuck(asyncio.get_running_loop().time())
    return warned.call_count


async def _finishes(settings: Settings, _folder: Path) -> float:
    dispatcher = _dispatcher(settings.dispatcher, None)
    working = asyncio.create_task(asyncio.Event().wait())
    dispatcher._working.add(cast("Any", working))
    try:
        return await first_wait(dispatcher._drain(), "asyncio.wait")
    finally:
        await cancelled(working)


DISPATCHER: Demonstrations = {
    "lease_s": Demonstration((3, 4), _claims),
    "concurrency": Demonstration((3, 4), _claims),
    "threads": Demonstration((3, 4), _claims),
    "claim_most": Demonstration((3, 4), _claims),
    "grace_s": Demonstration((3, 4), _finishes),
    "stuck_s": Demonstration((5, 50), _warns),
}


def _leased(find: Callable[[RunReactors], Any]) -> Callable[[Settings, Path], Any]:
    """How long a reactor of a worker takes claims for, and how soon it renews one."""

    async def observe(settings: Settings, _folder: Path) -> Any:
        operations = cast("Any", SimpleNamespace(runs=None))
        shop = RunReactors(
            operations, Apps(), settings.reactors, HandlerThreads(1), owner="me", pool="p"
        )
        claims = find(shop)
        far = asyncio.get_running_loop().time() + 1e6
        return claims._ttl_ms, claims._pause_s(far)

    return observe


async def _recovers(settings: Settings, _folder: Path) -> Any:
    operations = cast("Any", SimpleNamespace(runs=None))
    shop = RunReactors(
        operations, Apps(), settings.reactors, HandlerThreads(1), owner="me", pool="p"
    )
    taker = cast("Recovery", shop._begins[0]).taker
    return taker.ttl_ms, await first_wait(shop._keeper._renew_all())


async def _runs_here(settings: Settings, folder: Path) -> Any:
    url = f"sqlite:{folder / 'tape.db'}"
    async with tape.connect_async(url, settings=settings) as client:
        here = client._running_here()
        heartbeat = await first_wait(here._keeper._renew_all())
        return here._taker.ttl_ms, heartbeat, cast("Any", here._executor)._most


class _Fails:
    name, patterns = "fails", ()

    async def once(self) -> int:
        raise StoreUnavailable

    async def due_in_s(self) -> None:
        return None


class _Idles(_Fails):
    async def once(self) -> int:
        return 0


def _pauses(reactor: Any, times: int) -> Callable[[Settings, Path], Any]:
    async def observe(settings: Settings, _folder: Path) -> list[float]:
        pauses: list[float] = []
        stop = asyncio.Event()

        async def wait(_wake: Any, _stopping: Any, seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == times:
                stop.set()

        with (
            patch("tape.runs.reactors.reactor._wait_any", wait),
            patch("tape.runs.reactors.reactor.jittered", lambda pause: pause),
        ):
            await react(reactor, cast("Any", None), settings.reactors, stop)
        return pauses

    return observe


async def _asks_for_runs(settings: Settings, _folder: Path) -> list[Any]:
    asked: list[Any] = []

    async def list_runs_to_recover(query: Any) -> list[Run]:
        asked.append(query)
        return []

    apps = Apps()
    tape.app("desk", registry=apps)(lambda ctx: None)
    runs = cast("Any", SimpleNamespace(list_runs_to_recover=list_runs_to_recover))
    recovery = Recovery(runs, cast("Any", None), apps, settings.reactors, cast("Any", None), "p")
    await recovery.once()
    return asked


REACTORS: Demonstrations = {
    **{
        f"{name}.{knob}": Demonstration((3, 4), observe)
        for name, observe in {
            "recovery": _recovers,
            "outbox": _leased(lambda shop: cast("Any", shop._begins[1])._claims),
            "reconciler": _leased(lambda shop: cast("Any", shop._begins[2])._claims),
            "compensation": _leased(lambda shop: cast("Any", shop._begins[3])._claims),
            "agent": _runs_here,
        }.items()
        for knob in ("lease_ttl_s", "heartbeat_s")
    },
    "backoff_first_s": Demonstration((1, 2), _pauses(_Fails(), 3)),
    "backoff_most_s": Demonstration((2, 3), _pauses(_Fails(), 4)),
    "poll_s": Demonstration((1, 2), _pauses(_Idles(), 1)),
    "runs": Demonstration((3, 4), _asks_for_runs),
    "threads": Demonstration((3, 4), _runs_here),
}


async def _drained(settings: Settings, folder: Path) -> Any:
    """What a drainer is sent to do, and for how long it has the right to."""
    bus: Bus = await open_bus(f"sqlite:{folder / 'tape.db'}", settings)
    await bus.ledger.put_event_subscription(NewEventSubscription("s", "a.*", "app", "d", "", ""))
    moves: list[Any] = []
    errands: list[Any] = []
    drain = bus.ledger._drain
    real = drain.make_pass

    async def make_pass(errand: Any) -> Any:
        errands.append(errand)
        with patch("tape.ledger.drain.AcquireDrainer", _noting(moves)):
            return await real(errand)

    with patch.object(drain, "make_pass", make_pass):
        await bus.ledger.drain("d")
    await bus.close()
    return errands, moves


def _noting(moves: list[Any]) -> Any:
    def make(drainer_id: str, owner: str, ttl_ms: int, limits: Any) -> AcquireDrainer:
        moves.append(ttl_ms)
        return AcquireDrainer(drainer_id, owner, ttl_ms, limits)

    return make


async def _halts(settings: Settings, folder: Path) -> Any:
    """How long a drainer that has halted is left alone at first, and at most."""
    bus = await open_bus(f"sqlite:{folder / 'tape.db'}", settings)
    await bus.ledger.put_event_subscription(
        NewEventSubscription("s", "a.*", "app", "d", '{"x": "$.payload.missing"}', "")
    )
    await bus.record_events([NewEvent("a.b", "{}")])
    pauses: list[tuple[int, int]] = []

    def noting(first_ms: int, most_ms: int, chance: float) -> Pauses:
        pauses.append((first_ms, most_ms))
        return Pauses(first_ms, most_ms, chance)

    with patch("tape.ledger.drain.Pauses", noting):
        await bus.ledger.drain("d")
    await bus.close()
    assert pauses
    return pauses


DRAINERS: Demonstrations = {
    "lease_s": Demonstration((3, 4), _drained),
    "page": Demonstration((3, 4), _drained),
    "await_s": Demonstration((3, 4), _drained),
    "retry_s": Demonstration((3, 4), _halts),
    "retry_most_s": Demonstration((50, 60), _halts),
}


def _clock() -> Callable[[], float]:
    """A millisecond passes whenever it is asked."""
    moments = itertools.count()
    return lambda: next(moments) / 1000


async def _one_slice(settings: Settings, folder: Path) -> int:
    """How many entries one turn of a predicate decides, at a millisecond each."""
    bus = await open_bus(f"sqlite:{folder / 'tape.db'}", settings)
    turns, decided = bus.pacer.turns(), 0

    def deciding() -> Any:
        nonlocal decided
        while True:
            decided += 1
            yield 1

    with patch("tape.journal.pacer.perf_counter", _clock()):
        await turns._slice(deciding(), is_light=True, is_held=False)
    await bus.close()
    return decided


async def _rests(settings: Settings, folder: Path) -> float:
    """How long predicates rest after one that took a second."""
    bus = await open_bus(f"sqlite:{folder / 'tape.db'}", settings)
    turns, loop = bus.pacer.turns(), asyncio.get_running_loop()
    with patch("tape.journal.pacer.perf_counter", lambda: 0.0):
        bus.pacer._counted_at = 0.0
        turns.pay_for_reading(0, int(1 / READ_S))
        with patch.object(loop, "call_later") as later:
            resting = asyncio.create_task(turns.until_paid(is_light=True))
            await asyncio.sleep(0)
    resting.cancel()
    await bus.close()
    return float(later.call_args.args[0])


async def _searches(settings: Settings, folder: Path) -> float:
    """For how long a request looks for entries."""
    bus = await open_bus(f"sqlite:{folder / 'tape.db'}", settings)
    door = cast("Any", SimpleNamespace(pacer=bus.pacer))
    with patch("tape.api.http.recent.time.monotonic", lambda: 0.0):
        search = _Search(door, cast("Any", None), bus.pacer.turns(), 1)
    await bus.close()
    return search._until


async def _apart(settings: Settings, folder: Path) -> set[float]:
    """For how long the matcher puts up with a reaction among the others."""
    bus = await open_bus(f"sqlite:{folder / 'tape.db'}", settings)
    lease = await bus._store.matching.acquire_matcher("me", 60_000)
    assert lease is not None
    matcher = Matcher(bus._store, lease, settings.matcher, bus.pacer)
    with told("tape.reactions.match.Matching", StoreUnavailable()) as calls:
        page = cast("Any", SimpleNamespace(entries=[], through=0))
        await said(matcher._match(page))
    await bus.close()
    return {args[4] for args, _options in calls}


PREDICATES: Demonstrations = {
    "slice_s": Demonstration((0.005, 0.01), _one_slice),
    "share": Demonstration((0.1, 0.5), _rests),
    "request_s": Demonstration((1, 2), _searches),
    "page_s": Demonstration((1, 2), _apart),
}

OF_WORK: Demonstrations = {
    f"{section}.{name}": each
    for section, demonstrations in (
        ("matcher", MATCHER), ("dispatcher", DISPATCHER), ("reactors", REACTORS),
        ("drainers", DRAINERS), ("predicates", PREDICATES),
    )
    for name, each in demonstrations.items()
}  # fmt: skip
