"""How `tape subscribe --once` ends, where what it asks for is seen before it is answered."""

import asyncio
from pathlib import Path

import pytest

from tape.model.subscription import SubscriptionState
from tape.programs.subscribing import SubscribeOptions, SubscribeReport, subscribe
from tape.programs.worker import WorkerOptions
from tape.settings.file import read_settings
from tape.subscriptions.operations import Subscriptions, SubscriptionView
from tests.integration.cli.subscribing import BOUND_S, SubscribeDesk


async def subscribe_once(desk: SubscribeDesk) -> SubscribeReport:
    worker = WorkerOptions(url=desk.store, settings=read_settings(desk.folder / "tape.yaml"))
    document = (desk.folder / "inbox.yaml").read_text()
    options = SubscribeOptions(document, worker, once=True)
    async with asyncio.timeout(BOUND_S):
        return await subscribe(
            options, on_ready=lambda _view: None, note=lambda _text: None, stop=asyncio.Event()
        )


async def test_its_listener_lets_go_before_it_is_told_that_it_drains(
    tmp_path: Path, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = SubscribeDesk(tmp_path, sqlite_url)
    desk.put('{"n": 1}', "no json", '{"n": 3}')
    move = Subscriptions.move_subscription

    async def answered_late(self: Subscriptions, name: str, verb: str) -> SubscriptionView:
        view = await move(self, name, verb)
        while verb == "drain" and view.subscription.state != SubscriptionState.DEACTIVATED:
            await asyncio.sleep(0.01)
            view = await self.get_subscription(name)
        return view

    monkeypatch.setattr(Subscriptions, "move_subscription", answered_late)
    report = await subscribe_once(desk)
    assert (report.state, report.trouble) == ("deactivated", "")
    assert (report.counts["accepted"], report.counts["dead_lettered"]) == (2, 1)
