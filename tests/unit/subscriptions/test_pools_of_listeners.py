"""A worker that listens for a pool says what that is, or which pools there are."""

import asyncio
import logging

import pytest

from tape.programs.listening import NAMED, ListensFor
from tape.settings import ListenerSettings
from tape.subscriptions.keep_listening import KeepListening
from tests.unit.subscriptions.sources import FarSide
from tests.unit.subscriptions.subscribed import Subscribed, document, pushed


async def said_of(desk: Subscribed, pool: str, caplog: pytest.LogCaptureFixture) -> str:
    """The one line about the pool that a listener of it logs, however often it looks."""
    caplog.set_level(logging.INFO, "tape.subscriptions")
    wanted, looks, stop = ListensFor(pool), asyncio.Queue[None](), asyncio.Event()
    list_all = desk.subscriptions.list_subscriptions

    class Counted:
        async def list_subscriptions(self) -> object:
            looks.put_nowait(None)
            return await list_all()

    keeper = KeepListening(
        Counted(),  # type: ignore[arg-type]  # nothing is active: it only looks
        FarSide().open,
        wanted,
        ListenerSettings(look_s=0.01),
        owner="me",
        on_first_look=wanted.log_pool,
    )
    running = asyncio.create_task(keeper.run(stop))
    for _look in range(3):
        await looks.get()
    stop.set()
    await running
    (line,) = caplog.records
    return f"{line.levelname} {line.getMessage()}"


async def test_what_is_of_the_pool(desk: Subscribed, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(NAMED + 2):
        text = document(f"s{number:02}", runtime={"pool": "iot"})
        await desk.subscriptions.register_subscription(text)
    names = ", ".join(f"'s{number:02}'" for number in range(NAMED))
    assert await said_of(desk, "iot", caplog) == f"INFO pool iot: listening for {names} and 2 more"


async def test_a_pool_that_no_subscription_has(
    desk: Subscribed, caplog: pytest.LogCaptureFixture
) -> None:
    await desk.subscriptions.register_subscription(document(runtime={"pool": "iot"}))
    await desk.subscriptions.register_subscription(document("mail", runtime={"pool": "desk"}))
    await desk.subscriptions.register_subscription(pushed())
    assert await said_of(desk, "iott", caplog) == (
        "WARNING no subscription has 'iott' as its runtime.pool, and this worker listens once "
        "there is one; pools of subscriptions: desk, iot. Did you mean 'iot'?"
    )


async def test_a_pool_where_there_is_none(
    desk: Subscribed, caplog: pytest.LogCaptureFixture
) -> None:
    await desk.subscriptions.register_subscription(document())
    assert await said_of(desk, "iot", caplog) == (
        "WARNING no subscription has 'iot' as its runtime.pool, and this worker listens once there "
        "is one; none has a pool"
    )
