"""A run's row, its beginning, and the fence that every write for a run must pass."""

import hashlib
from base64 import b32hexencode
from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

import orjson

from tape.errors import NotFound, StaleLease
from tape.model.entry import Draft, Kind, Trace
from tape.model.move import Decision, Need, State, Table, save
from tape.model.subjects import run_status


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


class RunName(NamedTuple):
    """What a run is begun as. There is one run by each such name."""

    app_name: str
    user_id: str
    session_id: str
    invocation_id: str

    @property
    def run_id(self) -> str:
        """The same for the same name, so whoever begins it twice finds it."""
        text = "\0".join(self).encode(errors="surrogatepass")
        return b32hexencode(hashlib.sha256(text).digest()[:16]).decode().rstrip("=").lower()


class QueueRun:
    """Make a runnable run for a worker to take, unless there is one by that name already."""

    __slots__ = ("_event_id", "_input_json", "_name", "_trace", "weight")

    def __init__(self, name: RunName, input_json: str, trace: Trace, event_id: str) -> None:
        self._name = name
        self._input_json = input_json
        self._trace = trace
        self._event_id = event_id
        self.weight = 512 + len(input_json)

    def needs(self) -> Iterable[Need]:
        yield Need(RUNS, self._name.run_id)

    def decide(self, state: State) -> Decision[Run]:
        known = state.get(RUNS, self._name.run_id)
        if known is not None:
            return Decision(lambda _place: known)
        run = Run(
            self._name.run_id, *self._name, "", RunStatus.RUNNABLE, 1, "", "", 0, 0, state.now_ms, 0
        )
        entry = Draft(
            self._event_id,
            Kind.RUN.value,
            run_status("runnable", *self._name[:3], run.run_id),
            _payload(self._name, self._input_json),
            run.run_id,
            1,
            **self._trace._asdict(),
        )
        return Decision(lambda _place: run, [entry], [save(RUNS, run)])


def _payload(name: RunName, input_json: str) -> str:
    """The input goes in as it is: it was checked when it was recorded."""
    return f'{orjson.dumps(name._asdict()).decode()[:-1]},"input":{input_json}}}'
