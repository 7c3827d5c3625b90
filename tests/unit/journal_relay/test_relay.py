"""The relay: acknowledged first, then the cursor; never a skip; stops when it is told to."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path

import pytest

from tape.errors import BrokerRefused, BrokerUnavailable
from tape.journal.follow import Page
from tape.journal_relay.cursor_file import CursorFile
from tape.journal_relay.relay import JournalRelay, RelayBackoff, RelayProgress
from tape.model.entry import Entry
from tests.conformance.broker import outgoing

QUICK = RelayBackoff(0.0, 0.0)
ENTRIES = [outgoing(number).entry for number in range(10)]


class ListSink:
    """Takes everything, unless `fail` has something against it."""

    def __init__(self, path: Path | None = None) -> None:
        self.taken: list[int] = []
        self.cursors: list[str] = []
        self.repeats: list[int] = []
        self.fail: Callable[[], Exception | None] = lambda: None
        self._path = path

    async def send(self, entries: Sequence[Entry]) -> None:
        if self._path is not None:
            self.cursors.append(self._path.read_text().strip())
        error = self.fail()
        if error is not None:
            raise error
        self.taken += [entry.global_seq for entry in entries]

    def expect_repeats(self, entries: Sequence[Entry]) -> None:
        self.repeats += [entry.global_seq for entry in entries]

    async def close(self) -> None: ...


def pages_of(size: int, *, live: bool = False) -> Callable[[int], AsyncGenerator[Page, None]]:
    async def pages(after: int) -> AsyncGenerator[Page, None]:
        for start in range(after, len(ENTRIES), size):
            found = ENTRIES[start : start + size]
            yield Page(found, found[-1].global_seq)
        if live:
            await asyncio.Event().wait()

    return pages


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cursor"


async def test_every_page_is_taken_before_the_cursor_moves_past_it(path: Path) -> None:
    sink = ListSink(path)
    with CursorFile(path) as cursor:
        await JournalRelay(pages_of(4), [sink], cursor).run(0, asyncio.Event())
        assert cursor.read() == 10
    assert sink.taken == list(range(1, 11))
    assert sink.cursors == [f'{{"last_global_seq":{n}}}' for n in (0, 4, 8)]
    assert sink.repeats == []


async def test_a_failing_sink_is_tried_until_it_takes_all(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    failures = iter([None, BrokerUnavailable("away"), BrokerRefused("no"), None, None])
    sink, seen = ListSink(path), list[RelayProgress]()
    sink.fail = lambda: next(failures)
    with CursorFile(path) as cursor, caplog.at_level(logging.WARNING, "tape.relay"):
        relay = JournalRelay(pages_of(4), [sink], cursor, backoff=QUICK, on_progress=seen.append)
        await relay.run(0, asyncio.Event())
    assert sink.taken == list(range(1, 11))
    assert sink.cursors == [f'{{"last_global_seq":{n}}}' for n in (0, 4, 4, 4, 8)]
    assert [p for p in seen if p.trouble] == [
        RelayProgress(4, 4, "away"),
        RelayProgress(4, 4, "no"),
    ]
    assert [record.message for record in caplog.records] == [
        "relaying waits: away; trying again in 0 s",
        "relaying waits: no; trying again in 0 s",
        "relaying goes on after 0.0 s",
    ]


async def test_the_wait_doubles_up_to_its_bound(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    failures = iter([BrokerUnavailable("away")] * 5)
    sink = ListSink()
    sink.fail = lambda: next(failures, None)
    with CursorFile(path) as cursor, caplog.at_level(logging.DEBUG, "tape.relay"):
        relay = JournalRelay(pages_of(10), [sink], cursor, backoff=RelayBackoff(0.001, 0.005))
        await relay.run(0, asyncio.Event())
    waits = [r.message.split()[-2] for r in caplog.records if "trying again" in r.message]
    assert waits == ["0.001", "0.002", "0.004", "0.005", "0.005"]
    assert (RelayBackoff().first_s, RelayBackoff().most_s) == (1.0, 30.0)


async def test_several_sinks_and_one_that_lags(path: Path) -> None:
    failures = iter([BrokerUnavailable("away"), None, None, None])
    good, lame = ListSink(), ListSink(path)
    lame.fail = lambda: next(failures)
    with CursorFile(path) as cursor:
        relay = JournalRelay(pages_of(4), [good, lame], cursor, backoff=QUICK)
        await relay.run(0, asyncio.Event())
    assert good.taken == lame.taken == list(range(1, 11))


async def test_told_to_stop_it_finishes_the_page_in_hand(path: Path) -> None:
    stop, sending, go_on = asyncio.Event(), asyncio.Event(), asyncio.Event()

    class SlowSink(ListSink):
        async def send(self, entries: Sequence[Entry]) -> None:
            sending.set()
            await go_on.wait()
            await super().send(entries)

    sink = SlowSink()
    with CursorFile(path) as cursor:
        running = asyncio.create_task(JournalRelay(pages_of(4), [sink], cursor).run(0, stop))
        await sending.wait()
        stop.set()
        await asyncio.sleep(0)
        assert not running.done()
        go_on.set()
        await running
        assert cursor.read() == 4
    assert sink.taken == [1, 2, 3, 4]


async def test_told_to_stop_it_does_not_wait_for_news(path: Path) -> None:
    stop, seen = asyncio.Event(), asyncio.Event()
    with CursorFile(path) as cursor:
        relay = JournalRelay(
            pages_of(10, live=True), [ListSink()], cursor, on_progress=lambda _p: seen.set()
        )
        running = asyncio.create_task(relay.run(0, stop))
        await seen.wait()
        stop.set()
        await asyncio.wait_for(running, 5)
        assert cursor.read() == 10
    with CursorFile(path) as cursor:
        assert not cursor.interrupted


async def test_told_to_stop_it_gives_up_on_a_sink_that_is_away(path: Path) -> None:
    stop, sink = asyncio.Event(), ListSink()
    sink.fail = lambda: BrokerUnavailable("away")
    with CursorFile(path) as cursor:
        relay = JournalRelay(pages_of(4), [sink], cursor, on_progress=lambda _p: stop.set())
        await asyncio.wait_for(relay.run(0, stop), 5)
        assert cursor.read() == 0
    with CursorFile(path) as cursor:
        assert cursor.interrupted


async def test_what_an_interrupted_relay_may_have_sent_is_marked(path: Path) -> None:
    sink = ListSink()
    with CursorFile(path):
        pass  # ends without having settled
    with CursorFile(path) as cursor:
        await JournalRelay(pages_of(4), [sink], cursor).run(2, asyncio.Event())
    assert sink.repeats == [3, 4, 5, 6]
    assert sink.taken == list(range(3, 11))


async def test_an_error_that_is_no_brokers_ends_the_relay(path: Path) -> None:
    sink = ListSink()
    sink.fail = BrokenPipeError
    with CursorFile(path) as cursor:
        with pytest.raises(BrokenPipeError):
            await JournalRelay(pages_of(4), [sink], cursor).run(0, asyncio.Event())
        assert cursor.read() == 0


async def test_what_a_predicate_cannot_decide_is_told(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def pages(_after: int) -> AsyncGenerator[Page, None]:
        yield Page([], 5, 2, "entry 5: no such field")

    with CursorFile(path) as cursor, caplog.at_level(logging.WARNING, "tape.relay"):
        await JournalRelay(pages, [ListSink()], cursor).run(0, asyncio.Event())
        assert cursor.read() == 5  # past what did not match, at the latest when it ends
    assert "2 entries were left out" in caplog.text
