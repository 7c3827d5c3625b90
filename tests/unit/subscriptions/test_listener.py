"""Listeners of a process: what is fetched is accepted and then acknowledged, whatever happens."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any, NoReturn

import pytest

from tape.errors import NoCredential, SourceRefused, SourceUnavailable, StoreUnavailable
from tape.model.accept_messages import AcceptedMessage
from tape.model.message import SourceMessage
from tape.ports.source import ReceivedMessage
from tape.ports.subscriptions import PlaceAges
from tape.settings import ListenerSettings
from tape.subscriptions.keep_listening import KeepListening
from tape.subscriptions.listener import ListenerEnd, ListeningManner
from tape.subscriptions.operations import (
    AcceptMessagesRequest,
    HoldSubscription,
    ReservedDispatches,
    SubscriptionHold,
    SubscriptionView,
)
from tape.subscriptions.upkeep import PLACE_AGES, SubscriptionUpkeep
from tests.conformance.reacting import until
from tests.unit.subscriptions import subscribed
from tests.unit.subscriptions.sources import FarSide, HeapSource
from tests.unit.subscriptions.subscribed import ORIGIN, Subscribed, document, message
from tests.unit.subscriptions.subscribed import QUICK_LISTENERS as QUICK

pytestmark = pytest.mark.timeout(60)

BUSY_S = 5.0
"""What busy cores may add to a stop. One that waits for somebody takes ten seconds at least."""


def numbered(first: int, upto: int) -> list[SourceMessage]:
    return [message(number, b'{"n":%d}' % number) for number in range(first, upto)]


def listening(
    desk: Subscribed, far_side: FarSide, settings: ListenerSettings = QUICK, owner: str = "me"
) -> AbstractAsyncContextManager[None]:
    return subscribed.listening(desk.subscriptions, far_side.open, settings, owner)


async def activated(desk: Subscribed, **spec: Any) -> None:
    await desk.subscriptions.register_subscription(document(**spec))
    await desk.subscriptions.move_subscription("orders", "activate")


async def view_when(
    desk: Subscribed, holds: Callable[[SubscriptionView], bool]
) -> SubscriptionView:
    """The subscription, once that is so of it."""
    while True:
        view = await desk.subscriptions.get_subscription("orders")
        if holds(view):
            return view
        await asyncio.sleep(0.01)


def places(messages: Sequence[SourceMessage]) -> list[str]:
    return [each.place for each in messages]


async def test_messages_become_runs_in_order_and_are_acknowledged(desk: Subscribed) -> None:
    sent = numbered(1, 1_201)
    far_side = FarSide(*sent)
    await activated(desk, runtime={"batch": 100})
    async with listening(desk, far_side):
        await far_side.until_acked(1_200)
    assert far_side.acked == places(sent)
    assert [run.invocation_id for run in await desk.runs()] == places(sent)
    assert max(far_side.fetches) == 100
    view = await desk.subscriptions.get_subscription("orders")
    assert view.subscription.state == "active"  # the process stops, not the subscription
    assert not view.is_held
    assert (view.listener.fetched, view.listener.accepted) == (1_200, 1_200)
    assert far_side.closed == 1


@pytest.mark.parametrize(
    ("dispatch", "requests"),
    [
        ({}, [500, 500, 200]),
        ({"batch_max": 300}, [500, 500, 200]),
        ({"batch_dispatch": True, "batch_max": 1_000}, [500, 500, 200]),
        ({"batch_dispatch": True, "batch_max": 400}, [400, 400, 400]),
        ({"batch_dispatch": True}, [100] * 12),
    ],
)
async def test_how_many_are_accepted_in_one_turn(
    desk: Subscribed,
    dispatch: dict[str, Any],
    requests: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    accept, offered = desk.subscriptions.accept_messages, []

    async def noted(request: AcceptMessagesRequest) -> list[AcceptedMessage]:
        offered.append(len(request.messages))
        return await accept(request)

    monkeypatch.setattr(desk.subscriptions, "accept_messages", noted)
    far_side = FarSide(*numbered(1, 1_201))
    limits = {"batch": 1_200, "max_in_flight": 1_200}
    await activated(desk, runtime=limits, dispatch={"playbook": "desk", **dispatch})
    async with listening(desk, far_side):
        await far_side.until_acked(1_200)
    assert offered == requests


async def test_a_process_has_no_more_in_hand_than_its_concurrency(desk: Subscribed) -> None:
    far_side = FarSide(*numbered(1, 21))
    await activated(desk, runtime={"concurrency": 3, "batch": 100})
    async with listening(desk, far_side):
        await far_side.until_acked(20)
    assert max(far_side.fetches) == 3


async def test_a_message_is_acknowledged_only_when_it_is_accepted(
    desk: Subscribed, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept, refused = desk.subscriptions.accept_messages, 0
    far_side = FarSide(*numbered(1, 11))

    async def away(request: AcceptMessagesRequest) -> list[AcceptedMessage]:
        nonlocal refused
        refused += 1
        if refused <= 3:
            assert not far_side.acked
            raise StoreUnavailable
        return await accept(request)

    monkeypatch.setattr(desk.subscriptions, "accept_messages", away)
    await activated(desk, runtime={"batch": 2, "max_in_flight": 6})
    async with listening(desk, far_side):
        await far_side.until_acked(10)
    assert refused > 3
    assert len(await desk.runs()) == 10


async def test_batches_have_the_size_that_the_document_says(
    desk: Subscribed, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept, sizes = desk.subscriptions.accept_messages, list[int]()

    async def noting(request: AcceptMessagesRequest) -> list[AcceptedMessage]:
        sizes.append(len(request.messages))
        return await accept(request)

    monkeypatch.setattr(desk.subscriptions, "accept_messages", noting)
    far_side = FarSide(*numbered(1, 13))
    await activated(desk, dispatch={"playbook": "desk", "batch_dispatch": True, "batch_max": 5})
    async with listening(desk, far_side):
        await far_side.until_acked(12)
    assert sizes == [5, 5, 2]


async def test_nothing_more_is_fetched_while_the_store_is_away(
    desk: Subscribed, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = asyncio.Event()
    tried = 0

    async def away(request: AcceptMessagesRequest) -> list[AcceptedMessage]:
        nonlocal tried
        tried += 1
        if tried == 4:
            tries.set()
        raise StoreUnavailable

    far_side = FarSide(*numbered(1, 101))
    await activated(desk, runtime={"batch": 2})
    with monkeypatch.context() as patching:
        patching.setattr(desk.subscriptions, "accept_messages", away)
        async with listening(desk, far_side, replace(QUICK, grace_s=0.001)):
            await tries.wait()
            before = len(far_side.fetches)
            tries.clear()
            tried = 3
            await tries.wait()
            assert len(far_side.fetches) == before
    assert not far_side.acked
    assert len(far_side.waiting) == 100  # what was in hand was given back


async def test_nothing_more_is_fetched_while_the_store_does_not_answer(
    desk: Subscribed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tape.subscriptions.message_flow.OVERDUE_S", 0.05)
    accept, answers = desk.subscriptions.accept_messages, asyncio.Event()

    async def late(request: AcceptMessagesRequest) -> list[AcceptedMessage]:
        await answers.wait()
        return await accept(request)

    monkeypatch.setattr(desk.subscriptions, "accept_messages", late)
    far_side = FarSide(*numbered(1, 3))
    await activated(desk, runtime={"timeout_ms": 20})
    async with listening(desk, far_side):
        await view_when(desk, lambda view: view.is_held)
        while far_side.waiting:  # noqa: ASYNC110 - the first two come
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)  # and the answer is overdue
        far_side.send(*numbered(3, 6))
        await asyncio.sleep(0.2)
        assert len(far_side.waiting) == 3
        answers.set()
        await far_side.until_acked(5)


async def test_what_another_took_over_is_not_acknowledged(desk: Subscribed) -> None:
    far_side = FarSide(*numbered(1, 6))
    await activated(desk)
    taken_over = asyncio.Event()
    accept = desk.subscriptions.accept_messages

    async def overtaken(request: AcceptMessagesRequest) -> list[AcceptedMessage]:
        """The lease runs out, and somebody else is granted one."""
        end_now = HoldSubscription("orders", "me", 1, request.fencing_token)
        other = HoldSubscription("orders", "other", 60_000)

        async def taken() -> bool:
            await desk.subscriptions.hold_subscription(end_now)
            return (await desk.subscriptions.hold_subscription(other)).is_granted

        if not taken_over.is_set():
            await until(taken)
            taken_over.set()
        return await accept(request)

    with pytest.MonkeyPatch.context() as patching:
        patching.setattr(desk.subscriptions, "accept_messages", overtaken)
        async with listening(desk, far_side, replace(QUICK, lease_s=60)):
            await taken_over.wait()
            await far_side.until_closed()
    assert not far_side.acked
    assert len(far_side.waiting) == 5
    assert not await desk.runs()


async def test_a_pause_ends_it_and_a_resume_begins_it_again(desk: Subscribed) -> None:
    far_side = FarSide(*numbered(1, 4))
    await activated(desk)
    async with listening(desk, far_side, replace(QUICK, lease_s=60)):
        await far_side.until_acked(3)
        await desk.subscriptions.move_subscription("orders", "pause")
        await view_when(desk, lambda view: not view.is_held)
        far_side.send(*numbered(4, 7))
        await asyncio.sleep(0)
        assert len(far_side.acked) == 3
        await desk.subscriptions.move_subscription("orders", "resume")
        await far_side.until_acked(6)
    assert len(await desk.runs()) == 6


async def test_a_new_revision_counts_once_nothing_of_the_old_one_is_in_hand(
    desk: Subscribed,
) -> None:
    far_side = FarSide(*numbered(1, 4))
    await activated(desk)
    async with listening(desk, far_side, replace(QUICK, lease_s=60)):
        await far_side.until_acked(3)
        await desk.subscriptions.register_subscription(document(dispatch={"playbook": "other"}))
        await view_when(desk, lambda view: view.listener.revision == 2)
        far_side.send(*numbered(4, 7))
        await far_side.until_acked(6)
    assert [run.app_name for run in await desk.runs()] == ["desk"] * 3 + ["other"] * 3


async def test_what_drains_is_finished_and_deactivated(desk: Subscribed) -> None:
    far_side = FarSide(*numbered(1, 4))
    await activated(desk)
    async with listening(desk, far_side):
        await far_side.until_acked(3)
        await desk.subscriptions.move_subscription("orders", "drain")
        await view_when(desk, lambda view: view.subscription.state == "deactivated")
    assert [entry["state"] for entry in await desk.told("draining")] == ["draining"]
    assert [entry["state"] for entry in await desk.told("deactivated")] == ["deactivated"]


@pytest.mark.parametrize("error", [SourceRefused("no such stream"), NoCredential("none by that")])
async def test_what_every_listener_would_be_refused_pauses_it(
    desk: Subscribed, error: SourceRefused | NoCredential
) -> None:
    far_side = FarSide()
    far_side.opening_fault = error
    await activated(desk)
    async with listening(desk, far_side):
        view = await view_when(desk, lambda view: view.subscription.state == "paused")
    assert view.listener.last_error == str(error)
    assert [entry["because"] for entry in await desk.told("paused")] == [str(error)]


async def test_a_refusal_says_which_revision_was_worked_by(
    desk: Subscribed, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold, asked = desk.subscriptions.hold_subscription, []

    async def noting(request: HoldSubscription) -> SubscriptionHold:
        asked.append(request)
        return await hold(request)

    monkeypatch.setattr(desk.subscriptions, "hold_subscription", noting)
    await activated(desk)
    await desk.subscriptions.register_subscription(document(dispatch={"playbook": "other"}))
    far_side = FarSide()
    far_side.opening_fault = SourceRefused("no such stream")
    async with listening(desk, far_side):
        await view_when(desk, lambda view: view.subscription.state == "paused")
    assert [each.revision for each in asked if each.refused] == [2]


async def test_a_source_that_refuses_later_pauses_it_too(desk: Subscribed) -> None:
    far_side = FarSide(*numbered(1, 3))
    await activated(desk, runtime={"timeout_ms": 20})
    async with listening(desk, far_side):
        await far_side.until_acked(2)
        far_side.fault = SourceRefused("the login was taken away")
        await view_when(desk, lambda view: view.subscription.state == "paused")


async def test_a_source_that_refuses_what_was_good_before_is_opened_anew(
    desk: Subscribed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the login of when it was opened: one that was rotated since may be good."""
    monkeypatch.setattr("tape.subscriptions.keep_listening.AGAIN_FIRST_S", 0.01)
    far_side = FarSide(*numbered(1, 3))
    await activated(desk, runtime={"timeout_ms": 20})
    async with listening(desk, far_side):
        await far_side.until_acked(2)
        far_side.fault = SourceRefused("the login was changed")
        far_side.opening_mends = True
        await far_side.until_opened(2)
        far_side.send(*numbered(3, 5))
        await far_side.until_acked(4)
    assert await desk.told("paused") == []


