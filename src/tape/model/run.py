"""A run's row, and the fence that every write for a run must pass."""

from enum import IntEnum
from typing import NamedTuple

from tape.errors import NotFound, StaleLease
from tape.model.move import State, Table


class RunStatus(IntEnum):
    RUNNABLE = 1
    RUNNING = 2
    WAITING = 3
    TERMINAL = 4
    FAILED = 5
    COMPENSATING = 6
    STUCK = 7
    CANCELLED = 8


class Run(NamedTuple):
    run_id: str
    app_name: str
    user_id: str
    session_id: str
    invocation_id: str
    pool: str
    status: int
    seq_cursor: int
    lease_owner: str
    reactor_name: str
    lease_expires_at_ms: int
    fencing_token: int
    started_at_ms: int
    ended_at_ms: int


RUNS = Table("runs", Run, lambda row: row.run_id)


def fenced_run(state: State, run_id: str, fencing_token: int) -> Run:
    """The run, if `fencing_token` is the one its lease was last granted with."""
    run = state.get(RUNS, run_id)
    if run is None:
        raise NotFound(f"no run has the id {run_id!r}")
    if fencing_token != run.fencing_token:
        raise StaleLease(
            f"run {run_id!r} is held with fencing token {run.fencing_token}, "
            f"this write carries {fencing_token}: abandon the work"
        )
    return run
