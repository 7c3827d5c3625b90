"""The ledger: subscriptions and drainers come back as they were, and one instance drains."""

import asyncio

from tape.model.drain import DispatchEvents, PassProgress
from tape.model.drainer import AcquireDrainer, Drainer, DrainerLease, Grant, RenewDrainer
from tape.model.event import NewEvent
from tape.model.event_subscription import (
    DeleteEventSubscription,
    EventSubscription,
    NewEventSubscription,
    PutEventSubscription,
)
from tape.model.lease import NewRun
from tape.model.run import RunName
from tape.ports.store import Store
from tests.conformance.order import FAR
from tests.conformance.playing import IDS, LIMITS, OpenStore, attempt, play, record
from tests.conformance.retention import holds, left, prune_all

PLAIN = NewEventSubscription("s", "order.*", "desk")


def putting(subscription_id: str = "s", **fields: object) -> PutEventSubscription:
    new = PLAIN._replace(subscription_id=subscription_id, **fields)  # type: ignore[arg-type]
    return PutEventSubscription(new, next(IDS), LIMITS)


async def put(store: Store, subscription_id: str = "s", **fields: object) -> EventSubscription:
    return await play(store, putting(subscription_id, **fields))


async def acquire(store: Store, drainer_id: str = "d", ttl_ms: int = 60_000) -> Grant:
    return await play(store, AcquireDrainer(drainer_id, next(IDS), ttl_ms, LIMITS))


async def advance(store: Store, hold: DrainerLease, passed: PassProgress, *runs: NewRun) -> None:
    ids = IDS.take(len(runs) + 1)
    await play(store, DispatchEvents(hold, passed, runs, ids=ids, limits=LIMITS, letting_go=True))


class LedgerContract:
    async def test_subscriptions_come_back_as_they_were_put(self, open_store: OpenStore) -> None:
        store, other = await open_store(), await open_store()
        assert await store.ledger.list_event_subscriptions() == []
        mapper = '{"ä":"literal:€"}'
        b = await put(store, "b", input_mapper=mapper, enabled=False, awaits_end=False, pool="gpu")
        a = await put(store, "a", drainer_id="other", filter_expr="payload.n > 1")
        assert b[4:8] == (mapper, "", False, False)
        assert (a.pool, b.pool) == ("", "gpu")
        assert await other.ledger.list_event_subscriptions() == [a, b]
        assert await other.ledger.list_event_subscriptions("other") == [a]
        assert await other.ledger.list_event_subscriptions("nobody") == []
        moved = await put(other, "a", drainer_id="workflow_runner")
        assert moved.created_at_ms == a.created_at_ms
        b = await put(store, "b", input_mapper=mapper, enabled=False, awaits_end=False, pool="cpu")
        assert await store.ledger.list_event_subscriptions("workflow_runner") == [moved, b]
        assert await play(store, DeleteEventSubscription("a", next(IDS), LIMITS)) is True
        assert await play(other, DeleteEventSubscription("a", next(IDS), LIMITS)) is False
        assert await store.ledger.list_event_subscriptions() == [b]

    async def test_a_subscription_changes_often_in_one_batch(self, open_store: OpenStore) -> None:
        store = await open_store()
        outcomes = await attempt(
            store,
            putting("a"),
            DeleteEventSubscription("a", next(IDS), LIMITS),
            putting("a", workflow_type="second"),
            putting("b"),
            DeleteEventSubscription("b", next(IDS), LIMITS),
        )
        assert outcomes[1] is outcomes[4] is True
        (row,) = await store.ledger.list_event_subscriptions()
        assert row == outcomes[2]

    async def test_drainers_come_back_as_they_were_left(self, open_store: OpenStore) -> None:
        store, other = await open_store(), await open_store()
        assert await store.ledger.get_drainer("d") is None
        await record(store, NewEvent("order.placed"))
        grant = await acquire(store)
        assert (grant.is_granted, grant.head) == (True, 1)
        assert await other.ledger.get_drainer("d") == grant.drainer
        run = NewRun(RunName("desk", "event", "s", "event:x"), "{}")
        await advance(store, DrainerLease("d", 1, 60_000), PassProgress(1, "E1", 1, 1), run)
        found = await other.ledger.get_drainer("d")
        assert found is not None
        assert found == Drainer("d", 1, "E1", found.last_drained_at_ms, 1, 1, fencing_token=1)
        assert (await other.runs.get_run(run.name.run_id)) is not None
        await acquire(other, "a")
        assert [row.drainer_id for row in await store.ledger.list_drainers()] == ["a", "d"]

    async def test_one_instance_drains_however_many_ask(self, open_store: OpenStore) -> None:
        stores = [await open_store() for _ in range(4)]
        grants = await asyncio.gather(*(acquire(store) for store in stores for _ in range(5)))
        (granted,) = [grant for grant in grants if grant.is_granted]
        assert {grant.drainer for grant in grants} == {granted.drainer}
        hold = DrainerLease("d", granted.drainer.fencing_token, 60_000)
        await play(stores[1], RenewDrainer(hold, letting_go=True))
        assert (await acquire(stores[2])).drainer.fencing_token == 2

    async def test_a_lease_goes_by_the_stores_clock(self, open_store: OpenStore) -> None:
        store = await open_store()
        before = await store.ledger.read_clock()
        grant = await acquire(store, ttl_ms=50_000)
        after = await store.ledger.read_clock()
        assert before <= grant.drainer.lease_expires_at_ms - 50_000 <= after

    async def test_a_new_drainer_knows_what_others_have_committed(
        self, open_store: OpenStore
    ) -> None:
        store, other = await open_store(), await open_store()
        await record(other, *(NewEvent("order.placed") for _ in range(3)))
        assert (await acquire(store)).head == 3  # though nobody has told this store

    async def test_nothing_is_pruned_that_a_drainer_has_not_passed(
        self, open_store: OpenStore
    ) -> None:
        store = await open_store()
        await put(store)
        await put(store, "idle", drainer_id="idle", enabled=False)
        await record(store, *(NewEvent("order.placed") for _ in range(8)))
        assert await holds(store) == {"drainer workflow_runner": 0}
        assert await prune_all(store) == []
        await acquire(store, "workflow_runner")
        hold = DrainerLease("workflow_runner", 1, 60_000)
        await advance(store, hold, PassProgress(5, "E5", 3, 3))
        assert await holds(store) == {"drainer workflow_runner": 5}
        assert (await prune_all(store, FAR))[-1].through == 5
        assert await left(store) == [6, 7, 8, 9, 10]
        await put(store, enabled=False)
        assert await holds(store) == {}
        await prune_all(store)
        assert len(await left(store)) == 1
