"""One outage is a handful of log lines, however many subscriptions wait for its end."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

import pytest

from tape.errors import SourceRefused, SourceUnavailable, TapeError, WalletUnavailable
from tape.subscriptions.operations import SubscriptionView
from tests.unit.subscriptions.sources import FarSide
from tests.unit.subscriptions.subscribed import Subscribed, document, listening

NAMES: Final = [f"orders-{number}" for number in range(8)]
SERVER: Final = "nats://127.0.0.1:4999"
pytestmark = pytest.mark.timeout(60)


@pytest.fixture
async def eight(desk: Subscribed, monkeypatch: pytest.MonkeyPatch) -> Subscribed:
    monkeypatch.setattr("tape.subscriptions.keep_listening.AGAIN_FIRST_S", 0.01)
    monkeypatch.setattr("tape.subscriptions.keep_listening.AGAIN_MOST_S", 0.05)
    for name in NAMES:
        await desk.subscriptions.register_subscription(document(name))
        await desk.subscriptions.move_subscription(name, "activate")
    return desk


async def until_all(desk: Subscribed, holds: Callable[[SubscriptionView], bool]) -> None:
    while True:
        views = await desk.subscriptions.list_subscriptions()
        if all(map(holds, views)):
            return
        await asyncio.sleep(0.01)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line.getMessage() for line in caplog.records if line.levelno >= logging.WARNING]


@pytest.mark.parametrize(
    "fault",
    [
        SourceUnavailable(f"no answer from {SERVER}", at=SERVER),
        WalletUnavailable("aws:key: KMS did not answer"),
    ],
    ids=["broker", "wallet"],
)
async def test_what_is_away_from_the_start_and_comes_back(
    eight: Subscribed, fault: TapeError, caplog: pytest.LogCaptureFixture
) -> None:
    far_side = FarSide()
    far_side.opening_fault = fault
    async with listening(eight.subscriptions, far_side.open):
        await far_side.until_opened(5 * len(NAMES))
        (line,) = warnings(caplog)
        assert line.startswith("subscription 'orders-")
        assert f" waits: {fault}; trying again in 0.01" in line
        far_side.opening_fault = None
        await until_all(eight, lambda view: view.is_held and not view.listener.last_error)
    _began, ended = warnings(caplog)
    assert " goes on after " in ended


async def test_another_server_that_is_away_is_another_outage(
    eight: Subscribed, caplog: pytest.LogCaptureFixture
) -> None:
    far_side = FarSide()
    far_side.opening_fault = SourceUnavailable("away", at=SERVER)
    async with listening(eight.subscriptions, far_side.open):
        await far_side.until_opened(2 * len(NAMES))
        far_side.opening_fault = SourceUnavailable("away as well", at="nats://127.0.0.1:4998")
        await far_side.until_opened(6 * len(NAMES))
    assert len(warnings(caplog)) == 2


async def test_a_refusal_is_told_of_each_subscription(
    eight: Subscribed, caplog: pytest.LogCaptureFixture
) -> None:
    far_side = FarSide()
    far_side.opening_fault = SourceRefused("auth: the server refuses the login")
    async with listening(eight.subscriptions, far_side.open):
        await until_all(eight, lambda view: view.subscription.state == "paused")
    assert sorted(warnings(caplog)) == [
        f"subscription {name!r}: auth: the server refuses the login" for name in NAMES
    ]
