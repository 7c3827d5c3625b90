"""Rows of runs as this process last left them, so that a batch can be decided before its turn.

Whoever drives a run is nearly always the only one to write for it. So the rows that its next write
needs are those of its last one, and a batch can be decided on what is remembered. That nothing has
changed is proven in the transaction that writes:

* Postgres is sent the batch as one statement. Every change of what a run has written down advances
  the run's `seq_cursor`, and a renewed lease its expiry: if those and the token are as remembered,
  all of it is.
* SQLite says whether any other connection has committed since the last turn.

What is not remembered of such a run is taken not to be there. It must then be made, by an insert
that fails if it is there after all. A guess that turns out wrong writes nothing, and the batch goes
the long way.
"""

from collections import OrderedDict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, cast

from tape.model.decision import DECISIONS
from tape.model.effect import EFFECTS, Effect, EffectStatus
from tape.model.move import Need, State, Table
from tape.model.run import RUNS, Run

MOST_RUNS = 4_000
MOST_EFFECTS = 16
MOST_BYTES = 4096
"""Of a remembered effect's request. What is not remembered costs a look, and no more."""
GUESSABLE: frozenset[Table[Any, Any]] = frozenset({RUNS, EFFECTS, DECISIONS})

Keys = dict[Table[Any, Any], list[tuple[Any, ...]]]


@dataclass(slots=True)
class _GuessedRun:
    run: Run
    pending: dict[str, Effect] = field(default_factory=dict)
    """Its effects without an outcome; the others are not needed again.

    None that was ever claimed: a renewed claim is the one change that leaves no trace on the run.
    """


@dataclass(frozen=True, slots=True)
class Guess:
    """What a batch is decided on: runs, their effects under way, and what is not there."""

    runs: list[Run]
    effects: list[Effect]
    missing: list[tuple[Table[Any, Any], Hashable]]

    def is_borne_out(self, state: State) -> bool:
        """Whether no move was refused, and all that was taken not to be there was made."""
        return not state.refused and all(
            key in state.saves.get(table, ()) for table, key in self.missing
        )


class Guesses:
    def __init__(self) -> None:
        self._known: OrderedDict[str, _GuessedRun] = OrderedDict()

    def guess(self, keys: Keys, needs: Iterable[Need]) -> Guess | None:
        """The rows that these keys have, None if that is not known."""
        if not keys.keys() <= GUESSABLE:
            return None
        new = {need.key for need in needs if need.is_new}
        guess = Guess([], [], [])
        for (run_id,) in keys.get(RUNS, ()):
            known = self._known.get(run_id)
            if known is not None:
                guess.runs.append(known.run)
            elif run_id in new:
                guess.missing.append((RUNS, run_id))
            else:
                return None
        proven = {run_id for (run_id,) in keys.get(RUNS, ())}
        for table in (EFFECTS, DECISIONS):
            for key in keys.get(table, ()):
                run_id, name = key
                if run_id not in proven:
                    return None
                known = self._known.get(run_id)
                effect = known.pending.get(name) if known and table is EFFECTS else None
                if effect is None:
                    guess.missing.append((table, key))
                else:
                    guess.effects.append(effect)
        return guess

    def compare(self, keys: Keys, state: State) -> None:
        """Forget runs that another has written for, with their effects: these were read anew, and
        what is noted of a run afterwards must not make old effects look new.
        """
        for (run_id,) in keys.get(RUNS, ()):
            known = self._known.get(run_id)
            if known is not None and known.run != state.get(RUNS, run_id):
                del self._known[run_id]

    def note(self, state: State) -> None:
        """Remember what a batch has written."""
        for row in state.saves.get(RUNS, {}).values():
            self._note_run(cast("Run", row))
        for row in state.saves.get(EFFECTS, {}).values():
            effect = cast("Effect", row)
            known = self._known.get(effect.run_id)
            if known is None:
                continue
            known.pending.pop(effect.idempotency_key, None)
            if _is_remembered(effect) and len(known.pending) < MOST_EFFECTS:
                known.pending[effect.idempotency_key] = effect

    def _note_run(self, run: Run) -> None:
        known = self._known.get(run.run_id)
        if not run.lease_owner:
            self._known.pop(run.run_id, None)  # the next to write for it is somebody else
        elif known is not None and known.run.fencing_token == run.fencing_token:
            known.run = run
            self._known.move_to_end(run.run_id)
        else:
            self._known[run.run_id] = _GuessedRun(run)
            if len(self._known) > MOST_RUNS:
                self._known.popitem(last=False)

    def forget(self, run_ids: Iterable[str] | None = None) -> None:
        """What is remembered of these runs, or of all, is not so."""
        if run_ids is None:
            self._known.clear()
            return
        for run_id in run_ids:
            self._known.pop(run_id, None)


def _is_remembered(effect: Effect) -> bool:
    return (
        effect.status == EffectStatus.PENDING
        and not effect.claim_token
        and len(effect.request_json) <= MOST_BYTES
    )
