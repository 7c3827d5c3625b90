"""The pen: order, what goes together, refusals that cost nobody else, and loss."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from tape.errors import (
    BusinessKeyTaken,
    Closed,
    InvalidArgument,
    Overloaded,
    PermissionDenied,
    RunCancelled,
    RunEnded,
    StaleLease,
    StoreFailed,
    StoreFull,
    StoreUnavailable,
    TapeError,
    TooLarge,
)
from tape.model.decision import RecordDecision
from tape.model.run import Run, RunStatus
from tape.model.run_write import Extended, RunWrite
from tape.runs.driving import pen as pens
from tape.runs.driving.pen import Pen
from tape.runs.driving.unwinding import Abandoned, Unrecorded


def a_write(index: int) -> RecordDecision:
    return RecordDecision(index, "test")


class Journal:
    """Takes writes as a store would, and keeps what it was sent together."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.cursor = 1
        self.open = asyncio.Event()
        self.open.set()
        self.asked = asyncio.Event()
        self.refused: dict[int, Exception] = {}
        self.unreachable: Exception | None = None

    @property
    def written(self) -> list[int]:
        return [index for batch in self.batches for index in batch]

    async def extend(self, writes: Sequence[RunWrite]) -> Extended:
        self.asked.set()
        await self.open.wait()
        if self.unreachable is not None:
            raise self.unreachable
        indices = [write.decision_index for write in writes if isinstance(write, RecordDecision)]
        for index in indices:
            if index in self.refused:
                raise self.refused[index]
        first = self.cursor + 1
        self.cursor += len(indices)
        self.batches.append(indices)
        return Extended(a_run(self.cursor), first, [f"reply {index}" for index in indices])


def a_run(cursor: int) -> Run:
    return Run("r", "app", "", "", "1", "shared", RunStatus.RUNNING, cursor, "me", "", 0, 1, 0, 0)


@pytest.fixture
async def journal() -> Journal:
    return Journal()


@pytest.fixture
async def pen(journal: Journal) -> Pen:
    return Pen(journal.extend, 1)


async def test_what_is_posted_goes_with_the_next_write(pen: Pen, journal: Journal) -> None:
    pen.post(a_write(1))
    pen.post(a_write(2))
    assert await pen.write(a_write(3)) == "reply 3"
    assert journal.batches == [[1, 2, 3]]


async def test_what_nobody_waits_for_is_written_by_itself(pen: Pen, journal: Journal) -> None:
    pen.post(a_write(1))
    await pen.flush()
    assert journal.batches == [[1]]
    pen.post(a_write(2))
    async with asyncio.timeout(5):
        while journal.batches != [[1], [2]]:  # noqa: ASYNC110 - nothing tells when
            await asyncio.sleep(0.001)


async def test_what_comes_while_one_is_sent_waits_its_turn(pen: Pen, journal: Journal) -> None:
    journal.open.clear()
    first = asyncio.create_task(pen.write(a_write(1)))
    await journal.asked.wait()
    pen.post(a_write(2))
    second = asyncio.create_task(pen.write(a_write(3)))
    await asyncio.sleep(0)
    journal.open.set()
    assert (await first, await second) == ("reply 1", "reply 3")
    assert journal.batches == [[1], [2, 3]]


async def test_what_is_posted_while_others_are_sent_waits_for_more(
    pen: Pen, journal: Journal
) -> None:
    journal.open.clear()
    first = asyncio.create_task(pen.write(a_write(1)))
    await journal.asked.wait()
    pen.post(a_write(2))
    journal.open.set()
    await first
    pen.post(a_write(3))
    async with asyncio.timeout(5):
        while len(journal.batches) < 2:  # noqa: ASYNC110 - nothing tells when
            await asyncio.sleep(0.001)
    assert journal.batches == [[1], [2, 3]]


