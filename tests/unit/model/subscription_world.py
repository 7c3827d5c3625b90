"""A state in which moves of subscriptions are played, one after the other or many in a batch."""

from collections.abc import Sequence
from typing import Any

import orjson

from tape.model.accept_messages import AcceptedBatch, AcceptMessages, PlannedMessage
from tape.model.listening import HoldAnswer, HoldListener, HoldSubscription
from tape.model.move import EntryPlace, State
from tape.model.subscription import (
    LISTENERS,
    SUBSCRIPTIONS,
    Listener,
    Subscription,
    SubscriptionVerb,
)
from tape.model.subscription_moves import (
    MoveSubscription,
    NewSubscription,
    RegisterSubscription,
    Registration,
)
from tests.conformance.playing import IDS, LIMITS
from tests.conformance.subscribing import PULL, next_minute

START_MS = 1_000_000


class World:
    def __init__(self) -> None:
        self.state = State(START_MS, 1)

    def play(self, move: Any) -> Any:
        """Decide and apply; a refusal applies nothing."""
        list(move.needs())
        before = len(self.state.entries)
        decision = move.decide(self.state)
        self.state.apply(decision)
        return decision.reply(EntryPlace(before + 1, self.state.now_ms))

    def later(self, ms: int) -> None:
        self.state.now_ms += ms

    def register(self, new: NewSubscription = PULL) -> Registration:
        reply = self.play(RegisterSubscription(new, next(IDS), LIMITS))
        assert isinstance(reply, Registration)
        return reply

    def move(self, verb: str, name: str = "s") -> Subscription:
        reply = self.play(MoveSubscription(name, SubscriptionVerb(verb), IDS.take(2), LIMITS))
        assert isinstance(reply, Subscription)
        return reply

    def active(self, new: NewSubscription = PULL) -> "World":
        self.register(new)
        self.move("activate", new.name)
        return self

    def hold(
        self, name: str = "s", owner: str = "me", reader: str = "", **fields: Any
    ) -> HoldAnswer:
        request = HoldSubscription(name, owner, 100, **fields)
        move = HoldListener(request, next(IDS), LIMITS, next_due=next_minute, reader=reader)
        reply = self.play(move)
        assert isinstance(reply, HoldAnswer)
        return reply

    def take(self, owner: str = "me") -> int:
        """Hold it; the token."""
        answer = self.hold(owner=owner)
        assert answer.is_granted
        return answer.listener.fencing_token

    def accept(
        self, token: int, *planned: PlannedMessage, name: str = "s", **options: Any
    ) -> AcceptedBatch:
        ids = IDS.take(2 * len(planned))
        move = AcceptMessages(name, token, planned, ids=ids, limits=LIMITS, **options)
        reply = self.play(move)
        assert isinstance(reply, AcceptedBatch)
        return reply

    def outcomes(self, token: int, *planned: PlannedMessage, **options: Any) -> list[str]:
        batch = self.accept(token, *planned, **options)
        return [message.outcome.value for message in batch.messages]

    def subscription(self, name: str = "s") -> Subscription:
        found = self.state.get(SUBSCRIPTIONS, name)
        assert found is not None
        return found

    def listener(self, name: str = "s") -> Listener:
        found = self.state.get(LISTENERS, name)
        assert found is not None
        return found

    @property
    def words(self) -> list[str]:
        """What the entries say, as `activated`; of runs their status."""
        return [draft.subject.split("/")[3] for draft in self.state.entries]

    def payloads(self, word: str) -> Sequence[Any]:
        drafts = [d for d in self.state.entries if d.subject.split("/")[3] == word]
        return [orjson.loads(draft.payload_json) for draft in drafts]
