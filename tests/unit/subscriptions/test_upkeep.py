"""What is left behind is removed by itself, in small steps."""

import asyncio

import pytest

from tape.errors import StoreUnavailable
from tape.model.lease import NewRun
from tape.model.move import Decision, Need, State, save
from tape.model.run import RunName
from tape.model.subscription import LISTENERS
from tape.model.subscription_moves import DeleteSubscription
from tape.ports.subscriptions import PlaceAges
from tape.subscriptions.operations import HoldSubscription
from tape.subscriptions.upkeep import PLACE_AGES, SubscriptionUpkeep
from tests.unit.subscriptions.subscribed import ORIGIN, Subscribed, document, message

AT_ONCE = PlaceAges(0, 0, 0)
DAY_MS = 86_400_000


def upkeep(desk: Subscribed, ages: PlaceAges = AT_ONCE) -> SubscriptionUpkeep:
    bus = desk.bus
    return SubscriptionUpkeep(bus._store, bus._writer, bus._ids, bus.limits, ages=ages)


def test_places_stay_as_long_as_was_ruled() -> None:
    assert PlaceAges(DAY_MS // 24, 8 * DAY_MS, 30 * DAY_MS) == PLACE_AGES


async def test_it_removes_what_has_become_too_old(
    desk: Subscribed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tape.subscriptions.upkeep.STEP_ROWS", 3)
    monkeypatch.setattr("tape.subscriptions.upkeep.REST", 0.0)
    await desk.listen(document(dedup={"window_secs": 1}))
    await desk.accept(*(message(n) for n in range(10)))
    assert await upkeep(desk, PLACE_AGES).tidy() == 0
    passed = ((ORIGIN, 4),)
    await desk.subscriptions.hold_subscription(
        HoldSubscription("orders", "me", 60_000, desk.token, passed=passed)
    )
    by_position = PlaceAges(0, PLACE_AGES.pubsub_ms, PLACE_AGES.any_ms)
    assert await upkeep(desk, by_position).tidy() == 5
    assert await desk.outcomes(message(4), message(5)) == ["redelivered", "redelivered"]


async def passed(desk: Subscribed, position: int, revision: int = 1) -> None:
    request = HoldSubscription(
        "orders", "me", 60_000, desk.token, passed=((ORIGIN, position),), revision=revision
    )
    await desk.subscriptions.hold_subscription(request)


async def test_what_the_consumer_before_has_passed_is_not_passed_by_another(
    desk: Subscribed,
) -> None:
    """The other one may be given everything once more."""
    by_position = upkeep(desk, PlaceAges(0, PLACE_AGES.pubsub_ms, PLACE_AGES.any_ms))
    await desk.listen()
    await desk.accept(*(message(n) for n in range(1, 11)))
    await passed(desk, 2)
    await desk.subscriptions.register_subscription(document(dispatch={"playbook": "other"}))
    assert await by_position.tidy() == 2  # the source is the same
    await desk.subscriptions.register_subscription(document(consumer="other"))
    await passed(desk, 10, revision=2)  # what its listener has said last by the revision before
    assert await by_position.tidy() == 0
    await passed(desk, 0, revision=3)
    assert await by_position.tidy() == 0
    await passed(desk, 5, revision=3)
    assert await by_position.tidy() == 3
    assert await desk.outcomes(message(6), revision=3) == ["redelivered"]


async def test_what_a_consumer_had_passed_before_it_was_made_again_is_not_passed(
    desk: Subscribed,
) -> None:
    await desk.listen()
    await desk.accept(*(message(n) for n in range(1, 11)))
    for position in (10, 0):
        await passed(desk, position)
    by_position = PlaceAges(0, PLACE_AGES.pubsub_ms, PLACE_AGES.any_ms)
    assert await upkeep(desk, by_position).tidy() == 0


async def test_keys_of_runs_go_where_there_is_no_subscription(desk: Subscribed) -> None:
    new = NewRun(RunName("app", "", "", "1"))
    await desk.bus.runs.begin_run_once(new, "k", 1)
    begun_ms = await desk.store.subscriptions.read_clock()
    while await desk.store.subscriptions.read_clock() <= begun_ms:  # a millisecond at most
        pass
    assert await desk.subscriptions.list_subscriptions() == []
    assert await upkeep(desk).tidy() == 1


async def test_it_removes_all_of_what_was_deleted(
    desk: Subscribed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tape.subscriptions.upkeep.STEP_ROWS", 3)
    monkeypatch.setattr("tape.subscriptions.upkeep.REST", 0.0)
    await desk.listen()
    await desk.accept(*(message(n) for n in range(10)))
    await desk.subscriptions.move_subscription("orders", "deactivate")
    bus = desk.bus
    await bus._writer.submit(DeleteSubscription("orders", next(bus._ids), bus.limits))
    await upkeep(desk).purge("orders", most_steps=1)
    assert await desk.store.subscriptions.list_deleted() == ["orders"]
    assert await upkeep(desk).tidy() == 10 - 3 + 1  # and the listener
    assert await desk.store.subscriptions.list_deleted() == []


class Expire:
    """As if the holder had died."""

    weight = 1

    def needs(self) -> list[Need]:
        return [Need(LISTENERS, "orders")]

    def decide(self, state: State) -> Decision[None]:
        listener = state.get(LISTENERS, "orders")
        assert listener is not None
        row = listener._replace(lease_expires_at_ms=1)
        return Decision(lambda _place: None, [], [save(LISTENERS, row)])


async def test_what_drains_without_a_holder_is_deactivated(desk: Subscribed) -> None:
    await desk.listen()
    await desk.subscriptions.move_subscription("orders", "drain")
    await upkeep(desk, PLACE_AGES).tidy()
    view = await desk.subscriptions.get_subscription("orders")
    assert view.subscription.state == "draining"
    await desk.bus._writer.submit(Expire())
    await upkeep(desk, PLACE_AGES).tidy()
    view = await desk.subscriptions.get_subscription("orders")
    assert (view.subscription.state, view.is_held) == ("deactivated", False)


async def test_it_goes_on_after_whatever_went_wrong(
    desk: Subscribed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tape.subscriptions.upkeep.EVERY_S", 0.0)
    kept = upkeep(desk)
    faults: list[Exception] = [StoreUnavailable("away"), RuntimeError("a bug")]
    tidied = asyncio.Event()

    async def tidy() -> int:
        if faults:
            raise faults.pop()
        tidied.set()
        return 0

    monkeypatch.setattr(kept, "tidy", tidy)
    running = asyncio.create_task(kept.run())
    await tidied.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert running.cancelled()


async def test_a_bus_does_it_until_it_is_closed(
    desk: Subscribed, monkeypatch: pytest.MonkeyPatch
) -> None:
    tidied = asyncio.Event()

    async def tidy() -> int:
        tidied.set()
        return 0

    monkeypatch.setattr(desk.subscriptions.upkeep, "tidy", tidy)
    desk.bus.start_upkeep()
    desk.bus.start_upkeep()
    await tidied.wait()
