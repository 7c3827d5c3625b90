"""A turn for runs that are remembered: decided at once, sent as one statement.

See `tape.stores.guesses` for why that is safe. The time is the store's, too: as it told it last,
and as much later as has passed since.
"""

import asyncio
from collections.abc import Iterable
from operator import attrgetter
from typing import Any, cast

import asyncpg

from tape.model.decision import DECISIONS
from tape.model.effect import EFFECTS, Effect
from tape.model.move import State
from tape.model.run import RUNS, Run
from tape.ports.store import Decide
from tape.stores.guesses import GUESSABLE, Guess

NOT_AS_REMEMBERED = "TG001"
# The statement writes an effect's columns up to these, which have defaults until it is claimed.
_EFFECT_COLUMNS = Effect._fields.index("dispatch_attempts")
_UNCLAIMED = tuple(Effect._field_defaults.values())
# What it changes of a row that is there.
_CHANGING_OF_RUN = attrgetter(
    "status", "seq_cursor", "lease_owner", "reactor_name", "lease_expires_at_ms", "fencing_token",
    "ended_at_ms", "waiting_on", "cancel_reason", "top_obligation", "ending", "outcome_json",
)  # fmt: skip
_CHANGING_OF_EFFECT = attrgetter(
    "run_id", "idempotency_key", "status", "response_json", "error_json"
)


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
    if not guess.is_borne_out(state):
        raise WrongGuess
    if state.deletions or not state.entries or not state.saves.keys() <= GUESSABLE:
        raise WrongGuess
    if any(row[_EFFECT_COLUMNS:] != _UNCLAIMED for row in state.saves.get(EFFECTS, {}).values()):
        raise WrongGuess
    return [now_ms, *_arguments(guess, state)]


async def send(
    connection: asyncpg.Connection, statement: str, arguments: list[Any]
) -> tuple[int, int]:
    """The number of the first entry, and the store's time."""
    try:
        ((placed,),) = await connection.fetch(statement, *arguments)
    except asyncpg.UniqueViolationError:
        raise WrongGuess from None
    except asyncpg.PostgresError as error:
        if error.sqlstate == NOT_AS_REMEMBERED:
            raise WrongGuess from None
        raise
    first, turn_ms = placed
    return first, turn_ms


def _arguments(guess: Guess, state: State) -> list[list[str | None]]:
    saved = cast("dict[str, Run]", state.saves.get(RUNS, {}))
    before = {run.run_id: run for run in guess.runs}
    begun = {(effect.run_id, effect.idempotency_key) for effect in guess.effects}
    effects = state.saves.get(EFFECTS, {})
    return [
        flat([_proof(run) for run in guess.runs if run.run_id not in saved]),
        flat(
            [
                (*_proof(before[key]), *_CHANGING_OF_RUN(row))
                for key, row in saved.items()
                if key in before
            ]
        ),
        flat([row for key, row in saved.items() if key not in before]),
        flat([_CHANGING_OF_EFFECT(row) for key, row in effects.items() if key in begun]),
        flat([row[:_EFFECT_COLUMNS] for key, row in effects.items() if key not in begun]),
        flat(state.saves.get(DECISIONS, {}).values()),
        flat(state.entries),
    ]


def _proof(run: Run) -> tuple[Any, ...]:
    return run.run_id, run.seq_cursor, run.fencing_token, run.lease_expires_at_ms


def flat(rows: Iterable[tuple[Any, ...]]) -> list[str | None]:
    """The values of rows as one list of texts, as the statement takes them."""
    return [
        value if value is None or type(value) is str else str(value)
        for row in rows
        for value in row
    ]


def _steady_ms() -> float:
    return asyncio.get_running_loop().time() * 1000
