"""An outage is a handful of log lines, however many loops retry and however often."""

import asyncio
import logging

import pytest

from tape.errors import BrokerUnavailable, Overloaded, SourceUnavailable, StoreUnavailable
from tape.telemetry import retrying
from tape.telemetry.retrying import AGAIN_MOST_S, FORGOTTEN_S, KEPT, Retrying

log = logging.getLogger("tape.test")


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: self.now, raising=False)


@pytest.fixture
async def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line.getMessage() for line in caplog.records if line.levelno >= logging.WARNING]


async def test_five_seconds_without_a_store(caplog: pytest.LogCaptureFixture, clock: Clock) -> None:
    loops = [Retrying(log, f"loop {n}") for n in range(20)]
    for _quarter in range(21):
        for each in loops:
            each.failed(StoreUnavailable("nobody answers on 127.0.0.1:5432"))
        clock.now += 0.25
    for each in loops:
        each.succeeded()
    assert said(caplog) == [
        "loop 0 waits: nobody answers on 127.0.0.1:5432",
        "loop 0 waits for 5 s: nobody answers on 127.0.0.1:5432",
        "loop 0 goes on after 5.2 s",
    ]


async def test_a_long_outage_is_told_less_and_less(
    caplog: pytest.LogCaptureFixture, clock: Clock
) -> None:
    loop = Retrying(log, "following")
    at: list[float] = []
    for _second in range(600):
        before = len(said(caplog))
        loop.failed(StoreUnavailable("away"), 1)
        at += [clock.now] * (len(said(caplog)) - before)
        clock.now += 1
    assert [moment - 1000 for moment in at[:4]] == [0, 5, 15, 35]
    assert at[-1] - at[-2] == AGAIN_MOST_S
    assert len(at) == 13
    assert said(caplog)[1] == "following waits for 5 s: away; trying again in 1 s"


async def test_a_minute_without_a_source(caplog: pytest.LogCaptureFixture, clock: Clock) -> None:
    """The texts are those of eight streams, the server is one."""
    loops = [Retrying(log, f"subscription {n}") for n in range(8)]
    for _second in range(60):
        for n, each in enumerate(loops):
            each.failed(SourceUnavailable(f"stream S{n}: away", at="nats://127.0.0.1:4222"), 1)
        clock.now += 1
    for each in loops:
        each.succeeded()
    assert said(caplog) == [
        "subscription 0 waits: stream S0: away; trying again in 1 s",
        *(
            f"subscription 0 waits for {seconds} s: stream S0: away; trying again in 1 s"
            for seconds in (5, 15, 35)
        ),
        "subscription 0 goes on after 60.0 s",
    ]


async def test_an_outage_whose_end_nobody_saw_is_over(
    caplog: pytest.LogCaptureFixture, clock: Clock
) -> None:
    Retrying(log, "one").failed(StoreUnavailable("away"))
    clock.now += FORGOTTEN_S + 1
    other = Retrying(log, "other")
    other.failed(StoreUnavailable("away again"))
    clock.now += 1
    other.succeeded()
    assert said(caplog) == [
        "one waits: away", "other waits: away again", "other goes on after 1.0 s",
    ]  # fmt: skip


async def test_a_straggler_is_no_new_outage(caplog: pytest.LogCaptureFixture, clock: Clock) -> None:
    first, late = Retrying(log, "first"), Retrying(log, "late")
    first.failed(StoreUnavailable("away"))
    clock.now += 2
    first.succeeded()
    late.failed(StoreUnavailable("away"))
    late.succeeded()
    assert said(caplog) == ["first waits: away", "first goes on after 2.0 s"]
    clock.now += 10
    late.failed(StoreUnavailable("away again"))
    assert said(caplog)[-1] == "late waits: away again"


async def test_what_has_nothing_to_do_with_each_other_is_told_apart(
    caplog: pytest.LogCaptureFixture, clock: Clock
) -> None:
    one, other = Retrying(log, "one"), Retrying(log, "other")
    one.failed(StoreUnavailable("the store is away"))
    other.failed(BrokerUnavailable("NATS is away"))
    one.failed(BrokerUnavailable("Kafka is away"))
    for each in (one, other):
        each.failed(Overloaded("slow down"))
    assert len(said(caplog)) == 5
    clock.now += 1
    other.succeeded()
    assert said(caplog)[5:] == ["other goes on after 1.0 s"]


async def test_errors_that_differ_each_time_are_not_kept_for_ever(
    caplog: pytest.LogCaptureFixture, clock: Clock
) -> None:
    each = Retrying(log, "publishing")
    for number in range(10 * KEPT):
        each.failed(BrokerUnavailable(f"connection {number} was reset"))
    kept = retrying._OUTAGES[asyncio.get_running_loop()]
    assert max(len(kept), len(each._failing)) <= KEPT
    each.succeeded()
    assert said(caplog)[-1] == "publishing goes on after 0.0 s"
