"""An error as the journal of a run has it: `{"type", "message"}`, and its `traceback` where a
program's own code raised it.

Nothing is decided by the traceback. What is compared or put into words leaves it out.
"""

from typing import Any

import orjson

from tape.model.traceback_text import harmless, traceback_within
from tape.settings import Limits

MESSAGE_CHARACTERS = 2_000
_WORDS = {"type", "message"}
_BESIDES = len(',"traceback":')


def error_json(error: BaseException, traceback: str, limits: Limits) -> str:
    """An error as JSON. A traceback that does not fit is cut, the error never is."""
    message = str(error)[:MESSAGE_CHARACTERS].encode(errors="replace").decode()
    record = {"type": type(error).__name__, "message": message}
    plain = orjson.dumps(record)
    if traceback:
        room = limits.payload_bytes - len(plain) - _BESIDES
        if cut := traceback_within(harmless(traceback), room):
            plain = orjson.dumps(record | {"traceback": cut})
    return plain.decode()


def is_error(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() - {"traceback"} == _WORDS


def error_words(value: Any) -> str:
    """An error on one line; anything else as JSON."""
    if is_error(value):
        return f"{value['type']}: {value['message']}"
    return orjson.dumps(value).decode()


def traceback_in(value: Any) -> str:
    """The traceback of an error; empty where it has none."""
    traceback = value.get("traceback") if is_error(value) else None
    return traceback if isinstance(traceback, str) else ""


def without_traceback(value: Any) -> Any:
    return {name: value[name] for name in ("type", "message")} if is_error(value) else value
