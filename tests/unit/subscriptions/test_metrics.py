"""What a process shows of subscriptions: what its listeners do, and what the store holds."""

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tape.errors import StoreUnavailable
from tape.model.accept_messages import AcceptedMessage
from tape.model.subscription_spec import SourceSpec
from tape.ports.source import Source
from tape.programs.store_gauges import refresh_metrics
from tape.settings import ListenerSettings
from tape.subscriptions.operations import AcceptMessagesRequest, HoldSubscription
from tape.telemetry import exposition, metrics
from tests.unit.subscriptions.sources import FarSide
from tests.unit.subscriptions.subscribed import Subscribed, document, message, pushed
from tests.unit.subscriptions.test_listener import (
    activated,
    listening,
    numbered,
    places,
    view_when,
)

pytestmark = pytest.mark.timeout(60)

STEADY = ListenerSettings(lease_s=6, look_s=0.02, grace_s=10)
"""Its leases do not end because the machine is busy."""


@pytest.fixture(autouse=True)
def _without_those_of_other_tests() -> Iterator[None]:
    _forget_all()
    yield
    _forget_all()


def _forget_all() -> None:
    for name in metrics.named_subscriptions():
        metrics.forget_subscription(name)


def value(name: str, **labels: str) -> float | None:
    """A metric of subscriptions, of the one that the tests have."""
    labels = {"subscription": "orders", **labels}
    return exposition.REGISTRY.get_sample_value(f"tape_subscription_{name}", labels)


async def test_a_listener_counts_what_it_does(desk: Subscribed) -> None:
    far_side = FarSide(*numbered(1, 251))
    dispatch = {"playbook": "desk", "batch_dispatch": True, "batch_max": 50}
    await activated(desk, runtime={"batch": 100}, dispatch=dispatch)
    async with listening(desk, far_side, STEADY):
        await far_side.until_acked(250)
        await refresh_metrics(desk.bus)
        assert value("held") == 1
    assert value("messages_fetched_total", source="nats") == 250
    batches = value("batch_dispatch_total")
    assert batches is not None
    assert 5 <= batches < 250  # of 50 at most
    assert value("batch_messages_total") == 250
    await refresh_metrics(desk.bus)
    assert value("messages_total", outcome="accepted") == 250
    assert value("in_flight") == 0
    assert value("held") == 0
    assert value("lag_seconds") is None  # nobody listens in this process
    assert value("state", state="active") == 1


async def test_the_backlog_is_known_as_soon_as_the_source_is_open(desk: Subscribed) -> None:
    """An autoscaler is waiting for it, and the next report comes only after a third of a lease."""
    far_side = FarSide(*numbered(1, 6))
    opened, may_open = far_side.open, asyncio.Event()

    async def open_slowly(spec: SourceSpec, name: str) -> Source:
        await may_open.wait()
        return await opened(spec, name)

    far_side.open = open_slowly  # type: ignore[method-assign]
    await activated(desk)
    async with listening(desk, far_side, ListenerSettings(lease_s=600, look_s=0.02, grace_s=10)):
        await view_when(desk, lambda view: view.is_held)
        await asyncio.sleep(0.05)
        may_open.set()
        await view_when(desk, lambda view: view.listener.backlog >= 0)
        await refresh_metrics(desk.bus)
        assert value("backlog") is not None


async def test_what_the_store_counts_is_shown_by_every_process(desk: Subscribed) -> None:
    """This one listens for nothing: what it shows, a worker elsewhere has reported."""
    await desk.listen()
    await desk.accept(message(1), message(2))
    await desk.accept(message(1), message(3, b"not json"), message(4, b"nor this"))
    report = HoldSubscription(
        "orders", "me", 60_000, desk.token, fetched=5, in_flight=3, backlog=40
    )
    await desk.subscriptions.hold_subscription(report)
    await refresh_metrics(desk.bus)
    counts = {
        outcome: value("messages_total", outcome=outcome)
        for outcome in ("accepted", "redelivered", "deduplicated", "dead_lettered")
    }
    assert counts == {"accepted": 2, "redelivered": 1, "deduplicated": 0, "dead_lettered": 2}
    assert (value("in_flight"), value("backlog"), value("dead_letters")) == (3, 40, 2)
    stalled_s = value("stalled_seconds")
    assert stalled_s is not None
    assert 0 <= stalled_s < 50
    (first, _) = await desk.subscriptions.list_subscription_dead_letters("orders")
    settle = desk.subscriptions.settle_subscription_dead_letters
    assert await settle("orders", "drop", [first.letter_id]) == 1
    await desk.subscriptions.hold_subscription(report._replace(backlog=-1, fetched=0))
    await refresh_metrics(desk.bus)
    assert value("dead_letters") == 1
    assert value("messages_total", outcome="dead_lettered") == 2  # what was, not what is left
    assert value("backlog") is None
    assert value("stalled_seconds") == 0