async def test_a_refusal_costs_the_others_nothing(pen: Pen, journal: Journal) -> None:
    journal.refused[2] = InvalidArgument("no", field="model")
    pen.post(a_write(1))
    refused = asyncio.create_task(pen.write(a_write(2)))
    await asyncio.sleep(0)
    pen.post(a_write(3))
    with pytest.raises(InvalidArgument, match="no"):
        await refused
    await pen.flush()
    assert journal.written == [1, 3]


@pytest.mark.parametrize(
    "error",
    [StaleLease(), StoreUnavailable(), RunEnded(), Overloaded(), StoreFull(), Closed(),
     PermissionDenied()],
)  # fmt: skip
async def test_a_lost_lease_unwinds_every_step(
    pen: Pen, journal: Journal, error: Exception
) -> None:
    journal.unreachable = error
    pen.post(a_write(1))
    with pytest.raises(Abandoned) as lost:
        await pen.write(a_write(2))
    assert lost.value.cause is error
    journal.unreachable = None
    steps: list[Any] = [
        lambda: pen.post(a_write(3)),
        pen.check,
    ]
    for step in steps:
        with pytest.raises(Abandoned):
            step()
    with pytest.raises(Abandoned):
        await pen.write(a_write(4))
    with pytest.raises(Abandoned):
        await pen.flush()
    assert journal.written == []


async def test_who_waits_when_the_lease_goes_is_told(pen: Pen, journal: Journal) -> None:
    journal.open.clear()
    waiting = asyncio.create_task(pen.write(a_write(1)))
    await journal.asked.wait()
    behind = asyncio.create_task(pen.write(a_write(2)))
    await asyncio.sleep(0)
    pen.lose(StaleLease())
    with pytest.raises(Abandoned):
        await behind
    journal.open.set()
    await waiting


async def test_it_knows_whether_something_came_in_between(pen: Pen, journal: Journal) -> None:
    await pen.write(a_write(1))
    assert (pen.seen_seq, pen.missed) == (2, False)
    journal.cursor += 1
    await pen.write(a_write(2))
    assert (pen.seen_seq, pen.missed) == (4, True)


async def test_an_entry_written_without_it_counts(pen: Pen) -> None:
    pen.note_seq(2)
    await_missed = pen.missed
    pen.note_seq(5)
    assert (await_missed, pen.missed, pen.seen_seq) == (False, True, 5)


async def test_a_caller_that_gives_up_takes_nothing_back(pen: Pen, journal: Journal) -> None:
    journal.open.clear()
    waiting = asyncio.create_task(pen.write(a_write(1)))
    await journal.asked.wait()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    journal.open.set()
    await pen.flush()
    assert journal.written == [1]


@pytest.mark.parametrize(
    "error", [InvalidArgument(), TooLarge(), RunCancelled(), BusinessKeyTaken(), StoreFailed()]
)
async def test_a_judgement_on_one_write_is_told_to_who_waits_for_it(
    pen: Pen, journal: Journal, error: TapeError
) -> None:
    journal.refused[1] = error
    with pytest.raises(type(error)):
        await pen.write(a_write(1))
    assert await pen.write(a_write(2)) == "reply 2"


async def test_nothing_is_begun_behind_a_posted_write_that_is_refused(
    pen: Pen, journal: Journal
) -> None:
    """Whoever posted it has gone on from it, and cannot be told any more."""
    journal.refused[2] = TooLarge("too much")
    for index in (1, 2):
        pen.post(a_write(index))
    pen.post_happened(a_write(3))  # that is written down all the same
    pen.post(a_write(33))
    with pytest.raises(Unrecorded) as unrecorded:
        await pen.write(a_write(4))
    assert isinstance(unrecorded.value.error, TooLarge)
    assert journal.written == [1, 3]
    pen.post_happened(a_write(5))
    pen.post(a_write(55))
    for step in (pen.write(a_write(6)), pen.flush()):
        with pytest.raises(Unrecorded):
            await step
    assert journal.written == [1, 3, 5]
    assert await pen.write_end(a_write(7)) == "reply 7"


