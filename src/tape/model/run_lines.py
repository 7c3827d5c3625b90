"""The entries of a run's own life, and waking one that waits."""

from typing import Any

import orjson

from tape.config import Limits
from tape.model.entry import Kind
from tape.model.run import STATUS_WORDS, Run, RunStatus
from tape.model.run_write import Line
from tape.model.subjects import run_status


def run_line(run: Run, verb: str = "", **details: Any) -> Line:
    """The entry for what the run's status has become, or for `verb`."""
    payload = {
        "app_name": run.app_name,
        "user_id": run.user_id,
        "session_id": run.session_id,
        "invocation_id": run.invocation_id,
        "pool": run.pool,
        **details,
    }
    return Line(
        Kind.RUN.value,
        run_status(
            verb or STATUS_WORDS[run.status],
            run.app_name,
            run.user_id,
            run.session_id,
            run.run_id,
        ),
        orjson.dumps(payload).decode(),
    )


def raw(json_text: str) -> orjson.Fragment:
    """JSON that was checked before, as part of a payload."""
    return orjson.Fragment(json_text or "null")


def clipped(text: str, limits: Limits) -> str:
    """Words for people: bounded, and free of what a database cannot hold."""
    return text.replace("\0", "\\0").encode(errors="replace").decode()[: limits.name_bytes]


def woken(run: Run, because: str) -> tuple[Run, list[Line]]:
    """A run that waits becomes runnable; any other stays as it is."""
    if run.status != RunStatus.WAITING:
        return run, []
    run = run._replace(status=RunStatus.RUNNABLE.value, waiting_on="")
    return run, [run_line(run, because=because)]
