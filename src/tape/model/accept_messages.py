"""Accepting messages: each becomes one run, whatever is delivered again, and however often.

For each message in order, in the turn that looks at the listener's token:

* its place is known: it was accepted before, and is only counted;
* its place was forgotten, and its run is there: the same, and its key means nothing any more;
* its key was seen within the window: it belongs to the run of the first with that key;
* it cannot become a run: it is a dead letter, with its bytes;
* else its run is begun, and place and key are written down with it.

Of a message that is accepted plainly the journal is told by its run's first entry alone, unless
whoever hands it over wants an entry of its own for it.

A run is named after the subscription and the place. Where there is a run by that name whose place
is not known, the move writes nothing and says so: the place may have been forgotten, and then the
message has become that run; or somebody else has begun a run by that name.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

from tape.errors import WrongState
from tape.model.begin_runs import BegunRun, RunsToBegin
from tape.model.entry import NO_TRACE, EntryDraft, Trace
from tape.model.lease import NewRun
from tape.model.listening import writing_listener
from tape.model.message import SourceMessage
from tape.model.move import Decision, Need, RowChange, State, save
from tape.model.names import check_name
from tape.model.subscription import (
    ACCEPTED_PLACES,
    LISTENERS,
    SEEN_KEYS,
    SUBSCRIPTION_DEAD_LETTERS,
    SUBSCRIPTIONS,
    AcceptedPlace,
    SeenKey,
    Subscription,
    SubscriptionDeadLetter,
    SubscriptionState,
)
from tape.model.subscription_moves import find_subscription, subscription_entry
from tape.settings import Limits

COUNTED_SOURCES: Final = frozenset({"nats", "kafka", "file"})
"""Their positions are numbers that rise."""
_MOST_NUMBER: Final = 2**63 - 1
_MAY_ACCEPT: Final = {
    # What is in hand when a pull is paused or drains is finished; a push just takes nothing more.
    "pull": frozenset(
        {SubscriptionState.ACTIVE, SubscriptionState.PAUSED, SubscriptionState.DRAINING}
    ),
    "push": frozenset({SubscriptionState.ACTIVE}),
}


class AcceptOutcome(StrEnum):
    ACCEPTED = "accepted"
    REDELIVERED = "redelivered"
    DEDUPLICATED = "deduplicated"
    DEAD_LETTERED = "dead_lettered"


class AcceptedMessage(NamedTuple):
    """What became of one message. After any of the outcomes it may be acknowledged. `run_id` is
    empty for a dead letter."""

    place: str
    outcome: AcceptOutcome
    run_id: str


class PlannedMessage(NamedTuple):
    """A message that is ready to be accepted: with its run, which was checked, or with what is kept
    of it as a dead letter.

    `key` is that of the window, empty for none; `number` is as in `AcceptedPlace`. `audit` is what
    the journal is told of the directives, None if that is nothing. `is_sampled` is whether the
    trace that its run joins is recorded by who began it.
    """

    place: str
    message_id: str
    number: int = -1
    key: str = ""
    run: NewRun | None = None
    audit: Mapping[str, Any] | None = None
    letter: SubscriptionDeadLetter | None = None
    is_sampled: bool = False


class AcceptedBatch(NamedTuple):
    """What became of each, in order. Of `unclear` runs nobody knows whose they are; if there are
    any, nothing was written. Nor was it if the plans are `outdated`: the subscription was deleted
    and registered anew."""

    messages: list[AcceptedMessage]
    unclear: list[str]
    outdated: bool = False


def position_number(message: SourceMessage) -> int:
    """Where the source counts, the number that the position is; else -1."""
    text = message.position
    if message.source not in COUNTED_SOURCES or not (text.isascii() and text.isdigit()):
        return -1
    number = int(text) if len(text) < 20 else -1
    return number if number <= _MOST_NUMBER and str(number) == text else -1


class AcceptMessages:
    """Accept messages together, all or none."""

    __slots__ = (
        "_fencing_token",
        "_ids",
        "_key_rule",
        "_name",
        "_own_runs",
        "_planned",
        "_registered_at_ms",
        "_runs",
        "_tells_received",
        "_window_ms",
        "weight",
    )

    def __init__(
        self,
        name: str,
        fencing_token: int,
        planned: Sequence[PlannedMessage],
        *,
        ids: Sequence[str],
        limits: Limits,
        window_ms: int = 0,
        key_rule: str = "",
        own_runs: Collection[str] = (),
        registered_at_ms: int = 0,
        tells_received: bool = False,
    ) -> None:
        """`ids` are as many for each message as `ids_for_each` says. `key_rule` is how the keys of
        the messages were found, as in `SeenKey`. `own_runs` are runs that are
        known to be of messages among these, though their places are forgotten. `registered_at_ms`
        is when the subscription was created whose rules the plans are by. `tells_received` makes an
        entry of its own for each message that is accepted."""
        self._name = check_name(name, limits, field="name", required=True)
        self._fencing_token = fencing_token
        self._planned = planned
        self._ids = ids
        self._window_ms = window_ms
        self._key_rule = key_rule
        self._own_runs = own_runs
        self._registered_at_ms = registered_at_ms
        self._tells_received = tells_received
        self._runs = PlannedRuns(planned, ids[:: ids_for_each(tells_received=tells_received)])
        self.weight = 1024 + 512 * len(planned) + self._runs.weight

    def needs(self) -> Iterable[Need]:
        yield Need(SUBSCRIPTIONS, self._name)
        yield Need(LISTENERS, self._name)
        yield from planned_needs(self._name, self._planned, self._key_rule)
        yield from self._runs.needs()

    def decide(self, state: State) -> Decision[AcceptedBatch]:
        subscription = find_subscription(state, self._name)
        if self._registered_at_ms not in (0, subscription.created_at_ms):
            return Decision(lambda _place: AcceptedBatch([], [], outdated=True))
        if subscription.state not in _MAY_ACCEPT[subscription.mode]:
            raise WrongState(
                f"subscription {self._name!r} is {subscription.state}: it accepts nothing",
                state=subscription.state,
            )
        listener = writing_listener(state, subscription, self._fencing_token)
        acceptance = Acceptance(
            state,
            subscription,
            self._runs,
            self._window_ms,
            self._own_runs,
            key_rule=self._key_rule,
            tells_received=self._tells_received,
        )
        each = ids_for_each(tells_received=self._tells_received)
        for number, planned in enumerate(self._planned):
            acceptance.take(number, planned, self._ids[each * number : each * (number + 1)])
        if acceptance.unclear:
            unclear = AcceptedBatch([], acceptance.unclear)
            return Decision(lambda _place: unclear)
        counts = acceptance.counts
        listener = listener._replace(
            redelivered=listener.redelivered + counts[AcceptOutcome.REDELIVERED],
            accepted=listener.accepted + counts[AcceptOutcome.ACCEPTED],
            deduplicated=listener.deduplicated + counts[AcceptOutcome.DEDUPLICATED],
            dead_lettered=listener.dead_lettered + counts[AcceptOutcome.DEAD_LETTERED],
        )
        if counts[AcceptOutcome.ACCEPTED]:
            listener = listener._replace(last_accepted_at_ms=state.now_ms)
        batch = AcceptedBatch(acceptance.messages, [])
        changes = [*acceptance.changes, save(LISTENERS, listener)]
        return Decision(lambda _place: batch, acceptance.entries, changes)


def ids_for_each(*, tells_received: bool) -> int:
    """How many ids a message needs to be accepted."""
    return 3 if tells_received else 2


def planned_needs(name: str, planned: Iterable[PlannedMessage], key_rule: str) -> Iterable[Need]:
    """The places and keys of messages."""
    for one in planned:
        yield Need(ACCEPTED_PLACES, (name, one.place), is_new=True)
        if one.key:
            yield Need(SEEN_KEYS, (name, key_rule, one.key), is_new=True)


class PlannedRuns:
    """The runs of messages, found by the messages' numbers. Of one place there is one run."""

    __slots__ = ("_begin", "_numbers", "weight")

    def __init__(self, planned: Sequence[PlannedMessage], ids: Sequence[str]) -> None:
        """`ids` are one for each message."""
        runs: list[NewRun] = []
        run_ids: list[str] = []
        self._numbers: dict[int, int] = {}
        for number, one in enumerate(planned):
            if one.run is not None:
                self._numbers[number] = len(runs)
                runs.append(one.run)
                run_ids.append(ids[number])
        self._begin = RunsToBegin(runs, run_ids)
        self.weight = self._begin.weight + sum(
            len(one.letter.body) for one in planned if one.letter is not None
        )

    def needs(self) -> Iterable[Need]:
        return self._begin.needs()

    def decide(self, state: State, number: int) -> BegunRun:
        """Begin a message's run, or find the one by its name."""
        return self._begin.decide(state, self._numbers[number])