async def test_a_source_that_is_away_is_tried_again(
    desk: Subscribed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tape.subscriptions.keep_listening.AGAIN_FIRST_S", 0.01)
    far_side = FarSide(*numbered(1, 3))
    far_side.opening_fault = SourceUnavailable("nobody is there")
    await activated(desk)
    async with listening(desk, far_side):
        await far_side.until_opened(2)
        view = await desk.subscriptions.get_subscription("orders")
        assert view.subscription.state == "active"
        assert view.listener.last_error == "nobody is there"
        far_side.opening_fault = None
        await far_side.until_acked(2)


@pytest.mark.parametrize("asked", ["fetch", "backlog"])
async def test_what_nobody_has_thought_of_is_told_logged_and_tried_again(
    desk: Subscribed,
    asked: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("tape.subscriptions.keep_listening.AGAIN_FIRST_S", 0.01)
    far_side = FarSide(*numbered(1, 3))
    fault = ValueError("the password hunter2 is none")
    if asked == "fetch":
        far_side.fault = fault
    else:
        far_side.backlog_fault = fault
    await activated(desk, runtime={"timeout_ms": 20})
    said = "the listener has failed with ValueError; the log of me says where"
    async with listening(desk, far_side):
        await far_side.until_opened(2)
        view = await view_when(desk, lambda view: not view.is_held)  # before its lease ends
        assert (view.subscription.state, view.listener.last_error) == ("active", said)
        far_side.fault = far_side.backlog_fault = None
        far_side.send(*numbered(3, 5))
        await far_side.until_acked(4)
        await view_when(desk, lambda view: view.is_held and not view.listener.last_error)
    (logged, *_more) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert "listening for subscription 'orders' has failed with ValueError;" in logged.getMessage()
    assert f"in {asked}\n" in f"{logged.getMessage()}\n"  # which function has raised it
    assert "hunter2" not in caplog.text
    assert not any(record.exc_info for record in caplog.records)
    assert f"subscription 'orders': {said}" in caplog.text


async def test_an_outage_of_the_source_is_told_and_got_over(desk: Subscribed) -> None:
    far_side = FarSide(*numbered(1, 3))
    await activated(desk, runtime={"timeout_ms": 20})
    async with listening(desk, far_side, replace(QUICK, lease_s=0.1)):
        await far_side.until_acked(2)
        far_side.fault = SourceUnavailable("the broker is away")
        await view_when(desk, lambda view: view.listener.last_error == "the broker is away")
        far_side.fault = None
        far_side.send(*numbered(3, 5))
        await far_side.until_acked(4)
    assert far_side.opened == 1


async def test_a_rate_holds_fetching_back(
    desk: Subscribed, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserve, asked_ms = desk.subscriptions.reserve_dispatches, list[int]()

    async def noting(name: str, token: int, most: int, **said: Any) -> ReservedDispatches:
        asked_ms.append(await desk.store.subscriptions.read_clock())
        return await reserve(name, token, most, **said)

    monkeypatch.setattr(desk.subscriptions, "reserve_dispatches", noting)
    far_side = FarSide(*numbered(1, 16))
    await activated(desk, limits={"max_dispatch_per_sec": 20})
    async with listening(desk, far_side):
        await far_side.until_acked(15)
    begun = [run.started_at_ms for run in await desk.runs()]
    # 14 pauses of 50 ms, of which 0.1 s may be caught up. The first may begin late on busy cores.
    assert begun[-1] - asked_ms[0] >= 599
    assert max(far_side.fetches) <= 3


async def test_a_rate_that_is_faster_than_its_listener_is_told_to_hold_back(
    desk: Subscribed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time it grants a few more, so nobody waits for it; and what is behind comes too late."""
    reserve, granted = desk.subscriptions.reserve_dispatches, list[int]()

    async def late(name: str, token: int, most: int, **said: Any) -> ReservedDispatches:
        if granted:
            await asyncio.sleep(0.02)  # longer than a pause of the rate
        reserved = await reserve(name, token, most, **said)
        granted.append(reserved.granted)
        return reserved

    monkeypatch.setattr(desk.subscriptions, "reserve_dispatches", late)
    far_side = FarSide(*numbered(1, 601))
    await activated(desk, limits={"max_dispatch_per_sec": 1_000}, runtime={"batch": 200})
    async with listening(desk, far_side):
        await far_side.until_acked(600)
    assert all(granted)
    assert len(await desk.told("rate_limited")) == 1


async def test_a_rate_that_nobody_reaches_holds_nothing_back(desk: Subscribed) -> None:
    far_side = FarSide()
    await activated(
        desk, limits={"max_dispatch_per_sec": 100}, runtime={"batch": 500, "timeout_ms": 200}
    )
    async with listening(desk, far_side):
        for number in range(1, 9):
            far_side.send(*numbered(number, number + 1))
            await far_side.until_acked(number)
    assert await desk.told("rate_limited") == []


async def test_a_burst_is_held_back_from_its_first_message_on(
    desk: Subscribed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not from when the listener began to wait for it."""
    waited: list[int] = []
    reserve = desk.subscriptions.reserve_dispatches

    async def noting(name: str, token: int, most: int, **said: Any) -> ReservedDispatches:
        waited.append(said.get("unused", 0))
        return await reserve(name, token, most, **said)

    monkeypatch.setattr(desk.subscriptions, "reserve_dispatches", noting)
    monkeypatch.setattr("tape.subscriptions.message_flow.WAITED_S", 0.0)
    far_side = FarSide()
    await activated(desk, limits={"max_dispatch_per_sec": 4}, runtime={"timeout_ms": 20})
    async with listening(desk, far_side):
        while len(waited) < 15:  # noqa: ASYNC110 - that is longer than a pause of the rate
            await asyncio.sleep(0.01)
        sent_ms = await desk.store.subscriptions.read_clock()
        far_side.send(*numbered(1, 4))
        await far_side.until_acked(3)
    begun = [run.started_at_ms for run in await desk.runs()]
    # Counted from when it was sent: the first may begin late on busy cores.
    assert begun[1] - sent_ms >= 249
    assert begun[2] - sent_ms >= 499


async def test_a_scheduled_one_fetches_a_batch_when_it_is_due(
    desk: Subscribed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def every_300_ms(_cadence: str, after_ms: int) -> int:
        return after_ms // 300 * 300 + 300

    monkeypatch.setattr("tape.subscriptions.operations.next_due_ms", every_300_ms)
    far_side = FarSide(*numbered(1, 8))
    await activated(
        desk, activation="scheduled", cadence="* * * * *",
        runtime={"batch": 3, "timeout_ms": 10},
    )  # fmt: skip
    async with listening(desk, far_side):
        await far_side.until_acked(7)
    assert far_side.fetches == [3, 3, 1]
    assert far_side.opened == far_side.closed == 3
    begun = [run.started_at_ms // 300 for run in await desk.runs()]
    assert begun[0] == begun[2] < begun[3] == begun[5] < begun[6]


async def test_what_a_scheduled_one_was_told_is_reported_between_its_batches(
    desk: Subscribed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its source is closed then: nobody could ask it how much waits, and how far it has come."""
    reports: list[HoldSubscription] = []
    are_reported = asyncio.Event()
    hold = desk.subscriptions.hold_subscription

    async def noted(request: HoldSubscription) -> SubscriptionHold:
        if far_side.closed == far_side.opened == 1 and not request.letting_go:
            reports.append(request)
        held = await hold(request)
        if len(reports) == 3:
            are_reported.set()
        return held

    def once(_cadence: str, after_ms: int) -> int:
        return after_ms + (20 if not far_side.opened else 3_600_000)

    monkeypatch.setattr(desk.subscriptions, "hold_subscription", noted)
    monkeypatch.setattr("tape.subscriptions.operations.next_due_ms", once)
    far_side = FarSide(*numbered(1, 8))
    far_side.warnings = ["it lets go of messages"]
    await activated(
        desk, activation="scheduled", cadence="* * * * *",
        runtime={"batch": 3, "timeout_ms": 10},
    )  # fmt: skip
    async with listening(desk, far_side, replace(QUICK, lease_s=0.3)):
        await are_reported.wait()
        view = await desk.subscriptions.get_subscription("orders")
    assert (view.listener.backlog, view.listener.last_error) == (4, "it lets go of messages")
    assert {(each.backlog, each.passed) for each in reports} == {(4, ((ORIGIN, 3),))}
    assert await pruned(desk) == 3


async def pruned(desk: Subscribed) -> int:
    """How many places go, were all of them old enough."""
    bus, ages = desk.bus, PlaceAges(0, PLACE_AGES.pubsub_ms, PLACE_AGES.any_ms)
    return await SubscriptionUpkeep(bus._store, bus._writer, bus._ids, bus.limits, ages=ages).tidy()


async def test_a_source_that_does_not_answer_holds_up_no_scheduled_batch(
    desk: Subscribed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tape.subscriptions.listening_report.ASK_S", 0.02)
    monkeypatch.setattr(HeapSource, "backlog", never)
    far_side = FarSide(*numbered(1, 8))
    await activated(
        desk, activation="scheduled", cadence="* * * * *",
        runtime={"batch": 3, "timeout_ms": 10},
    )  # fmt: skip
    async with due_at_once(desk), listening(desk, far_side):
        await far_side.until_acked(7)


async def test_a_source_that_does_not_answer_holds_up_no_end(
    desk: Subscribed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tape.subscriptions.listening_report.ASK_S", 60.0)
    asked = asyncio.Event()

    async def silent(_source: HeapSource) -> NoReturn:
        if far_side.acked:
            asked.set()
        await never()

    monkeypatch.setattr(HeapSource, "backlog", silent)
    far_side = FarSide(*numbered(1, 4))
    await activated(
        desk, activation="scheduled", cadence="* * * * *",
        runtime={"batch": 3, "timeout_ms": 10},
    )  # fmt: skip
    async with due_at_once(desk), stopped_within(10.0, desk, far_side):
        await asked.wait()
    assert far_side.closed == 1


async def test_one_process_listens_and_another_takes_over(desk: Subscribed) -> None:
    far_side = FarSide(*numbered(1, 3))
    await activated(desk)
    steady = replace(QUICK, lease_s=60)
    async with listening(desk, far_side, steady, owner="second"):
        view = await view_when(desk, lambda view: view.is_held)
        assert view.listener.lease_owner == "second"
        async with listening(desk, far_side, steady, owner="third"):
            await far_side.until_acked(2)
            assert far_side.opened == 1
    far_side.send(*numbered(3, 5))
    async with listening(desk, far_side, steady, owner="third"):
        await far_side.until_acked(4)
    view = await desk.subscriptions.get_subscription("orders")
    assert view.listener.accepted == 4


async def test_a_process_that_stops_while_it_asks_for_the_hold_lets_go_of_it(
    desk: Subscribed, monkeypatch: pytest.MonkeyPatch
) -> None:
    far_side = FarSide(*numbered(1, 6))
    await activated(desk)
    hold, asked, answers = desk.subscriptions.hold_subscription, asyncio.Event(), asyncio.Event()

    async def slow(request: HoldSubscription) -> SubscriptionHold:
        held = await hold(request)
        if not request.fencing_token:
            asked.set()
            await answers.wait()
        return held

    monkeypatch.setattr(desk.subscriptions, "hold_subscription", slow)
    async with listening(desk, far_side):
        await asked.wait()
        asyncio.get_running_loop().call_later(0.1, answers.set)
    view = await desk.subscriptions.get_subscription("orders")
    assert (view.is_held, view.listener.lease_owner) == (False, "")
    assert (far_side.opened, far_side.fetches) == (0, [])


async def test_a_report_on_its_way_when_the_process_stops_is_counted_once(
    desk: Subscribed, monkeypatch: pytest.MonkeyPatch
) -> None:
    far_side = FarSide(*numbered(1, 6))
    await activated(desk, runtime={"timeout_ms": 20})
    hold, reported = desk.subscriptions.hold_subscription, asyncio.Event()

    async def slow(request: HoldSubscription) -> SubscriptionHold:
        held = await hold(request)
        if request.fetched and not request.letting_go:
            reported.set()
            await asyncio.sleep(0.1)  # the process is told to stop meanwhile
        return held

    monkeypatch.setattr(desk.subscriptions, "hold_subscription", slow)
    async with listening(desk, far_side, replace(QUICK, lease_s=0.3)):
        await far_side.until_acked(5)
        await reported.wait()
    view = await desk.subscriptions.get_subscription("orders")
    assert (view.listener.fetched, view.is_held) == (5, False)


class EndOfSource:
    """Waits for the end of the source with a listener, and keeps it until it is told to go on."""

    def __init__(self) -> None:
        self.is_empty = asyncio.Event()
        self.may_end = asyncio.Event()
        self.ends: list[ListenerEnd | None] = []

    async def when_empty(self) -> None:
        self.is_empty.set()
        await self.may_end.wait()


@asynccontextmanager
async def listening_once(
    desk: Subscribed, far_side: FarSide, *, tells_received: bool = False
) -> AsyncIterator[EndOfSource]:
    stop, end = asyncio.Event(), EndOfSource()
    keeper = KeepListening(
        desk.subscriptions,
        far_side.open,
        lambda _row: True,
        replace(QUICK, lease_s=60),
        owner="me",
        manner=ListeningManner(tells_received, end.when_empty),
        observe=end.ends.append,
    )
    task = asyncio.create_task(keeper.run(stop))
    try:
        yield end
    finally:
        stop.set()
        await task


async def test_an_empty_source_is_told_of_while_it_is_held(desk: Subscribed) -> None:
    far_side = FarSide(*numbered(1, 251))
    await activated(desk, runtime={"batch": 20, "timeout_ms": 10})
    async with listening_once(desk, far_side, tells_received=True) as end:
        await end.is_empty.wait()
        assert len(far_side.acked) == 250
        view = await desk.subscriptions.get_subscription("orders")
        assert view.is_held
        assert end.ends == [None]
        far_side.send(*numbered(251, 252))  # what comes later is none of this one's
        await desk.subscriptions.move_subscription("orders", "drain")
        end.may_end.set()
        await view_when(desk, lambda view: view.subscription.state == "deactivated")
    assert len(await desk.runs()) == len(await desk.told("message_received")) == 250
    assert [each and each.is_trouble for each in end.ends] == [None, False]


async def test_a_source_that_still_counts_messages_is_not_empty(
    desk: Subscribed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are in hand of a reader that has died, and come again; or they never come."""
    far_side = FarSide()

    async def backlog(_source: HeapSource) -> int:
        return 2

    async def fetched_in_vain() -> bool:
        return far_side.idle_fetches > 2

    monkeypatch.setattr(HeapSource, "backlog", backlog)
    await activated(desk, runtime={"timeout_ms": 5})
    async with listening_once(desk, far_side) as end:
        await until(fetched_in_vain)
        assert not end.is_empty.is_set()
        far_side.send(*numbered(1, 3))
        await far_side.until_acked(2)
        monkeypatch.setattr("tape.subscriptions.message_flow.QUIET_MOST_S", 0.05)
        await end.is_empty.wait()
        end.may_end.set()


async def test_messages_in_hand_are_waited_for(
    desk: Subscribed, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept, may_accept = desk.subscriptions.accept_messages, asyncio.Event()
    far_side = FarSide(*numbered(1, 4))

    async def slowly(request: AcceptMessagesRequest) -> list[AcceptedMessage]:
        await may_accept.wait()
        return await accept(request)

    async def nothing_waits(_source: HeapSource) -> int:
        return 0

    async def fetched_in_vain() -> bool:
        return far_side.idle_fetches > 2

    monkeypatch.setattr(HeapSource, "backlog", nothing_waits)
    monkeypatch.setattr(desk.subscriptions, "accept_messages", slowly)
    await activated(desk, runtime={"timeout_ms": 5})
    async with listening_once(desk, far_side) as end:
        await until(fetched_in_vain)
        assert not end.is_empty.is_set()
        may_accept.set()
        await end.is_empty.wait()
        assert len(far_side.acked) == 3
        end.may_end.set()


async def test_what_ends_a_process_ends_its_waiting(desk: Subscribed) -> None:
    far_side = FarSide(*numbered(1, 4))
    await activated(desk, runtime={"timeout_ms": 5})
    async with listening_once(desk, far_side) as end:
        await end.is_empty.wait()
    assert not end.may_end.is_set()
    view = await desk.subscriptions.get_subscription("orders")
    assert (view.is_held, view.subscription.state) == (False, "active")


async def test_a_scheduled_one_that_is_listened_to_once_fetches_a_batch_now(
    desk: Subscribed,
) -> None:
    far_side = FarSide(*numbered(1, 8))
    await activated(
        desk, activation="scheduled", cadence="0 0 1 1 *", runtime={"batch": 3, "timeout_ms": 10}
    )
    async with listening_once(desk, far_side) as end:
        await end.is_empty.wait()
        assert len(far_side.acked) == 3
        await desk.subscriptions.move_subscription("orders", "drain")
        end.may_end.set()
        await view_when(desk, lambda view: view.subscription.state == "deactivated")
    assert far_side.fetches == [3]


async def never(*_args: Any) -> NoReturn:
    await asyncio.Event().wait()
    raise AssertionError


async def test_a_source_that_does_not_say_what_waits_costs_nobody_the_hold(
    desk: Subscribed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tape.subscriptions.listening_report.ASK_S", 0.05)
    monkeypatch.setattr(HeapSource, "backlog", never)
    far_side = FarSide(*numbered(1, 3))
    await activated(desk, runtime={"timeout_ms": 20})
    lease_s = 3.0  # busy cores do not hold up a renewal for as long
    async with listening(desk, far_side, replace(QUICK, lease_s=lease_s)):
        await far_side.until_acked(2)
        first = (await desk.subscriptions.get_subscription("orders")).listener
        token, renewed_ms = first.fencing_token, first.lease_expires_at_ms + 1000 * lease_s
        await view_when(desk, lambda view: view.listener.lease_expires_at_ms >= renewed_ms)
        far_side.send(*numbered(3, 5))
        await far_side.until_acked(4)
        view = await desk.subscriptions.get_subscription("orders")
        assert (view.is_held, view.listener.fencing_token) == (True, token)
        assert view.listener.backlog == -1


@asynccontextmanager
async def stopped_within(
    seconds: float, desk: Subscribed, far_side: FarSide, grace_s: float = 20.0
) -> AsyncIterator[None]:
    """What is within goes on until it is told to stop, and has ended so soon after that."""
    async with listening(desk, far_side, replace(QUICK, lease_s=60, grace_s=grace_s)):
        yield
        began = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - began < seconds


async def test_a_batch_that_is_half_fetched_ends_there(desk: Subscribed) -> None:
    far_side = FarSide(*numbered(1, 101))
    await activated(
        desk, activation="scheduled", cadence="* * * * *", limits={"max_dispatch_per_sec": 3}
    )
    async with due_at_once(desk), stopped_within(10.0, desk, far_side):
        await far_side.until_acked(2)
    assert len(far_side.waiting) > 90


@pytest.mark.parametrize("hangs", [False, True])
async def test_a_scheduled_one_ends_although_the_store_takes_no_tick(
    desk: Subscribed, monkeypatch: pytest.MonkeyPatch, hangs: bool
) -> None:
    ticked = asyncio.Event()

    async def away(*_args: Any) -> int:
        ticked.set()
        if hangs:
            await never()
        raise StoreUnavailable

    monkeypatch.setattr(desk.subscriptions, "tick_subscription", away)
    far_side = FarSide(*numbered(1, 3))
    await activated(desk, activation="scheduled", cadence="* * * * *", runtime={"timeout_ms": 10})
    async with due_at_once(desk), stopped_within(2.0 + BUSY_S, desk, far_side, grace_s=2.0):
        await ticked.wait()
    assert not (await desk.subscriptions.get_subscription("orders")).is_held


async def test_a_stop_takes_no_longer_than_its_time_whoever_does_not_answer(
    desk: Subscribed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Store and source, all of them one after the other."""
    for name, seconds in (
        ("CLOSE_S", 30.0), ("CLOSE_LEAST_S", 0.1), ("LAST_REPORT_S", 0.1), ("LET_GO_S", 0.2),
    ):  # fmt: skip
        monkeypatch.setattr(f"tape.subscriptions.listener.{name}", seconds)
    far_side, offered = FarSide(*numbered(1, 3)), asyncio.Event()

    async def offer(_request: AcceptMessagesRequest) -> list[AcceptedMessage]:
        offered.set()
        await never()

    await activated(desk)
    with monkeypatch.context() as patching:
        patching.setattr(desk.subscriptions, "accept_messages", offer)
        patching.setattr(HeapSource, "close", never)
        async with stopped_within(2.0 + BUSY_S, desk, far_side, grace_s=2.0):
            await offered.wait()
            for call in ("hold_subscription", "list_subscriptions"):
                patching.setattr(desk.subscriptions, call, never)
            await asyncio.sleep(2 * QUICK.look_s)  # it is looking


async def test_a_source_that_is_being_opened_holds_nobody_up(
    desk: Subscribed, monkeypatch: pytest.MonkeyPatch
) -> None:
    far_side = FarSide()
    opening = asyncio.Event()

    async def opens(*_args: Any) -> Any:
        opening.set()
        await never()

    monkeypatch.setattr(far_side, "open", opens)
    await activated(desk)
    async with stopped_within(10.0, desk, far_side):
        await opening.wait()
    assert not (await desk.subscriptions.get_subscription("orders")).is_held


@asynccontextmanager
async def due_at_once(desk: Subscribed) -> AsyncIterator[None]:
    """Within this, whatever is scheduled is due in a moment."""
    with pytest.MonkeyPatch.context() as patching:
        soon = "tape.subscriptions.operations.next_due_ms"
        patching.setattr(soon, lambda _cadence, after_ms: after_ms + 20)
        yield


async def test_what_is_deactivated_with_messages_in_hand_is_let_go_of(
    desk: Subscribed, monkeypatch: pytest.MonkeyPatch
) -> None:
    far_side = FarSide(*numbered(1, 6))
    await activated(desk)
    accept = desk.subscriptions.accept_messages

    async def after_a_move(request: AcceptMessagesRequest) -> list[AcceptedMessage]:
        monkeypatch.setattr(desk.subscriptions, "accept_messages", accept)
        await desk.subscriptions.move_subscription("orders", "deactivate")
        return await accept(request)

    monkeypatch.setattr(desk.subscriptions, "accept_messages", after_a_move)
    async with listening(desk, far_side, replace(QUICK, lease_s=60)):
        await far_side.until_closed()
        await view_when(desk, lambda view: not view.listener.lease_owner)
        assert (far_side.acked, len(far_side.waiting)) == ([], 5)
        await desk.subscriptions.move_subscription("orders", "activate")
        await far_side.until_acked(5)


async def test_a_cancellation_that_a_client_swallows_is_repeated(
    desk: Subscribed, monkeypatch: pytest.MonkeyPatch
) -> None:
    far_side = FarSide(*numbered(1, 4))
    fetch, swallowed = HeapSource.fetch, 0

    async def swallowing(source: HeapSource, most: int, wait_s: float) -> list[ReceivedMessage]:
        nonlocal swallowed
        try:
            return await fetch(source, most, wait_s)
        except asyncio.CancelledError:
            swallowed += 1
            if swallowed > 1:
                raise
            return []

    monkeypatch.setattr(HeapSource, "fetch", swallowing)
    await activated(desk)
    async with listening(desk, far_side):
        await far_side.until_acked(3)
    assert swallowed == 2
    assert not (await desk.subscriptions.get_subscription("orders")).is_held
