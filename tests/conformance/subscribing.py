"""Playing the moves of subscriptions straight onto a store."""

from typing import Any

from tape.model.accept_messages import (
    AcceptedBatch,
    AcceptMessages,
    PlannedMessage,
    ids_for_each,
)
from tape.model.lease import NewRun
from tape.model.listening import HoldAnswer, HoldListener, HoldSubscription
from tape.model.move import Decision, Need, State, save
from tape.model.run import RunName
from tape.model.subscription import (
    LISTENERS,
    Subscription,
    SubscriptionDeadLetter,
    SubscriptionVerb,
)
from tape.model.subscription_moves import (
    DeleteSubscription,
    MoveSubscription,
    NewSubscription,
    RegisterSubscription,
    Registration,
)
from tape.ports.store import Store
from tests.conformance.playing import IDS, LIMITS, play

MINUTE_MS = 60_000
PULL = NewSubscription("s", "nats", "pull", '{"v":1}', activation="continuous")
PUSH = NewSubscription("p", "webhook", "push", '{"v":1}', gateway_path="/ingress/p")
SCHEDULED = PULL._replace(activation="scheduled", cadence="* * * * *")


def next_minute(_cadence: str, after_ms: int) -> int:
    return (after_ms // MINUTE_MS + 1) * MINUTE_MS


def run_of(place: str, app: str = "app", name: str = "s") -> NewRun:
    return NewRun(RunName(app, "subscription", name, place), '{"n":1}', "pool")


def plain(place: str, key: str = "", *, number: int = 7, **fields: Any) -> PlannedMessage:
    return PlannedMessage(place, f"id of {place}", number, key, run_of(place))._replace(**fields)


def bad(place: str, reason: str = "not_json", body: str = "e2==") -> PlannedMessage:
    letter = SubscriptionDeadLetter(
        "s", "", place, f"id of {place}", reason, "why", 1, 0, "nats", "o", "1", "", 0, "", "[]",
        body,
    )  # fmt: skip
    return PlannedMessage(place, f"id of {place}", 7, letter=letter)


def holding(name: str = "s", owner: str = "me", *, reader: str = "", **fields: Any) -> HoldListener:
    request = HoldSubscription(name, owner, 60_000)._replace(**fields)
    return HoldListener(request, next(IDS), LIMITS, next_due=next_minute, reader=reader)


def accepting(
    token: int, *planned: PlannedMessage, name: str = "s", **options: Any
) -> AcceptMessages:
    each = ids_for_each(tells_received=options.get("tells_received", False))
    ids = IDS.take(each * len(planned))
    return AcceptMessages(name, token, planned, ids=ids, limits=LIMITS, **options)


class Expire:
    """As if the holder had been silent for long; nothing else of its row is touched."""

    weight = 1

    def needs(self) -> list[Need]:
        return [Need(LISTENERS, "s")]

    def decide(self, state: State) -> Decision[None]:
        listener = state.get(LISTENERS, "s")
        assert listener is not None
        expired = save(LISTENERS, listener._replace(lease_expires_at_ms=1))
        return Decision(lambda _place: None, [], [expired])


async def register(store: Store, new: NewSubscription = PULL) -> Registration:
    return await play(store, RegisterSubscription(new, next(IDS), LIMITS))


async def move(store: Store, verb: str, name: str = "s") -> Subscription:
    return await play(store, MoveSubscription(name, SubscriptionVerb(verb), IDS.take(2), LIMITS))


async def delete(store: Store, name: str = "s") -> bool:
    return await play(store, DeleteSubscription(name, next(IDS), LIMITS))


async def hold(store: Store, name: str = "s", owner: str = "me", **fields: Any) -> HoldAnswer:
    return await play(store, holding(name, owner, **fields))


async def take(store: Store, new: NewSubscription = PULL) -> int:
    """Register, activate and hold it; the token."""
    await register(store, new)
    await move(store, "activate", new.name)
    answer = await hold(store, new.name)
    assert answer.is_granted
    return answer.listener.fencing_token


async def accept(
    store: Store, token: int, *planned: PlannedMessage, **options: Any
) -> AcceptedBatch:
    return await play(store, accepting(token, *planned, **options))


async def outcomes(store: Store, token: int, *planned: PlannedMessage, **options: Any) -> list[str]:
    batch = await accept(store, token, *planned, **options)
    assert not batch.unclear
    return [message.outcome.value for message in batch.messages]
