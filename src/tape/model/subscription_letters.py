"""Dead letters of a subscription: accepted after all by the rules of today, or dropped."""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from tape.model.accept_messages import (
    Acceptance,
    AcceptOutcome,
    PlannedMessage,
    PlannedRuns,
    planned_needs,
)
from tape.model.move import Decision, Need, State, delete, save
from tape.model.names import check_name
from tape.model.subscription import (
    LISTENERS,
    SUBSCRIPTION_DEAD_LETTERS,
    SUBSCRIPTIONS,
    SubscriptionDeadLetter,
)
from tape.model.subscription_moves import find_listener, find_subscription, subscription_entry
from tape.settings import Limits


class ReplayedLetter(NamedTuple):
    """Whether the letter is gone because of this replay, and the run that its message became.
    `unclear` is as in `AcceptedBatch`."""

    is_replayed: bool
    run_id: str = ""
    unclear: tuple[str, ...] = ()


class ReplaySubscriptionLetter:
    """Accept the message of a dead letter. If it is refused again, the letter stays and is counted;
    if it is gone, nothing happens."""

    __slots__ = (
        "_ids",
        "_key_rule",
        "_letter_id",
        "_name",
        "_own_runs",
        "_planned",
        "_runs",
        "_window_ms",
        "weight",
    )

    def __init__(
        self,
        name: str,
        letter_id: str,
        planned: PlannedMessage,
        *,
        ids: Sequence[str],
        limits: Limits,
        window_ms: int = 0,
        key_rule: str = "",
        own_runs: Collection[str] = (),
    ) -> None:
        """`ids` are three."""
        self._name = check_name(name, limits, field="name", required=True)
        self._letter_id = letter_id
        self._planned = planned
        self._ids = ids
        self._window_ms = window_ms
        self._key_rule = key_rule
        self._own_runs = own_runs
        self._runs = PlannedRuns([planned], ids[:1])
        self.weight = 2048 + self._runs.weight

    def needs(self) -> Iterable[Need]:
        yield Need(SUBSCRIPTIONS, self._name)
        yield Need(LISTENERS, self._name)
        yield Need(SUBSCRIPTION_DEAD_LETTERS, (self._name, self._letter_id))
        yield from planned_needs(self._name, [self._planned], self._key_rule)
        yield from self._runs.needs()

    def decide(self, state: State) -> Decision[ReplayedLetter]:
        subscription = find_subscription(state, self._name)
        key = (self._name, self._letter_id)
        letter = state.get(SUBSCRIPTION_DEAD_LETTERS, key)
        if letter is None:
            return Decision(lambda _place: ReplayedLetter(is_replayed=False))
        refused = self._planned.letter
        if refused is not None:
            return _kept(letter, refused)
        acceptance = Acceptance(
            state, subscription, self._runs, self._window_ms, self._own_runs,
            key_rule=self._key_rule,
        )  # fmt: skip
        known = acceptance.known_place(self._planned.place)
        run_id = known.run_id if known is not None else ""
        if not run_id:
            acceptance.accept(0, self._planned, self._ids)
        if acceptance.unclear:
            unclear = ReplayedLetter(is_replayed=False, unclear=tuple(acceptance.unclear))
            return Decision(lambda _place: unclear)
        run_id = run_id or acceptance.messages[0].run_id
        listener = find_listener(state, self._name)
        deduplicated = acceptance.counts[AcceptOutcome.DEDUPLICATED]
        listener = listener._replace(
            replayed=listener.replayed + 1,
            deduplicated=listener.deduplicated + deduplicated,
        )
        payload = {
            "id": letter.letter_id,
            "message_id": letter.message_id,
            "place": letter.place,
            "run_id": run_id,
        }
        entry = subscription_entry(self._ids[2], "message_replayed", self._name, payload)
        gone = delete(SUBSCRIPTION_DEAD_LETTERS, key)
        return Decision(
            lambda _place: ReplayedLetter(is_replayed=True, run_id=run_id),
            [*acceptance.entries, entry],
            [*acceptance.changes, gone, save(LISTENERS, listener)],
        )


def _kept(
    letter: SubscriptionDeadLetter, refused: SubscriptionDeadLetter
) -> Decision[ReplayedLetter]:
    again = letter._replace(
        reason=refused.reason, detail=refused.detail, attempts=letter.attempts + 1
    )
    return Decision(
        lambda _place: ReplayedLetter(is_replayed=False),
        changes=[save(SUBSCRIPTION_DEAD_LETTERS, again)],
    )


class DropSubscriptionLetters:
    """Remove dead letters for good; how many there were. Their messages stay accepted: what the
    source delivers again is not looked at again."""

    __slots__ = ("_ids", "_letter_ids", "_name", "weight")

    def __init__(
        self, name: str, letter_ids: Sequence[str], ids: Sequence[str], limits: Limits
    ) -> None:
        """`ids` are one for each letter."""
        self._name = check_name(name, limits, field="name", required=True)
        self._letter_ids = list(dict.fromkeys(letter_ids))
        self._ids = ids
        self.weight = 512 + 512 * len(letter_ids)

    def needs(self) -> Iterable[Need]:
        yield Need(SUBSCRIPTIONS, self._name)
        for letter_id in self._letter_ids:
            yield Need(SUBSCRIPTION_DEAD_LETTERS, (self._name, letter_id))

    def decide(self, state: State) -> Decision[int]:
        find_subscription(state, self._name)
        entries, changes = [], []
        for letter_id, event_id in zip(self._letter_ids, self._ids, strict=False):
            letter = state.get(SUBSCRIPTION_DEAD_LETTERS, (self._name, letter_id))
            if letter is None:
                continue
            payload = {
                "id": letter_id,
                "message_id": letter.message_id,
                "place": letter.place,
                "reason": letter.reason,
            }
            entries.append(subscription_entry(event_id, "message_dropped", self._name, payload))
            changes.append(delete(SUBSCRIPTION_DEAD_LETTERS, (self._name, letter_id)))
        dropped = len(entries)
        return Decision(lambda _place: dropped, entries, changes)
