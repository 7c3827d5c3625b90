"""Draining in a server: by itself, whenever there is something, and by one of many."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from tape.bus import Bus, FollowQuery
from tape.errors import StoreUnavailable
from tape.ledger import drain_loop
from tape.model.event import NewEvent
from tape.model.event_subscription import DEFAULT_DRAINER
from tape.programs.connect import open_bus
from tape.settings import DrainerSettings, Settings
from tests.conformance.reacting import until
from tests.unit.ledger.draining import QUICK, Desk, a_desk


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SETTLE_S", "LOCKED_S", "LOOK_S"):
        monkeypatch.setattr(drain_loop, name, 0.05)


@pytest.fixture
async def desk(store_url: str) -> AsyncIterator[Desk]:
    async with a_desk(store_url) as desk:
        desk.bus.start_draining()
        yield desk


def patient(retry_s: float) -> Settings:
    return replace(QUICK, drainers=DrainerSettings(lease_s=5, retry_s=retry_s))


async def entry(bus: Bus, pattern: str) -> None:
    """Until there is one."""
    async with asyncio.timeout(30):
        async for page in bus.follow(FollowQuery(pattern)):
            if page.entries:
                return


async def test_events_are_drained_as_they_come(desk: Desk) -> None:
    await desk.record(1, 2)
    await desk.subscribe("a")
    await desk.until(lambda: desk.acts == [("a", 1), ("a", 2)])
    for n in (3, 4, 5):
        await desk.record(n)
        await desk.until(lambda n=n: desk.acts[-1] == ("a", n))  # type: ignore[misc]
    await desk.subscribe("b", drainer_id="later")
    await desk.until(lambda: desk.done_by("b") == [1, 2, 3, 4, 5])


async def test_a_halted_drainer_is_tried_again_by_itself(desk: Desk) -> None:
    desk.broken = {("a", 1)}
    await desk.subscribe("a")
    await desk.record(1, 2)
    await desk.until(lambda: len(desk.tried) == 3)
    desk.broken.clear()
    await desk.until(lambda: desk.acts == [("a", 1), ("a", 2)])


async def test_a_resume_rings(sqlite_url: str) -> None:
    async with a_desk(sqlite_url, patient(3_600)) as desk:
        desk.bus.start_draining()
        desk.broken = {("a", 1)}
        await desk.subscribe("a")
        (event,) = await desk.record(1)
        await entry(desk.bus, "/tape/drainer/halted/**")
        await desk.record(2)
        desk.broken.clear()
        assert desk.tried == [("a", 1)]
        state = await desk.bus.ledger.resume(DEFAULT_DRAINER, by="me")
        assert state.drainer.attempts.event_id == event.event_id
        await desk.until(lambda: desk.acts == [("a", 1), ("a", 2)])


async def test_a_skip_rings(sqlite_url: str) -> None:
    async with a_desk(sqlite_url, patient(3_600)) as desk:
        desk.bus.start_draining()
        desk.broken = {("a", 1)}
        await desk.subscribe("a")
        first, _ = await desk.record(1, 2)
        await entry(desk.bus, "/tape/drainer/halted/**")
        await desk.bus.ledger.skip(DEFAULT_DRAINER, first.event_id, reason="no", by="me")
        await desk.until(lambda: desk.acts == [("a", 2)])


async def test_a_drainer_that_waits_holds_up_no_other(desk: Desk) -> None:
    await desk.subscribe("a", drainer_id="stuck", workflow_type="nobody")
    await desk.subscribe("b", drainer_id="free")
    await desk.record(1, 2)
    await desk.until(lambda: desk.acts == [("b", 1), ("b", 2)])


async def test_what_was_unsubscribed_is_drained_no_more(desk: Desk) -> None:
    await desk.subscribe("a")
    await desk.subscribe("b")
    await desk.record(1)
    await desk.until(lambda: len(desk.acts) == 2)
    await desk.bus.ledger.delete_event_subscription("b")
    await desk.subscribe("c", drainer_id="other")
    await desk.record(2)
    await desk.until(lambda: len(desk.acts) == 5)
    assert desk.done_by("b") == [1]


async def test_entries_that_match_nothing_are_noted_as_passed(desk: Desk) -> None:
    await desk.subscribe("a")
    await desk.bus.record_events([NewEvent("unrelated")])

    async def is_level() -> bool:
        return (await desk.bus.ledger.list_drainers())[0].lag == 0

    await until(is_level)


async def test_on_the_way_to_a_match_the_journal_is_searched_once(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    searches = []
    search = drain_loop._DrainerLoop._until_due

    async def counted(keeper: drain_loop._DrainerLoop, *arguments: Any) -> None:
        searches.append(arguments)
        await search(keeper, *arguments)

    monkeypatch.setattr(drain_loop._DrainerLoop, "_until_due", counted)
    async with a_desk(sqlite_url) as desk:
        await desk.bus.record_events([NewEvent("unrelated")] * 5 * DrainerSettings().page)
        await desk.record(1)
        await desk.subscribe("a")
        desk.bus.start_draining()
        await desk.until(lambda: desk.acts == [("a", 1)])
        assert len(searches) == 1


async def test_any_number_of_servers_dispatch_each_event_once(store_url: str) -> None:
    async with a_desk(store_url) as desk:
        others = [await open_bus(store_url, QUICK) for _ in range(3)]
        for bus in (desk.bus, *others):
            bus.start_draining()
        await desk.subscribe("a")
        await desk.subscribe("b", awaits_end=False)
        for start in range(1, 31, 10):
            await desk.record(*range(start, start + 10))
            await desk.until(lambda start=start: len(desk.acts) == 2 * (start + 9))  # type: ignore[misc]
        for bus in others:
            await bus.close()
        assert desk.done_by("a") == list(range(1, 31))
        assert sorted(desk.done_by("b")) == list(range(1, 31))
        assert len(desk.tried) == 60


@pytest.mark.parametrize("fault", [StoreUnavailable("away"), RuntimeError("odd")])
@pytest.mark.parametrize("call", ["get_drainer", "list_event_subscriptions", "read_entries"])
async def test_what_goes_wrong_once_is_tried_again(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, fault: Exception, call: str
) -> None:
    monkeypatch.setattr(drain_loop, "AGAIN_S", 0.02)
    async with a_desk(sqlite_url) as desk:
        faults = [fault, fault]
        asked = desk.bus._store if call == "read_entries" else desk.bus._store.ledger
        really = getattr(asked, call)

        async def failing(*arguments: Any) -> Any:
            if faults:
                raise faults.pop()
            return await really(*arguments)

        await desk.subscribe("a")
        await desk.record(1, 2)
        monkeypatch.setattr(asked, call, failing)
        desk.bus.start_draining()
        await desk.until(lambda: desk.acts == [("a", 1), ("a", 2)])
        assert faults == []
