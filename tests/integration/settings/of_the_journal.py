"""Limits, the writer, and the sessions and files of the stores."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from tape.bus import Bus, FollowQuery
from tape.errors import MessageRefused, StoreFailed, StoreUnavailable
from tape.journal.queue import MoveQueue
from tape.journal.writer import Writer
from tape.model.directive import DispatchPlan
from tape.model.entry import EntryDraft
from tape.model.event import NewEvent, RecordEvents
from tape.model.message import SourceMessage, run_input
from tape.model.reaction import HandlerKind, NewReaction
from tape.model.subscription_spec import DispatchSpec, SourceKind, SourceSpec, SubscriptionSpec
from tape.ports.tasks import Claim, Want
from tape.programs.connect import open_bus
from tape.settings import Settings
from tape.stores.postgres.connection import connect_worker, connect_writer
from tape.stores.postgres.store import PostgresStore
from tape.stores.postgres.turn import PostgresTurns
from tape.stores.sqlite.store import SqliteStore
from tests.integration.settings.demonstrating import (
    Demonstration,
    Demonstrations,
    changed,
    first_wait,
    said,
    told,
)

LONG = '"' + "x" * 900 + '"'
PG = "postgres://nobody@nowhere/none"
TASK = NewReaction("r", "/tape/**", HandlerKind.TASK)

OnBus = Callable[[Bus], Awaitable[Any]]


async def _with_bus(settings: Settings, folder: Path, *, ask: OnBus) -> Any:
    bus = await open_bus(f"sqlite:{folder / 'tape.db'}", settings)
    try:
        return await ask(bus)
    finally:
        await bus.close()


def _limit(values: tuple[int, int], ask: OnBus) -> Demonstration:
    return Demonstration(values, partial(_with_bus, ask=ask))


def _recording(*events: NewEvent) -> OnBus:
    return lambda bus: said(bus.record_events(events))


async def _first_page(bus: Bus) -> int:
    await bus.record_events([NewEvent("a", LONG)] * 5)
    pages = bus.follow(FollowQuery(max_batch=100, until=5))
    page = await anext(pages)
    await pages.aclose()
    return len(page.entries)


async def _following(bus: Bus) -> str:
    async def follow() -> None:
        await bus.follow(FollowQuery(predicate="kind == 'event' || true")).aclose()

    return await said(follow())


async def _accepted(settings: Settings, _folder: Path) -> str:
    message = SourceMessage("file", "file/a", "1", b"123")
    spec = SubscriptionSpec("s", "", "pull", SourceSpec(SourceKind.FILE), DispatchSpec("app"))
    try:
        return run_input(message, spec, DispatchPlan("app", "pool"), settings.limits)
    except MessageRefused as fault:
        return fault.because


WANTS = [Want(f"r{number}", -1, 1) for number in range(5)]
LIMITS: Demonstrations = {
    "payload_bytes": _limit((10, 1000), _recording(NewEvent("a", '"0123456789"'))),
    "json_depth": _limit((1, 9), _recording(NewEvent("a", "[[[1]]]"))),
    "name_bytes": _limit((5, 50), _recording(NewEvent("a.long.name"))),
    "subject_bytes": _limit((40, 400), _recording(NewEvent("a", entity_id="x" * 40))),
    "predicate_bytes": _limit((5, 500), _following),
    "request_events": _limit((2, 20), _recording(*[NewEvent("a")] * 3)),
    "request_bytes": _limit((1000, 100_000), _recording(*[NewEvent("a", LONG)] * 3)),
    "page_entries": _limit((2, 20), _first_page),
    "page_bytes": _limit((1500, 100_000), _first_page),
    "shards": _limit(
        (2, 20), lambda bus: said(bus.reactions.register_reaction(TASK._replace(num_shards=3)))
    ),
    "claim_tasks": _limit(
        (3, 30), lambda bus: said(bus.tasks.claim_tasks(Claim("o", 1000, WANTS), 0))
    ),
    "message_bytes": Demonstration((2, 1000), _accepted),
}


def _move(settings: Settings) -> RecordEvents:
    return RecordEvents([NewEvent("a")], ["x" * 26], settings.limits)


async def _queued(settings: Settings, _folder: Path) -> list[str]:
    """Three moves in a row, and how many are one batch."""
    writer = changed(settings, "writer.queue_wait_s", 0.001).writer
    queue = MoveQueue(writer)
    answers = [await said(queue.put(_move(settings))) for _ in range(3)]
    return [*answers, str(len(await queue.next_batch()))]


async def _waits_for_room(settings: Settings, _folder: Path) -> float:
    queue = MoveQueue(changed(settings, "writer.queue_moves", 1).writer)
    await queue.put(_move(settings))
    return await first_wait(queue.put(_move(settings)), "asyncio.wait")


class _Away:
    """Away at first, and then it refuses."""

    tries = 0

    async def commit(self, *_batch: Any) -> None:
        self.tries += 1
        raise StoreUnavailable if self.tries == 1 else StoreFailed


async def _tries(settings: Settings, _folder: Path) -> int:
    store = _Away()
    writer = Writer(store, settings.writer)  # type: ignore[arg-type]
    await said(writer.submit(_move(settings)))
    await writer.close()
    return store.tries


WRITER: Demonstrations = {
    "queue_moves": Demonstration((1, 10), _queued),
    "queue_bytes": Demonstration((100, 100_000), _queued),
    "queue_wait_s": Demonstration((1, 2), _waits_for_room),
    "batch_moves": Demonstration((1, 10), _queued),
    "batch_bytes": Demonstration((100, 100_000), _queued),
    "retry_for_s": Demonstration((0, 60), _tries),
}


async def _session(settings: Settings, _folder: Path) -> Any:
    with told("asyncpg.connect", OSError()) as calls:
        for connecting in (connect_writer(PG, settings.postgres),
                           connect_worker(PG, settings.postgres, durable=True)):  # fmt: skip
            try:
                await connecting
            except OSError:
                continue
    return [options for _args, options in calls]


async def _at_once(settings: Settings, _folder: Path) -> list[int]:
    """How many sessions of each kind are in use, if many are wanted."""
    store = PostgresStore(PG, settings.postgres)
    most = []
    for pool in (store._reading, store._quick):
        using, done = 0, asyncio.Event()

        async def connect() -> Any:
            nonlocal using
            using += 1
            await done.wait()  # noqa: B023 - of this turn of the loop
            raise StoreUnavailable

        with patch.object(pool, "_connect", connect):
            uses = [asyncio.ensure_future(said(pool.use(_nothing, again=True))) for _ in range(30)]
            for _ in range(40):
                await asyncio.sleep(0)
            most.append(using)
            done.set()
            await asyncio.gather(*uses)
    return most


async def _nothing(_connection: Any) -> None:
    """Nobody comes so far."""


async def _listens(settings: Settings, _folder: Path) -> float:
    store = PostgresStore(PG, settings.postgres)

    class Listening:
        async def __aenter__(self) -> Any:
            async def fetchval(_statement: str) -> int:
                return 0

            return SimpleNamespace(fetchval=fetchval)

        async def __aexit__(self, *_error: object) -> None: ...

    with patch.object(store, "_listening", Listening):
        return await first_wait(store._keep_listening(), "asyncio.timeout")


async def _looks_for_a_commit(settings: Settings, _folder: Path) -> str:
    turns = PostgresTurns(PG, settings.postgres)
    draft = EntryDraft._make("" for _ in EntryDraft._fields)
    with told("asyncpg.connect", OSError()), patch("asyncio.sleep", _soon):
        try:
            await turns._find([draft], 0, StoreUnavailable())
        except StoreUnavailable as error:
            return str(error)
    raise AssertionError("it was found")


async def _soon(_seconds: float) -> None:
    """A wait that is over."""


POSTGRES: Demonstrations = {
    "idle_in_transaction_s": Demonstration((3, 4), _session),
    "transaction_s": Demonstration((3, 4), _session),
    "connect_s": Demonstration((3, 4), _session),
    "poll_s": Demonstration((1, 2), _listens),
    "resolve_s": Demonstration((0.001, 0.002), _looks_for_a_commit),
    "readers": Demonstration((2, 3), _at_once),
    "workers": Demonstration((2, 3), _at_once),
}


async def _waits_for_others(settings: Settings, folder: Path) -> Any:
    with told("tape.stores.sqlite.connection.sqlite3.connect", OSError()) as calls:
        await said(_opened(settings, folder))
    return [options["timeout"] for _args, options in calls]


async def _opened(settings: Settings, folder: Path) -> None:
    try:
        await SqliteStore.open(folder / "tape.db", settings.sqlite)
    except OSError:
        return


async def _polls(settings: Settings, folder: Path) -> float:
    store = SqliteStore(folder / "tape.db", settings.sqlite)
    return await first_wait(store._keep_polling())


async def _reads_at_once(settings: Settings, folder: Path) -> int:
    store = SqliteStore(folder / "tape.db", settings.sqlite)
    most = store._reading._threads._max_workers
    await store.close()
    return most


SQLITE: Demonstrations = {
    "busy_s": Demonstration((1, 2), _waits_for_others),
    "poll_s": Demonstration((1, 2), _polls),
    "readers": Demonstration((2, 3), _reads_at_once),
}

OF_THE_JOURNAL: Demonstrations = {
    f"{section}.{name}": each
    for section, demonstrations in (
        ("limits", LIMITS), ("writer", WRITER), ("postgres", POSTGRES), ("sqlite", SQLITE),
    )
    for name, each in demonstrations.items()
}  # fmt: skip