async def test_it_is_stalled_since_the_last_message(
    desk: Subscribed, monkeypatch: pytest.MonkeyPatch
) -> None:
    await desk.listen()
    await desk.accept(message(1))
    report = HoldSubscription("orders", "me", 60_000, desk.token, backlog=1)
    await desk.subscriptions.hold_subscription(report)
    accepted_at = (await desk.subscriptions.get_subscription("orders")).listener.last_accepted_at_ms
    monkeypatch.setattr(time, "time", lambda: accepted_at / 1000 + 90)
    await refresh_metrics(desk.bus)
    assert value("stalled_seconds") == pytest.approx(90)
    await desk.subscriptions.move_subscription("orders", "pause")
    await refresh_metrics(desk.bus)
    assert value("stalled_seconds") == 0  # somebody wants it so
    assert value("state", state="paused") == 1
    assert value("state", state="active") is None


async def test_lag_is_the_age_of_what_is_not_accepted(
    desk: Subscribed, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept, is_away = desk.subscriptions.accept_messages, True

    async def away(request: AcceptMessagesRequest) -> list[AcceptedMessage]:
        if is_away:
            raise StoreUnavailable
        return await accept(request)

    monkeypatch.setattr(desk.subscriptions, "accept_messages", away)
    hour_ago = int(time.time() * 1000) - 3_600_000
    sent = [message(1, timestamp_ms=hour_ago), message(2, timestamp_ms=hour_ago + 60_000)]
    far_side = FarSide(*sent)
    await activated(desk, runtime={"timeout_ms": 100})
    async with listening(desk, far_side, STEADY):
        await view_when(desk, lambda view: view.listener.in_flight == 2)
        await refresh_metrics(desk.bus)
        assert value("in_flight") == 2
        assert value("lag_seconds") == pytest.approx(3_600, abs=30)
        is_away = False
        await far_side.until_acked(2)
        while value("lag_seconds") != 0:  # it asks once more, and there is nothing
            await view_when(desk, lambda _view: True)
        far_side.send(message(3, timestamp_ms=hour_ago + 1_800_000))
        await far_side.until_acked(3)
    assert far_side.acked == places([*sent, message(3)])


async def test_a_rate_that_is_reached_is_counted(desk: Subscribed) -> None:
    far_side = FarSide(*numbered(1, 12))
    await activated(desk, limits={"max_dispatch_per_sec": 20})
    async with listening(desk, far_side, STEADY):
        await far_side.until_acked(11)
    held_up = value("rate_limited_total")
    assert held_up is not None
    assert held_up >= 1


async def test_what_an_autoscaler_needs_to_know_is_there(desk: Subscribed) -> None:
    keda = {"trigger": "nats-jetstream", "min": 1, "max": 20, "lag_threshold": 500}
    await desk.subscriptions.register_subscription(document(scaling={"keda": keda}))
    await refresh_metrics(desk.bus)
    said = {setting: value("scaling", setting=setting) for setting in keda}
    assert said == {"trigger": None, "min": 1, "max": 20, "lag_threshold": 500}
    await desk.subscriptions.register_subscription(document())
    await refresh_metrics(desk.bus)
    assert value("scaling", setting="max") is None


async def test_a_deleted_subscription_has_no_series(desk: Subscribed) -> None:
    far_side = FarSide(*numbered(1, 3))
    await activated(desk)
    async with listening(desk, far_side, STEADY):
        await far_side.until_acked(2)
    await desk.push(pushed("orders-pushed"), "orders-pushed")
    await refresh_metrics(desk.bus)
    text, _ = exposition.render()
    assert b'subscription="orders"' in text
    await desk.subscriptions.move_subscription("orders", "deactivate")
    await desk.subscriptions.delete_subscription("orders")
    await refresh_metrics(desk.bus)
    text, _ = exposition.render()
    assert b'subscription="orders"' not in text
    assert value("state", subscription="orders-pushed", state="active") == 1
    assert value("held", subscription="orders-pushed") is None  # nobody holds what is pushed


async def test_there_are_no_more_series_than_that(
    desk: Subscribed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "SUBSCRIPTION_SERIES", 1)
    await desk.push(pushed("first"), "first")
    await refresh_metrics(desk.bus)
    far_side = FarSide(*numbered(1, 5))
    await activated(desk)
    async with listening(desk, far_side, STEADY):
        await far_side.until_acked(4)
        await refresh_metrics(desk.bus)
    assert value("state", subscription="first", state="active") == 1
    assert value("state", state="active") is None
    fetched: dict[str, Any] = {"subscription": "", "source": "nats"}
    assert value("messages_fetched_total", **fetched) == 4
    assert value("lag_seconds", subscription="") is None
    metrics.forget_subscription("")
