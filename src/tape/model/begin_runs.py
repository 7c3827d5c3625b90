"""Runs that a move begins among other things: each is new, or is found by its name."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tape.model.entry import EntryDraft
from tape.model.lease import BeginRun, Begun, NewRun, Taker
from tape.model.move import EntryPlace, Need, RowChange, State

_NOBODY = Taker()
_NOWHERE = EntryPlace(0, 0)


class BegunRun(NamedTuple):
    """What beginning one run comes to; without entries and changes if it was there before."""

    begun: Begun
    entries: Sequence[EntryDraft]
    changes: Sequence[RowChange]


class RunsToBegin:
    """They were checked before, and no two have one name. Nobody takes their leases: workers find
    them."""

    __slots__ = ("_begin", "weight")

    def __init__(self, runs: Iterable[NewRun], ids: Iterable[str]) -> None:
        self._begin = [
            BeginRun(run, _NOBODY, event_id, None) for run, event_id in zip(runs, ids, strict=True)
        ]
        self.weight = sum(move.weight for move in self._begin)

    def needs(self) -> Iterable[Need]:
        for move in self._begin:
            yield from move.needs()

    def decide(self, state: State, number: int) -> BegunRun:
        """Begin one of them, by its number in order from 0."""
        decision = self._begin[number].decide(state)
        return BegunRun(decision.reply(_NOWHERE), decision.entries, decision.changes)

    def decide_all(self, state: State) -> list[BegunRun]:
        return [self.decide(state, number) for number in range(len(self._begin))]
