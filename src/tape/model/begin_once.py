"""A run for each key of an app in a window of time, whoever asks and however often.

The key is in the window of repeats, as keys of messages are, under a scope that is no
subscription's: a name of those has no slash. A run that is there by its own name is that run,
whatever its key: whoever asks again because the answer was lost gets the same one.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from tape.errors import InvalidArgument
from tape.model.lease import BeginRun, Begun, NewRun, Taker
from tape.model.message import bounded_key
from tape.model.move import Decision, EntryPlace, Need, State, save
from tape.model.names import check_name
from tape.model.run import RUNS, Run
from tape.model.subject import check_length
from tape.model.subjects import subscription as subscription_subject
from tape.model.subscription import SEEN_KEYS, SeenKey
from tape.model.subscription_moves import subscription_entry
from tape.settings import Limits

MOST_WINDOW_MS: Final = 31 * 24 * 3_600_000
WORD: Final = "run_deduplicated"


class BegunOnce(NamedTuple):
    """The run, whether it was there before, and whether it is another one's, by the key."""

    run: Run
    resumed: bool
    duplicate: bool


class OnceAnswer(NamedTuple):
    """`run` is None where the key was seen; then `run_id` is that of its run."""

    run_id: str
    run: Run | None
    resumed: bool


def scope_of(app_name: str) -> str:
    """Under what the keys of an app's runs are kept."""
    return f"execute/{app_name}"


class BeginRunOnce:
    """Find the run of a key, or begin one; nobody takes its lease."""

    __slots__ = ("_begin", "_ids", "_key", "_new", "_scope", "_window_ms", "weight")

    def __init__(
        self, new: NewRun, key: str, window_ms: int, ids: tuple[str, str], limits: Limits
    ) -> None:
        check_name(key, limits, field="key", required=True)
        if not 0 < window_ms <= MOST_WINDOW_MS:
            raise InvalidArgument(f"{window_ms} is not in 1..{MOST_WINDOW_MS}", field="window_ms")
        if new.parent_run_id:
            raise InvalidArgument("a run with a key has no parent", field="parent_run_id")
        self._new = new.checked(limits)
        self._scope = scope_of(new.name.app_name)
        check_length(subscription_subject(WORD, self._scope), limits)
        self._key = bounded_key(key)
        self._window_ms = window_ms
        self._ids = ids
        self._begin = BeginRun(self._new, Taker(), ids[0], None)
        self.weight = self._begin.weight + 512

    def needs(self) -> Iterable[Need]:
        yield from self._begin.needs()
        yield Need(SEEN_KEYS, (self._scope, "", self._key), is_new=True)

    def decide(self, state: State) -> Decision[OnceAnswer]:
        seen = self._seen(state)
        if seen is not None and state.get(RUNS, self._new.name.run_id) is None:
            return self._duplicate(seen)
        begun = self._begin.decide(state)
        if not begun.changes:
            return Decision(lambda place: _answer(begun, place))
        now_ms, run_id = state.now_ms, self._new.name.run_id
        row = SeenKey(self._scope, "", self._key, run_id, "", now_ms, now_ms + self._window_ms)
        changes = [*begun.changes, save(SEEN_KEYS, row)]
        return Decision(lambda place: _answer(begun, place), begun.entries, changes)

    def _seen(self, state: State) -> SeenKey | None:
        row = state.get(SEEN_KEYS, (self._scope, "", self._key))
        if row is None:
            return None
        until_ms = min(row.until_ms, row.seen_at_ms + self._window_ms)
        return row if state.now_ms < until_ms else None

    def _duplicate(self, seen: SeenKey) -> Decision[OnceAnswer]:
        name = self._new.name
        payload = {
            "app_name": name.app_name,
            "invocation_id": name.invocation_id,
            "key": self._key,
            "run_id": seen.run_id,
        }
        entry = subscription_entry(self._ids[1], WORD, self._scope, payload, self._new.trace)
        known = OnceAnswer(seen.run_id, None, resumed=True)
        return Decision(lambda _place: known, [entry])


def _answer(begun: Decision[Begun], place: EntryPlace) -> OnceAnswer:
    run, resumed, _token, _extended = begun.reply(place)
    return OnceAnswer(run.run_id, run, resumed)
