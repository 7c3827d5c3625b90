"""Errors of a run as they are recorded, told and logged: what Tape says of itself in words, what a
program's own code raised with its traceback.
"""

import logging
from typing import Any

import orjson

from tape.model.error_record import error_json, error_words, traceback_in
from tape.model.json_text import UNLIMITED
from tape.model.run_write import clipped
from tape.ports.user_traceback import TracebackBlock, traceback_of
from tape.settings import Limits


def described(error: BaseException) -> str:
    """An error of Tape's own as it is recorded: its kind and words, no more."""
    return error_json(error, "", UNLIMITED)


def raised_json(
    error: BaseException, limits: Limits, *, within: BaseException | None = None
) -> str:
    """An error that a program's own code raised, as it is recorded: with its traceback.

    `within` is the group of errors that it stands for.
    """
    return error_json(error, traceback_of(error if within is None else within), limits)


def log_raised(log: logging.Logger, level: int, what: str, recorded_json: str) -> None:
    """Log what has failed and with which error, and below it the traceback."""
    recorded = orjson.loads(recorded_json)
    block = TracebackBlock(traceback_in(recorded))
    log.log(level, "%s: %s%s", what, error_words(recorded), block)


def traceback_if_new(traceback: str, words: str, told: str, limits: Limits) -> TracebackBlock:
    """A traceback for the log: nothing if these words are what was told of the time before."""
    return TracebackBlock("" if clipped(words, limits) == told else traceback)


def failure(name: str, error: Any) -> str:
    """The words of EffectFailed for what is recorded."""
    if kind := kind_of(error):
        return f"{name}: {kind}: {error.get('message', '')}"
    return f"{name}: {error}"


def kind_of(error: Any) -> str:
    return str(error.get("type", "")) if isinstance(error, dict) else ""
