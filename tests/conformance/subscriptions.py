"""Subscriptions: registered once by many who try, moved by a table, held by one, kept to a rate."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from tape.errors import InvalidArgument, StaleLease, WrongState
from tape.model.listening import EndDraining, ReserveDispatches, TickSubscription
from tape.model.rate import CATCH_UP_US
from tape.model.subscription import SubscriptionVerb
from tape.model.subscription_moves import DeleteSubscription, MoveSubscription, RegisterSubscription
from tape.ports.store import Store
from tests.conformance.playing import IDS, LIMITS, OpenStore, attempt, play, read_all
from tests.conformance.subscribing import (
    PULL,
    PUSH,
    SCHEDULED,
    Expire,
    accept,
    delete,
    hold,
    move,
    next_minute,
    plain,
    register,
    take,
)


def ticking(token: int, due_at_ms: int) -> TickSubscription:
    return TickSubscription(
        "s", token, due_at_ms, LIMITS, next_due=lambda after_ms: next_minute("", after_ms)
    )


def reserving(token: int, most: int, per_s: float, name: str = "s") -> ReserveDispatches:
    return ReserveDispatches(name, token, next(IDS), LIMITS, most=most, per_s=per_s)


async def told(store: Store) -> list[str]:
    """The verbs of entries of subscriptions, in order."""
    entries = await read_all(store)
    return [e.subject.split("/")[3] for e in entries if e.kind == "subscription"]


class SubscriptionsContract:
    async def test_they_come_back_as_they_were_registered(self, open_store: OpenStore) -> None:
        store, other = await open_store(), await open_store()
        assert await store.subscriptions.get_subscription("s") is None
        assert await store.subscriptions.list_subscriptions() == []
        document = '{"text":"€ ä"}'
        push = (await register(store, PUSH._replace(document_json=document))).subscription
        pull = (await register(store, SCHEDULED._replace(listener_pool="iot"))).subscription
        found = await other.subscriptions.list_subscriptions()
        assert [one.subscription for one in found] == [push, pull]
        assert [one.document_json for one in found] == [document, PULL.document_json]
        assert found[0].listener.fencing_token == found[0].subscription.created_at_ms
        assert await other.subscriptions.get_subscription("p") == found[0]
        await register(other, SCHEDULED._replace(document_json='{"v":2}'))
        stored = await store.subscriptions.get_subscription("s")
        assert stored is not None
        assert (stored.subscription.revision, stored.document_json) == (2, '{"v":2}')
        revisions = [await store.subscriptions.get_revision("s", n) for n in (1, 2, 3)]
        assert [r and r.document_json for r in revisions] == [PULL.document_json, '{"v":2}', None]

    async def test_whoever_registers_at_once_registers_one(self, open_store: OpenStore) -> None:
        stores = [await open_store() for _ in range(4)]
        found = await asyncio.gather(*(register(store) for store in stores for _ in range(5)))
        assert Counter((r.is_new, r.is_changed) for r in found) == {
            (True, True): 1, (False, False): 19,
        }  # fmt: skip
        assert {r.subscription for r in found} == {found[0].subscription}
        texts = [f'{{"v":{n % 4}}}' for n in range(20)]
        changed = await asyncio.gather(
            *(
                register(stores[n % 4], PULL._replace(document_json=text))
                for n, text in enumerate(texts)
            )
        )
        newest = max(r.subscription.revision for r in changed if r.subscription)
        # One of these texts was there already; each change has a revision of its own.
        assert newest == 1 + sum(r.is_changed for r in changed)
        assert (await told(stores[0])).count("registered") == newest

    async def test_a_gateway_path_is_given_once(self, open_store: OpenStore) -> None:
        stores = [await open_store() for _ in range(4)]
        names = [f"p{n}" for n in range(12)]
        found = await asyncio.gather(
            *(register(stores[n % 4], PUSH._replace(name=name)) for n, name in enumerate(names)),
            return_exceptions=True,
        )
        refused = [error for error in found if isinstance(error, InvalidArgument)]
        assert len(refused) == 11
        assert {error.field for error in refused} == {"spec.ingress.gateway_path"}
        (there,) = await stores[0].subscriptions.list_subscriptions()
        other = "other" if there.subscription.name == names[0] else names[0]
        await register(
            stores[1],
            PUSH._replace(name=there.subscription.name, gateway_path="/ingress/z",
                          document_json='{"v":2}'),
        )  # fmt: skip
        assert (await register(stores[2], PUSH._replace(name=other))).is_new

    async def test_moves_at_once_follow_the_table(self, open_store: OpenStore) -> None:
        stores = [await open_store() for _ in range(4)]
        await register(stores[0])
        verbs = [SubscriptionVerb.ACTIVATE, SubscriptionVerb.PAUSE, SubscriptionVerb.RESUME] * 8
        await asyncio.gather(
            *(move(stores[n % 4], verb) for n, verb in enumerate(verbs)), return_exceptions=True
        )
        after = {"activated": "active", "paused": "paused", "resumed": "active"}
        may_follow = {"registered": ["activated"], "active": ["paused"], "paused": ["resumed"]}
        state = "registered"
        for word in (await told(stores[0]))[1:]:
            assert word in may_follow[state]
            state = after[word]
        stored = await stores[1].subscriptions.get_subscription("s")
        assert stored is not None
        assert stored.subscription.state == state

    async def test_a_whole_life_in_one_batch(self, open_store: OpenStore) -> None:
        store = await open_store()
        verbs = [SubscriptionVerb.ACTIVATE, SubscriptionVerb.ACTIVATE, SubscriptionVerb.DEACTIVATE]
        replies = await attempt(
            store,
            RegisterSubscription(PUSH, next(IDS), LIMITS),
            *(MoveSubscription("p", verb, IDS.take(2), LIMITS) for verb in verbs),
            DeleteSubscription("p", next(IDS), LIMITS),
            RegisterSubscription(PUSH, next(IDS), LIMITS),
        )
        assert [getattr(reply, "state", None) for reply in replies[1:4]] == [
            "active", "active", "deactivated",
        ]  # fmt: skip
        assert replies[4] is True
        assert replies[5].subscription is None
        assert await store.subscriptions.list_subscriptions() == []
        assert await store.subscriptions.get_revision("p", 1) is None
        assert await told(store) == ["registered", "activated", "deactivated", "deleted"]

    async def test_one_listener_holds_it_however_many_ask(self, open_store: OpenStore) -> None:
        stores = [await open_store() for _ in range(4)]
        await register(stores[0])
        await move(stores[0], "activate")
        before = await stores[0].subscriptions.read_clock()
        answers = await asyncio.gather(
            *(hold(s, owner=next(IDS)) for s in stores for _ in range(5))
        )
        after = await stores[0].subscriptions.read_clock()
        (granted,) = [answer for answer in answers if answer.is_granted]
        assert {answer.listener for answer in answers} == {granted.listener}
        assert before <= granted.listener.lease_expires_at_ms - 60_000 <= after
        assert before <= granted.now_ms <= after

    async def test_a_stale_token_is_refused_by_every_call(self, open_store: OpenStore) -> None:
        store, other = await open_store(), await open_store()
        stale = await take(store, SCHEDULED)
        await play(other, Expire())
        token = (await hold(other, owner="other")).listener.fencing_token
        stored = await other.subscriptions.get_subscription("s")
        assert stored is not None
        calls = [
            hold(store, fencing_token=stale),
            hold(store, fencing_token=stale, letting_go=True, fetched=5),
            accept(store, stale, plain("a/1")),
            play(store, reserving(stale, 1, 0.0)),
            play(store, reserving(stale, 1, 5.0)),
            play(store, ticking(stale, stored.listener.due_at_ms)),
        ]
        for call in calls:
            with pytest.raises(StaleLease):
                await call
        assert await store.subscriptions.get_subscription("s") == stored
        assert await accept(other, token, plain("a/1"))

    async def test_what_drains_ends_by_itself(self, open_store: OpenStore) -> None:
        store, other = await open_store(), await open_store()
        token = await take(store)
        assert (await move(other, "drain")).state == "draining"
        assert await play(other, EndDraining("s", next(IDS), LIMITS)) is False
        answer = await hold(store, fencing_token=token, letting_go=True)
        assert answer.subscription.state == "deactivated"
        await move(other, "activate")
        assert (await hold(store)).is_granted
        await move(other, "drain")
        await play(store, Expire())
        ended = await asyncio.gather(
            *(play(s, EndDraining("s", next(IDS), LIMITS)) for s in (store, other) * 3)
        )
        assert sorted(ended) == [False] * 5 + [True]
        assert await told(store) == [
            "registered", "activated", "draining", "deactivated",
            "activated", "draining", "deactivated",
        ]  # fmt: skip

    async def test_a_source_that_refuses_leaves_it_paused(self, open_store: OpenStore) -> None:
        store, other = await open_store(), await open_store()
        token = await take(store)
        gone: dict[str, Any] = {
            "fencing_token": token,
            "letting_go": True,
            "refused": True,
            "last_error": "no",
        }
        assert (await hold(store, **gone)).subscription.state == "paused"
        stored = await other.subscriptions.get_subscription("s")
        assert stored is not None
        assert (stored.subscription.state, stored.listener.last_error) == ("paused", "no")
        entry = (await read_all(other))[-1]
        assert entry.subject == "/tape/subscription/paused/s"
        assert (entry.payload["by"], entry.payload["because"]) == ("listener", "no")
        assert not (await hold(other)).is_granted
        with pytest.raises(StaleLease):
            await hold(store, **gone)

    async def test_a_rate_holds_over_all_who_ask(self, open_store: OpenStore) -> None:
        stores = [await open_store() for _ in range(2)]
        await register(stores[0], PUSH)
        await move(stores[0], "activate", "p")
        rate, wanted = 200.0, 60
        began_ms = await stores[0].subscriptions.read_clock()
        granted: list[int] = []

        async def keep_asking(store: Store) -> None:
            while sum(granted) < wanted:
                reserved = await play(store, reserving(0, 4, rate, "p"))
                granted.append(reserved.granted)
                assert reserved.granted == 4 or reserved.again_in_ms > 0
                await asyncio.sleep(reserved.again_in_ms / 1000)

        await asyncio.gather(*(keep_asking(store) for store in stores))
        stored = await stores[1].subscriptions.get_subscription("p")
        assert stored is not None
        now_ms = await stores[1].subscriptions.read_clock()
        took_us = (now_ms - began_ms) * 1000 + CATCH_UP_US
        assert sum(granted) <= rate * took_us / 1_000_000 + 1
        # What was granted is on the row: so far ahead of the beginning is the next one free.
        ahead_us = stored.listener.free_at_us - began_ms * 1000 + CATCH_UP_US
        assert ahead_us >= sum(granted) / rate * 1_000_000 - len(granted)

    async def test_a_cadence_is_ticked_once_by_two_racers(self, open_store: OpenStore) -> None:
        store, other = await open_store(), await open_store()
        token = await take(store, SCHEDULED)
        stored = await store.subscriptions.get_subscription("s")
        assert stored is not None
        due = stored.listener.due_at_ms
        assert due == next_minute("", due - 1)
        ticks = await asyncio.gather(
            *(play(racer, ticking(token, due)) for racer in (store, other) * 5)
        )
        (after,) = set(ticks)
        assert after >= next_minute("", due)
        assert await play(other, ticking(token, after)) >= next_minute("", after)

    async def test_nothing_of_a_deleted_one_is_mistaken_for_its_namesake(
        self, open_store: OpenStore
    ) -> None:
        store, other = await open_store(), await open_store()
        token = await take(store)
        await accept(store, token, *(plain(f"a/{n}", f"k{n}") for n in range(5)), window_ms=60_000)
        await hold(store, fencing_token=token, passed=(("a", 3),))
        with pytest.raises(WrongState):
            await delete(other)
        assert await store.subscriptions.purge_deleted("s", 100) == 0  # it is there
        await move(other, "deactivate")
        assert await delete(other) is True
        assert await delete(store) is False
        assert await store.subscriptions.list_deleted() == ["s"]
        assert (await register(store)).subscription is None
        steps = []
        while gone := await other.subscriptions.purge_deleted("s", 3):
            steps.append(gone)
        assert steps == [3, 2, 3, 2, 1, 1]  # places, keys, the position, the listener
        assert await store.subscriptions.list_deleted() == []
        again = await take(store)
        assert again > token
        assert await store.subscriptions.purge_deleted("s", 100) == 0
