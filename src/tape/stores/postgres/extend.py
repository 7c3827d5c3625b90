"""A turn for runs that are remembered: decided at once, sent as one statement.

See `tape.stores.guesses` for why that is safe. The time is the store's, too: as it told it last,
and as much later as has passed since.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import asyncpg

from tape.model.decision import DECISIONS, DecisionPlace
from tape.model.effect import EFFECTS, Effect
from tape.model.entry import Draft
from tape.model.move import State
from tape.model.run import RUNS, Run
from tape.ports.store import Decide
from tape.stores.guesses import GUESSABLE, Guess

NOT_AS_REMEMBERED = "TG001"
# The statement writes an effect's columns up to these, which have defaults until it is claimed.
_EFFECT_COLUMNS = Effect._fields.index("dispatch_attempts")
_UNCLAIMED = tuple(Effect._field_defaults.values())


class WrongGuess(Exception):
    """Nothing was written: the batch goes the long way."""


class StoreTime:
    """The store's clock, told between two looks at it by this process's steady one."""

    def __init__(self) -> None:
        self._offset_ms: float | None = None

    def now_ms(self) -> int | None:
        """None before the store has told it once."""
        return None if self._offset_ms is None else round(self._offset_ms + _steady_ms())

    def told(self, now_ms: int) -> None:
        self._offset_ms = now_ms - _steady_ms()


def decide_on(guess: Guess, now_ms: int, decide: Decide, state: State) -> list[Any]:
    """Decide a batch on what is remembered; the statement's arguments."""
    state.now_ms = now_ms
    state.put_loaded(RUNS, guess.runs)
    state.put_loaded(EFFECTS, guess.effects)
    decide(state)
    if state.refused or state.deletions or not state.entries or not state.saves.keys() <= GUESSABLE:
        raise WrongGuess
    if any(row[_EFFECT_COLUMNS:] != _UNCLAIMED for row in state.saves.get(EFFECTS, {}).values()):
        raise WrongGuess
    return [now_ms, *_arguments(guess, state)]


async def send(
    connection: asyncpg.Connection, statement: str, arguments: list[Any]
) -> tuple[int, int]:
    """The number of the first entry, and the store's time."""
    try:
        (row,) = await connection.fetch(statement, *arguments)
    except asyncpg.UniqueViolationError:
        raise WrongGuess from None
    except asyncpg.PostgresError as error:
        if error.sqlstate == NOT_AS_REMEMBERED:
            raise WrongGuess from None
        raise
    return row[0], row[1]


def _arguments(guess: Guess, state: State) -> list[Any]:
    there = {(effect.run_id, effect.idempotency_key) for effect in guess.effects}
    effects = list(state.saves.get(EFFECTS, {}).values())
    return [
        [run.run_id for run in guess.runs],
        [run.seq_cursor for run in guess.runs],
        [run.fencing_token for run in guess.runs],
        [run.lease_expires_at_ms for run in guess.runs],
        guess.new_runs,
        *_columns(list(state.saves.get(RUNS, {}).values()), len(Run._fields)),
        [(row[0], row[1]) not in there for row in effects],
        *_columns(effects, _EFFECT_COLUMNS),
        *_columns(list(state.saves.get(DECISIONS, {}).values()), len(DecisionPlace._fields)),
        *_columns(state.entries, len(Draft._fields)),
    ]


def _columns(rows: Sequence[tuple[Any, ...]], count: int) -> list[tuple[Any, ...]]:
    return [*zip(*rows, strict=True)][:count] if rows else [()] * count


def _steady_ms() -> float:
    return asyncio.get_running_loop().time() * 1000
