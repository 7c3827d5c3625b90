"""Subscriptions beside what else a journal has: prunes, other namesakes, reactions, drainers."""

from collections.abc import AsyncIterator
from functools import partial

import pytest

from tape.client import AsyncTapeClient
from tape.model.message import SourceMessage
from tape.model.run import RunStatus
from tape.model.task import Task
from tape.ports.retention import PruneStep
from tape.ports.subscriptions import PlaceAges
from tape.subscriptions.operations import AcceptMessagesRequest
from tests.conformance.playing import save_run
from tests.conformance.reacting import until
from tests.unit.subscriptions.subscribed import Subscribed, document, message, subscribed

KEYED = {"directives": [{"header": "x-key", "controls": "idempotency_key"}]}
FAR = 1 << 60


@pytest.fixture
async def desk(sqlite_url: str) -> AsyncIterator[Subscribed]:
    async with subscribed(sqlite_url) as found:
        yield found


def keyed(number: int, key: bytes) -> SourceMessage:
    return message(number, headers=(("x-key", key),))


async def test_reactions_take_what_subscriptions_tell(desk: Subscribed) -> None:
    """A task for each repeat, and one for each step of a subscription's life."""
    client = AsyncTapeClient(desk.bus)
    await client.register_reaction("repeats", "/tape/subscription/message_deduplicated/**")
    await client.register_reaction("lives", "/tape/subscription/*/orders", from_global_seq=0)
    desk.bus.start_matching()
    await desk.listen(document(headers=KEYED, dedup={"window_secs": 60}))
    await desk.accept(keyed(1, b"a"), keyed(2, b"a"), keyed(3, b"b"), keyed(4, b"a"))

    repeats = await until(partial(tasks, client, "repeats", 2))
    assert {task.entry.payload["key"] for task in repeats} == {"a"}
    found = await until(partial(tasks, client, "lives", 4))
    words = sorted(task.entry.subject.split("/")[3] for task in found)
    assert words == ["activated", "message_deduplicated", "message_deduplicated", "registered"]


async def tasks(client: AsyncTapeClient, reaction_id: str, count: int) -> list[Task] | None:
    """Its tasks, if there are so many."""
    found = await client.list_tasks(reaction_id)
    return found if len(found) >= count else None


async def test_a_drainer_takes_events_and_nothing_of_subscriptions(desk: Subscribed) -> None:
    client = AsyncTapeClient(desk.bus)
    await client.subscribe_events("*", "desk", subscription_id="all")
    await desk.listen()
    await desk.accept(message(1), message(2))
    await client.record("order.placed", {"n": 1})
    desk.bus.start_draining()
    await until(partial(has_drained, client))
    assert len(await client.list_runs(subscription="orders")) == 2
    assert [run.user_id for run in await client.list_runs()].count("event") == 1


async def has_drained(client: AsyncTapeClient) -> bool:
    return any(run.user_id == "event" for run in await client.list_runs())


async def test_messages_of_one_place_and_app_are_runs_of_each_subscription(
    desk: Subscribed,
) -> None:
    """Two subscriptions to one stream: neither sees the other's runs."""
    client = AsyncTapeClient(desk.bus)
    await desk.listen()
    first = await desk.accept(message(1), message(2))
    await desk.listen(document("copies"), "copies")
    second = await desk.subscriptions.accept_messages(
        AcceptMessagesRequest("copies", 1, desk.token, [message(1), message(2)])
    )
    assert {one.outcome.value for one in (*first, *second)} == {"accepted"}
    for name, accepted in (("orders", first), ("copies", second)):
        runs = await client.list_runs(subscription=name)
        assert {run.run_id for run in runs} == {one.run_id for one in accepted}
    assert await client.list_runs(subscription="order") == []


@pytest.mark.parametrize("places_go", [False, True])
async def test_a_prune_leaves_what_was_accepted_accepted(desk: Subscribed, places_go: bool) -> None:
    """A message that comes once more makes no second run: neither while the run is open, whose
    entries stay, nor when it has ended and its entries are gone."""
    await desk.listen()
    accepted = await desk.accept(message(1), message(2))
    ended = accepted[0].run_id
    run = await desk.store.runs.get_run(ended)
    assert run is not None
    await save_run(desk.store, run._replace(status=RunStatus.TERMINAL.value))
    await AsyncTapeClient(desk.bus).record("later")  # the newest entry stays
    done = await desk.store.retention.prune(PruneStep(0, FAR, 1_000))
    assert done.kept == {"runs": 1}
    if places_go:
        assert (
            await desk.store.subscriptions.prune_places("orders", "", PlaceAges(0, 0, 0), 10) == 2
        )
    again = await desk.accept(message(1), message(2))
    assert [one.outcome.value for one in again] == ["redelivered", "redelivered"]
    assert [one.run_id for one in again] == [one.run_id for one in accepted]
    view = await desk.subscriptions.get_subscription("orders")
    assert (view.subscription.state, view.listener.accepted) == ("active", 2)
