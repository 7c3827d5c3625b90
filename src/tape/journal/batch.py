"""Deciding a batch: each move in order on one state, a refusal costing nobody else anything."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from tape.errors import TapeError
from tape.model.move import EntryPlace, Move, Need, State


class Accepted(NamedTuple):
    first: int
    reply: Callable[[EntryPlace], Any]


Verdict = Accepted | Exception


def needs_of(moves: Sequence[Move[Any]]) -> Iterator[Need]:
    for move in moves:
        yield from move.needs()


def decide_all(moves: Sequence[Move[Any]], state: State) -> list[Verdict]:
    """What became of each move; what they write is in the state afterwards."""
    return [_decide(move, state) for move in moves]


def _decide(move: Move[Any], state: State) -> Verdict:
    try:
        decision = move.decide(state)
    except TapeError as refusal:
        state.refused += 1
        return refusal
    except Exception as fault:  # noqa: BLE001 - a move's bug is its caller's error, not the batch's
        state.refused += 1
        return fault
    return Accepted(state.apply(decision), decision.reply)


def settle(verdict: Verdict, place: EntryPlace) -> Any:
    """The reply to a move whose batch was committed at `place`, or its refusal raised."""
    if isinstance(verdict, Exception):
        raise verdict
    return verdict.reply(EntryPlace(place.global_seq + verdict.first, place.ts_ms))