class Acceptance:
    """What becomes of messages, one after the other: each sees what became of those before it."""

    def __init__(
        self,
        state: State,
        subscription: Subscription,
        runs: PlannedRuns,
        window_ms: int,
        own_runs: Collection[str],
        *,
        key_rule: str,
        tells_received: bool = False,
    ) -> None:
        self._tells_received = tells_received
        self._state = state
        self._name = subscription.name
        self._runs = runs
        self._window_ms = window_ms
        self._key_rule = key_rule
        self._own_runs = own_runs
        self._places: dict[str, AcceptedPlace] = {}
        self._keys: dict[str, SeenKey] = {}
        self.messages: list[AcceptedMessage] = []
        self.entries: list[EntryDraft] = []
        self.changes: list[RowChange] = []
        self.counts: Counter[AcceptOutcome] = Counter()
        self.unclear: list[str] = []

    def known_place(self, place: str) -> AcceptedPlace | None:
        return self._places.get(place) or self._state.get(ACCEPTED_PLACES, (self._name, place))

    def take(self, number: int, planned: PlannedMessage, ids: Sequence[str]) -> None:
        known = self.known_place(planned.place)
        if known is not None:
            self._done(planned, AcceptOutcome.REDELIVERED, known.run_id)
        elif planned.letter is not None:
            self._bury(planned, planned.letter, ids[0])
        else:
            self.accept(number, planned, ids)

    def accept(self, number: int, planned: PlannedMessage, ids: Sequence[str]) -> None:
        """Find its own run, or that of its key, or begin its run. Its place is not known, or has no
        run. A key that was seen at the same place is that of the message itself. A message that has
        a run belongs to no other one, and opens no window: it is as old as its run."""
        seen = self._seen(planned.key) if planned.key and self._window_ms else None
        if seen is not None and seen.place == planned.place:
            self._redeliver(planned, seen.run_id)
            return
        run = self._runs.decide(self._state, number)
        run_id = run.begun.run.run_id
        if run.begun.resumed:
            if run_id in self._own_runs:
                self._redeliver(planned, run_id)
            else:
                self.unclear.append(run_id)
            return
        if seen is not None:
            self._deduplicate(planned, seen, ids[0])
            return
        if self._tells_received:
            self._tell_received(planned, run_id, ids[2])
        self.entries += run.entries
        self.changes += run.changes
        self._note_place(planned, run_id)
        if planned.key and self._window_ms:
            self._note_key(planned, run_id)
        if planned.audit is not None:
            self._tell(ids[1], "message_directives_applied", planned.audit, _trace(planned))
        self._done(planned, AcceptOutcome.ACCEPTED, run_id)

    def _seen(self, key: str) -> SeenKey | None:
        """The key's row, if its window has not passed."""
        row = self._keys.get(key) or self._state.get(SEEN_KEYS, (self._name, self._key_rule, key))
        if row is None:
            return None
        until_ms = min(row.until_ms, row.seen_at_ms + self._window_ms)
        return row if self._state.now_ms < until_ms else None

    def _redeliver(self, planned: PlannedMessage, run_id: str) -> None:
        self._note_place(planned, run_id)
        self._done(planned, AcceptOutcome.REDELIVERED, run_id)

    def _deduplicate(self, planned: PlannedMessage, seen: SeenKey, event_id: str) -> None:
        payload = {
            "message_id": planned.message_id,
            "place": planned.place,
            "key": planned.key,
            "run_id": seen.run_id,
        }
        self._tell(event_id, "message_deduplicated", payload, _trace(planned))
        self._note_place(planned, seen.run_id)
        self._done(planned, AcceptOutcome.DEDUPLICATED, seen.run_id)

    def _bury(self, planned: PlannedMessage, letter: SubscriptionDeadLetter, event_id: str) -> None:
        letter = letter._replace(letter_id=event_id, at_ms=self._state.now_ms)
        payload = {
            "id": letter.letter_id,
            "message_id": planned.message_id,
            "place": planned.place,
            "reason": letter.reason,
            "detail": letter.detail,
            "attempts": letter.attempts,
        }
        self._tell(event_id, "message_dead_lettered", payload)
        self.changes.append(save(SUBSCRIPTION_DEAD_LETTERS, letter))
        self._note_place(planned, "")
        self._done(planned, AcceptOutcome.DEAD_LETTERED, "")

    def _tell_received(self, planned: PlannedMessage, run_id: str, event_id: str) -> None:
        payload = {"message_id": planned.message_id, "place": planned.place, "run_id": run_id}
        self._tell(event_id, "message_received", payload, _trace(planned))

    def _tell(
        self, event_id: str, word: str, payload: Mapping[str, object], trace: Trace = NO_TRACE
    ) -> None:
        self.entries.append(subscription_entry(event_id, word, self._name, payload, trace))

    def _note_place(self, planned: PlannedMessage, run_id: str) -> None:
        row = AcceptedPlace(self._name, planned.place, run_id, planned.number, self._state.now_ms)
        self._places[planned.place] = row
        self.changes.append(save(ACCEPTED_PLACES, row))

    def _note_key(self, planned: PlannedMessage, run_id: str) -> None:
        now_ms = self._state.now_ms
        row = SeenKey(
            self._name, self._key_rule, planned.key, run_id, planned.place, now_ms,
            now_ms + self._window_ms,
        )  # fmt: skip
        self._keys[planned.key] = row
        self.changes.append(save(SEEN_KEYS, row))

    def _done(self, planned: PlannedMessage, outcome: AcceptOutcome, run_id: str) -> None:
        self.counts[outcome] += 1
        self.messages.append(AcceptedMessage(planned.place, outcome, run_id))


def _trace(planned: PlannedMessage) -> Trace:
    return planned.run.trace if planned.run is not None else NO_TRACE
