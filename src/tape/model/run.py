"""A run's row, its name, and the fence that every write for a run must pass."""

import hashlib
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

from tape.errors import InvalidArgument, NotFound, StaleLease
from tape.model.move import Reading, Table


class RunStatus(IntEnum):
    RUNNABLE = 1
    RUNNING = 2
    WAITING = 3
    TERMINAL = 4
    FAILED = 5
    COMPENSATING = 6
    STUCK = 7
    CANCELLED = 8


STATUS_WORDS = {status.value: status.name.lower() for status in RunStatus}
SHOWN_WORDS = STATUS_WORDS | {RunStatus.TERMINAL.value: "done"}
"""For people: a run that succeeded is done. The wire, JSON and subjects say terminal."""

DEFAULT_POOL = "shared"

OPEN = frozenset({RunStatus.RUNNABLE, RunStatus.RUNNING, RunStatus.WAITING})
"""A run in one of these can be driven; in any other it writes nothing more by itself."""


def status_named(word: str) -> RunStatus:
    """A status by the word that people see, or by that of the wire."""
    for status in RunStatus:
        if isinstance(word, str) and word.lower() in (STATUS_WORDS[status], SHOWN_WORDS[status]):
            return status
    known = ", ".join(SHOWN_WORDS.values())
    raise InvalidArgument(f"{word!r} is not one of {known}", field="status")


class Run(NamedTuple):
    """A run's row: its name, its lease and how it stands.

    `top_obligation` is the seq of its newest unresolved obligation, `ending` the status it gets
    once all are unwound, `outcome_json` its result, or its error if it did not succeed.
    """

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
    app_version: str = ""
    parent_run_id: str = ""
    waiting_on: str = ""
    cancel_reason: str = ""
    top_obligation: int = 0
    ending: int = 0
    outcome_json: str = ""

    @property
    def name(self) -> "RunName":
        return RunName(self.app_name, self.user_id, self.session_id, self.invocation_id)

    @property
    def is_open(self) -> bool:
        return self.status in OPEN

    @property
    def may_go_on(self) -> bool:
        """Whether it is open, or can be again: stuck, and nothing of it was unwound yet."""
        return self.is_open or (self.status == RunStatus.STUCK and not self.ending)

    def is_leased(self, now_ms: int) -> bool:
        return bool(self.lease_owner) and self.lease_expires_at_ms > now_ms

    def unleased(self) -> "Run":
        return self._replace(lease_owner="", reactor_name="", lease_expires_at_ms=0)


RUNS = Table("runs", Run, lambda row: row.run_id)


def find_run(state: Reading, run_id: str) -> Run:
    run = state.get(RUNS, run_id)
    if run is None:
        raise NotFound(f"no run has the id {run_id!r}")
    return run


def check_token(run_id: str, fencing_token: int) -> None:
    """A token fences the writes of one run; without the run it would fence nothing."""
    if fencing_token and not run_id:
        raise InvalidArgument("needs the run_id for which it was granted", field="fencing_token")


def fenced_run(state: Reading, run_id: str, fencing_token: int) -> Run:
    """The run, if `fencing_token` is the one its lease was last granted with.

    It is stale from the takeover on, not from expiry. Whoever let go of the lease has none.
    """
    run = find_run(state, run_id)
    if fencing_token != run.fencing_token:
        raise StaleLease(
            f"run {run_id!r} is held with fencing token {run.fencing_token}, "
            f"this write carries {fencing_token}: abandon the work"
        )
    if not run.lease_owner:
        raise StaleLease(f"run {run_id!r} was released: resume it before you write for it")
    return run


class RunName(NamedTuple):
    """What a run is begun as. There is one run by each such name."""

    app_name: str
    user_id: str
    session_id: str
    invocation_id: str

    @property
    def run_id(self) -> str:
        """Derive the id from the name, so that whoever begins a run twice finds it."""
        return _run_id(self)


_ALPHABET = "0123456789abcdefghijklmnopqrstuv"
_PAIRS = [a + b for a in _ALPHABET for b in _ALPHABET]


@lru_cache(maxsize=4096)
def _run_id(name: RunName) -> str:
    """The first half of a digest, in base 32 with two characters at a time."""
    text = "\0".join(name).encode(errors="surrogatepass")
    number = int.from_bytes(hashlib.sha256(text).digest()[:16], "big") << 2
    return "".join([_PAIRS[number >> bits & 1023] for bits in range(120, -1, -10)])