async def test_the_end_comes_behind_refusals_that_are_still_on_their_way(
    pen: Pen, journal: Journal
) -> None:
    journal.refused = {1: TooLarge("too much"), 2: TooLarge("this, too")}
    pen.post(a_write(1))
    with pytest.raises(Unrecorded):
        await pen.flush()
    pen.post_happened(a_write(2))
    assert await pen.write_end(a_write(3)) == "reply 3"
    assert journal.written == [3]


async def test_who_catches_up_waits_for_no_more_than_that(pen: Pen, journal: Journal) -> None:
    for index in range(pens.MOST_TOGETHER):
        pen.post(a_write(index))
    await pen.catch_up()
    assert journal.written == []
    pen.post(a_write(1000))
    await pen.catch_up()
    assert journal.written == list(range(pens.MOST_TOGETHER))
    await pen.settle()
    assert journal.written[-1] == 1000


async def test_what_goes_out_at_once_is_bounded_in_size(
    pen: Pen, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pens, "MOST_BYTES", 3 * a_write(1).size)
    for index in range(7):
        pen.post(a_write(index))
    await pen.settle()
    assert [len(batch) for batch in journal.batches] == [3, 3, 1]


@pytest.mark.parametrize("posted", [True, False])
async def test_something_is_written_in_the_place_of_what_is_refused(
    pen: Pen, journal: Journal, posted: bool
) -> None:
    journal.refused[2] = TooLarge("too much")
    pen.post(a_write(1))
    if posted:
        pen.post_or(a_write(2), lambda _error: [a_write(20), a_write(21)])
    else:
        refused = pen.enter(a_write(2), lambda _error: [a_write(20), a_write(21)])
    pen.post_happened(a_write(3))
    await pen.settle()
    assert journal.batches == [[1], [20, 21], [3]]
    if not posted:
        assert isinstance(refused.exception(), TooLarge)
        await pen.flush()


async def test_who_waits_in_a_batch_that_is_split_is_told_when_the_lease_goes(
    pen: Pen, journal: Journal
) -> None:
    journal.refused = {1: InvalidArgument("no"), 2: StaleLease()}
    waiting = [asyncio.create_task(pen.write(a_write(index))) for index in (1, 2, 3)]
    async with asyncio.timeout(5):
        answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(answer) for answer in answers] == [InvalidArgument, Abandoned, Abandoned]


async def test_an_error_that_is_none_of_ours_is_told_to_all_who_wait(
    pen: Pen, journal: Journal
) -> None:
    journal.refused = {1: InvalidArgument("no"), 2: KeyError("a fault")}
    waiting = [asyncio.create_task(pen.write(a_write(index))) for index in (1, 2, 3)]
    await asyncio.sleep(0)
    with pytest.raises(KeyError):
        await pen.flush()
    async with asyncio.timeout(5):
        answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(answer) for answer in answers] == [InvalidArgument, Abandoned, Abandoned]


async def test_a_run_that_has_not_begun_begins_before_what_is_written_without_the_pen(
    journal: Journal,
) -> None:
    pen = Pen(journal.extend, 1, has_begun=False)
    await pen.settle()
    assert (journal.batches, pen.has_begun) == ([], False)
    await pen.flush()
    assert (journal.batches, pen.has_begun) == ([[]], True)
    await pen.flush()
    assert journal.batches == [[]]


async def test_a_run_that_cannot_begin_is_lost(journal: Journal) -> None:
    pen = Pen(journal.extend, 1, has_begun=False)
    journal.unreachable = InvalidArgument("no such pool")
    with pytest.raises(Abandoned, match="no such pool"):
        await pen.flush()


async def test_it_tells_once_that_it_is_lost(pen: Pen, journal: Journal) -> None:
    told: list[BaseException] = []
    pen.on_lost = told.append
    journal.unreachable = lost = StaleLease()
    with pytest.raises(Abandoned):
        await pen.write(a_write(1))
    pen.lose(StaleLease())
    assert told == [lost]
