"""Openings are counted here at once, and on the row in time, without a write for each."""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator, Mapping

import pytest

from tape.errors import OutcomeUnknown, StoreUnavailable, TapeError
from tape.telemetry import metrics
from tape.wallet.openings import Openings


class Rows:
    """What was added, and how often somebody wrote."""

    def __init__(self) -> None:
        self.added: Counter[str] = Counter()
        self.writes = 0
        self.failures: list[TapeError] = []
        self.written = asyncio.Event()

    async def add(self, openings: Mapping[str, int]) -> None:
        self.writes += 1
        try:
            if self.failures:
                raise self.failures.pop(0)
            self.added.update(openings)
        finally:
            self.written.set()


@pytest.fixture(autouse=True)
def _no_series() -> Iterator[None]:
    before = metrics.WALLET_OPENED.series()
    for (alias,) in before:
        metrics.forget_credential(alias)
    yield
    for (alias,) in metrics.WALLET_OPENED.series():
        metrics.forget_credential(alias)


async def test_a_thousand_openings_are_one_write() -> None:
    rows = Rows()
    openings = Openings(rows.add, flush_s=60)
    for _ in range(1_000):
        openings.count("a")
    openings.count("b")
    await openings.close()
    assert (rows.added, rows.writes) == ({"a": 1_000, "b": 1}, 1)
    assert metrics.WALLET_OPENED.labels("a").value == 1_000


async def test_they_are_written_while_it_goes_on() -> None:
    rows = Rows()
    openings = Openings(rows.add, flush_s=0.001)
    for number in range(1, 4):
        rows.written.clear()
        openings.count("a")
        await rows.written.wait()
        while rows.added["a"] < number:  # noqa: ASYNC110 - it has been asked for
            await asyncio.sleep(0)
    await openings.close()
    assert rows.added == {"a": 3}


async def test_what_failed_is_added_later_and_what_may_have_been_added_is_not() -> None:
    rows = Rows()
    rows.failures = [StoreUnavailable()]
    openings = Openings(rows.add, flush_s=0.001)
    openings.count("a")
    while not rows.added:  # noqa: ASYNC110 - it is tried again by the clock
        await asyncio.sleep(0.001)
    assert rows.added == {"a": 1}
    rows.failures = [OutcomeUnknown()]
    openings.count("a")
    await openings.close()
    assert rows.added == {"a": 1}


async def test_an_end_without_the_store_is_told(caplog: pytest.LogCaptureFixture) -> None:
    rows = Rows()
    rows.failures = [StoreUnavailable()] * 2
    openings = Openings(rows.add, flush_s=60)
    openings.count("a")
    openings.count("a")
    with caplog.at_level(logging.WARNING):
        await openings.close()
    assert "2 openings of credentials were not counted" in caplog.messages
    assert rows.writes == 1


async def test_nothing_is_written_where_nothing_was_opened() -> None:
    rows = Rows()
    await Openings(rows.add).close()
    assert rows.writes == 0


def test_there_are_no_more_series_than_that() -> None:
    for number in range(metrics.WALLET_SERIES + 50):
        for _ in range(2):
            metrics.count_opening(f"alias {number}")
    series = metrics.WALLET_OPENED.series()
    assert len(series) == metrics.WALLET_SERIES + 1
    assert series["alias 0",].value == 2
    assert series["",].value == 100
    metrics.forget_credential("alias 0")
    assert len(metrics.WALLET_OPENED.series()) == metrics.WALLET_SERIES
