"""When the writer commits what, and who gets which error. The store's commit is scripted: these are
questions of scheduling, real stores are elsewhere."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from tape.errors import (
    Closed,
    InvalidArgument,
    OutcomeUnknown,
    Overloaded,
    StoreFailed,
    StoreFull,
    StoreUnavailable,
)
from tape.journal import writer as writer_module
from tape.journal.writer import Writer
from tape.model.entry import EntryDraft
from tape.model.move import Decision, EntryPlace, Need, State
from tape.ports.store import Decide, Store
from tape.settings import WriterSettings

SETTINGS = WriterSettings(retry_for_s=0.05, queue_wait_s=0.01)
Answer = Callable[[State], Exception | None]


class Move:
    """Appends one entry with its name and answers with where it is."""

    def __init__(self, name: str, *, weight: int = 1, error: Exception | None = None) -> None:
        self.name = name
        self.weight = weight
        self.error = error

    def needs(self) -> Sequence[Need]:
        return []

    def decide(self, state: State) -> Decision[int]:
        if self.error is not None:
            raise self.error
        draft = EntryDraft(self.name, "event", "/tape/event/recorded/a/_/_", "null")
        return Decision(lambda place: place.global_seq, [draft])


class ScriptedStore:
    """Commits when it is let through, and answers as it is told to."""

    def __init__(self) -> None:
        self.attempts: list[list[str]] = []
        self.journal: list[str] = []
        self.answers: list[Answer] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.started = asyncio.Event()

    async def commit(self, needs: Iterable[Need], decide: Decide) -> EntryPlace:
        list(needs)
        self.started.set()
        await self.gate.wait()
        state = State(1, len(self.journal) + 1)
        decide(state)
        names = [draft.event_id for draft in state.entries]
        self.attempts.append(names)
        if self.answers and (error := self.answers.pop(0)(state)):
            raise error
        place = EntryPlace(len(self.journal) + 1, 1)
        self.journal += names
        return place


def fails(error: Exception) -> Answer:
    return lambda _state: error


def fails_with(name: str, error: Exception) -> Answer:
    """Fails whenever the batch holds that entry."""
    return lambda state: error if any(d.event_id == name for d in state.entries) else None


def works(_state: State) -> None:
    return None


@pytest.fixture
def store() -> ScriptedStore:
    return ScriptedStore()


def start(store: ScriptedStore, settings: WriterSettings = SETTINGS) -> Writer:
    return Writer(cast("Store", store), settings)


@pytest.fixture
async def writer(store: ScriptedStore, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Writer]:
    monkeypatch.setattr(writer_module, "RETRY_FIRST_S", 0.001)
    writer = start(store)
    yield writer
    store.gate.set()
    await writer.close()


def submit(writer: Writer, *moves: Move) -> list[asyncio.Task[Any]]:
    return [asyncio.create_task(writer.submit(move)) for move in moves]


async def gathered(tasks: Iterable[asyncio.Task[Any]]) -> list[Any]:
    return await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 10)


async def settled() -> None:
    """Let every task that can run do so."""
    for _ in range(20):
        await asyncio.sleep(0)


async def hold(store: ScriptedStore, writer: Writer, move: Move | None = None) -> asyncio.Task[Any]:
    """Have the writer stuck in a commit, so that what comes next gathers."""
    store.gate.clear()
    (task,) = submit(writer, move or Move("first"))
    await asyncio.wait_for(store.started.wait(), 10)
    return task


async def test_what_gathers_during_a_commit_goes_into_the_next(
    store: ScriptedStore, writer: Writer
) -> None:
    first = await hold(store, writer)
    rest = submit(writer, *[Move(f"m{n}") for n in range(200)])
    await settled()
    store.gate.set()
    assert await gathered([first, *rest]) == list(range(1, 202))
    assert store.attempts == [["first"], [f"m{n}" for n in range(200)]]


async def test_a_batch_is_bounded_in_moves(store: ScriptedStore) -> None:
    writer = start(store, replace(SETTINGS, batch_moves=3))
    first = await hold(store, writer)
    rest = submit(writer, *[Move(f"m{n}") for n in range(7)])
    await settled()
    store.gate.set()
    await gathered([first, *rest])
    assert [len(names) for names in store.attempts] == [1, 3, 3, 1]
    await writer.close()


async def test_a_batch_is_bounded_in_bytes_but_takes_one_of_any_size(store: ScriptedStore) -> None:
    writer = start(store, replace(SETTINGS, batch_bytes=10))
    first = await hold(store, writer)
    weights = [4, 6, 1, 99, 5, 5, 5]
    rest = submit(writer, *[Move(f"m{n}", weight=w) for n, w in enumerate(weights)])
    await settled()
    store.gate.set()
    await gathered([first, *rest])
    assert store.attempts[1:] == [["m0", "m1"], ["m2"], ["m3"], ["m4", "m5"], ["m6"]]
    await writer.close()


async def test_a_refusal_reaches_its_caller_alone(store: ScriptedStore, writer: Writer) -> None:
    refusal, bug = InvalidArgument("no"), ZeroDivisionError("oops")
    first = await hold(store, writer)
    rest = submit(writer, Move("a"), Move("b", error=refusal), Move("c", error=bug), Move("d"))
    await settled()
    store.gate.set()
    assert await gathered([first, *rest]) == [1, 2, refusal, bug, 3]
    assert store.journal == ["first", "a", "d"]


async def test_a_batch_that_fails_is_tried_move_by_move(
    store: ScriptedStore, writer: Writer
) -> None:
    failure = StoreFailed("a value the database cannot hold")
    store.answers = [works, *[fails_with("b", failure)] * 4]
    first = await hold(store, writer)
    rest = submit(writer, Move("a"), Move("b"), Move("c"))
    await settled()
    store.gate.set()
    assert await gathered([first, *rest]) == [1, 2, failure, 3]
    assert store.attempts == [["first"], ["a", "b", "c"], ["a"], ["b"], ["c"]]
    assert store.journal == ["first", "a", "c"]


@pytest.mark.parametrize("error", [StoreFull("disk"), RuntimeError("unheard of")])
async def test_any_other_failure_is_everybodys_and_the_writer_goes_on(
    store: ScriptedStore, writer: Writer, error: Exception
) -> None:
    store.answers = [works, fails(error)]
    first = await hold(store, writer)
    rest = submit(writer, Move("a"), Move("b"))
    await settled()
    store.gate.set()
    assert await gathered([first, *rest]) == [1, error, error]
    assert await writer.submit(Move("after")) == 2


async def test_a_store_that_is_away_is_tried_again(store: ScriptedStore, writer: Writer) -> None:
    store.answers = [fails(StoreUnavailable("away"))] * 3
    assert await writer.submit(Move("a")) == 1
    assert store.attempts == [["a"]] * 4


async def test_a_store_that_stays_away_is_reported_in_the_end(
    store: ScriptedStore, writer: Writer
) -> None:
    away = StoreUnavailable("away")
    store.answers = [fails(away)] * 1000
    started = asyncio.get_running_loop().time()
    with pytest.raises(StoreUnavailable) as caught:
        await writer.submit(Move("a"))
    assert caught.value is away
    assert len(store.attempts) > 2
    assert asyncio.get_running_loop().time() - started < 5
    store.answers = []
    assert await writer.submit(Move("b")) == 1


async def test_what_may_have_been_written_is_never_tried_again(
    store: ScriptedStore, writer: Writer
) -> None:
    unknown = OutcomeUnknown("who knows")
    store.answers = [fails(unknown)]
    outcomes = await gathered(submit(writer, Move("a"), Move("b")))
    assert outcomes == [unknown, unknown]
    assert sum(names.count("a") for names in store.attempts) == 1
    assert sum(names.count("b") for names in store.attempts) == 1
    assert await writer.submit(Move("c")) == 1


async def test_a_move_tried_alone_may_find_the_store_away(
    store: ScriptedStore, writer: Writer
) -> None:
    store.answers = [
        works, fails(StoreFailed("batch")), works, fails(StoreUnavailable("away")), works,
    ]  # fmt: skip
    first = await hold(store, writer)
    rest = submit(writer, Move("a"), Move("b"))
    await settled()
    store.gate.set()
    assert await gathered([first, *rest]) == [1, 2, 3]
    assert store.journal == ["first", "a", "b"]


@pytest.mark.parametrize("bound", [{"queue_moves": 2}, {"queue_bytes": 2}], ids=["moves", "bytes"])
async def test_a_full_queue_waits_and_then_refuses(
    store: ScriptedStore, bound: dict[str, int]
) -> None:
    writer = start(store, replace(SETTINGS, **bound))
    first = await hold(store, writer)
    fit = submit(writer, Move("a"), Move("b"))
    await settled()
    with pytest.raises(Overloaded, match="2 moves with 2 bytes") as refused:
        await writer.submit(Move("c"))
    assert refused.value.retry_after_ms > 0
    store.gate.set()
    assert await gathered([first, *fit]) == [1, 2, 3]
    assert await writer.submit(Move("d")) == 4
    assert "c" not in store.journal
    await writer.close()


async def test_who_waits_for_room_gets_it_in_order_and_the_bound_holds(
    store: ScriptedStore,
) -> None:
    writer = start(store, replace(SETTINGS, queue_moves=2, batch_moves=1, queue_wait_s=10))
    first = await hold(store, writer)
    rest = submit(writer, *[Move(f"m{n}") for n in range(20)])
    await settled()
    assert len(writer._queue) == 2
    store.gate.set()
    late = submit(writer, Move("late"))
    assert await gathered([first, *rest, *late]) == list(range(1, 23)), "somebody overtook"
    assert writer._queue.bytes == 0
    await writer.close()


async def test_closing_writes_what_is_queued_and_takes_no_more(store: ScriptedStore) -> None:
    writer = start(store)
    first = await hold(store, writer)
    rest = submit(writer, Move("a"), Move("b"))
    await settled()
    closing = asyncio.create_task(writer.close())
    await settled()
    assert not closing.done()
    with pytest.raises(Closed):
        await writer.submit(Move("late"))
    store.gate.set()
    await asyncio.wait_for(closing, 10)
    assert await gathered([first, *rest]) == [1, 2, 3]
    assert store.journal == ["first", "a", "b"]


async def test_closing_tells_who_waits_for_room(store: ScriptedStore) -> None:
    writer = start(store, replace(SETTINGS, queue_moves=1, queue_wait_s=10))
    first = await hold(store, writer)
    fits, waits = submit(writer, Move("a"), Move("b"))
    await settled()
    closing = asyncio.create_task(writer.close())
    await settled()
    store.gate.set()
    await asyncio.wait_for(closing, 10)
    outcomes = await gathered([first, fits, waits])
    assert outcomes[:2] == [1, 2]
    assert isinstance(outcomes[2], Closed)


async def test_closing_does_not_wait_for_a_store_that_is_away(store: ScriptedStore) -> None:
    writer = start(store, replace(SETTINGS, retry_for_s=60))
    store.answers = [fails(StoreUnavailable("away"))] * 1000
    first = await hold(store, writer)
    closing = asyncio.create_task(writer.close())
    await settled()
    store.gate.set()
    await asyncio.wait_for(closing, 10)
    (outcome,) = await gathered([first])
    assert isinstance(outcome, StoreUnavailable)


async def test_closing_twice_is_closing_once(store: ScriptedStore) -> None:
    writer = start(store)
    await writer.close()
    await writer.close()
    with pytest.raises(Closed):
        await writer.submit(Move("a"))


async def test_who_gives_up_in_the_queue_writes_nothing(
    store: ScriptedStore, writer: Writer
) -> None:
    first = await hold(store, writer)
    a, b, c = submit(writer, Move("a"), Move("b"), Move("c"))
    await settled()
    b.cancel()
    await settled()
    store.gate.set()
    assert await gathered([first, a, c]) == [1, 2, 3]
    assert store.journal == ["first", "a", "c"]
    assert writer._queue.bytes == 0


async def test_who_gives_up_during_the_commit_breaks_nobodys(
    store: ScriptedStore, writer: Writer
) -> None:
    first = await hold(store, writer)
    a, b = submit(writer, Move("a"), Move("b"))
    await settled()

    def give_up(_state: State) -> None:
        a.cancel()

    store.answers = [works, give_up]
    store.gate.set()
    outcomes = await gathered([first, a, b])
    assert isinstance(outcomes[1], asyncio.CancelledError)
    assert outcomes[2] == 3
    assert store.journal == ["first", "a", "b"]
    assert await writer.submit(Move("after")) == 4


async def test_everyone_giving_up_leaves_the_writer_at_work(
    store: ScriptedStore, writer: Writer
) -> None:
    first = await hold(store, writer)
    rest = submit(writer, *[Move(f"m{n}") for n in range(5)])
    await settled()
    for task in [first, *rest]:
        task.cancel()
    await settled()
    store.gate.set()
    assert await writer.submit(Move("after")) == 2
    assert store.journal == ["first", "after"]


async def test_giving_up_frees_room(store: ScriptedStore) -> None:
    writer = start(store, replace(SETTINGS, queue_moves=1, queue_wait_s=10))
    first = await hold(store, writer)
    fits, waits, waits_too = submit(writer, Move("a"), Move("b"), Move("c"))
    await settled()
    waits.cancel()
    await settled()
    store.gate.set()
    assert await gathered([first, fits, waits_too]) == [1, 2, 3]
    await writer.close()


async def test_a_reply_that_fails_is_its_callers(store: ScriptedStore, writer: Writer) -> None:
    class Broken(Move):
        def decide(self, state: State) -> Decision[int]:
            return super().decide(state)._replace(reply=lambda _place: 1 // 0)

    class Endless(Move):
        def decide(self, state: State) -> Decision[int]:
            return super().decide(state)._replace(reply=lambda _place: next(iter([])))

    first = await hold(store, writer)
    rest = submit(writer, Broken("a"), Endless("b"), Move("c"))
    await settled()
    store.gate.set()
    outcomes = await gathered([first, *rest])
    assert isinstance(outcomes[1], ZeroDivisionError)
    assert isinstance(outcomes[2], Exception)
    assert outcomes[3] == 4
    assert await writer.submit(Move("after")) == 5
