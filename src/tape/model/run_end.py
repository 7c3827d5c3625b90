"""A run's end: by its driver, by its last obligation, or because it was cancelled.

A run that fails or is cancelled with obligations first unwinds them. The end of a child opens the
gate `run:<child>` of its parent, with the child's status and outcome.
"""

from collections.abc import Iterable
from typing import NamedTuple

import orjson

from tape.errors import InvalidArgument
from tape.model.gate import GATES, release
from tape.model.json_text import check_json
from tape.model.move import Need, Reading
from tape.model.run import RUNS, Run, RunStatus
from tape.model.run_write import RunWriteResult, clipped, raw, run_line
from tape.settings import Limits

BY_DRIVER = (RunStatus.TERMINAL, RunStatus.FAILED, RunStatus.CANCELLED, RunStatus.STUCK)
FOR_GOOD = (RunStatus.TERMINAL, RunStatus.FAILED, RunStatus.CANCELLED)


class EndRun(NamedTuple):
    """By the run's driver. `parent_run_id` is the run's own, so that the parent can be told.

    Here as elsewhere None is a run that was not looked at; whoever submits it looks first.
    """

    status: int
    detail_json: str = "null"
    parent_run_id: str | None = None

    def checked(self, limits: Limits) -> "EndRun":
        if self.status not in BY_DRIVER:
            allowed = ", ".join(status.name for status in BY_DRIVER)
            raise InvalidArgument(f"a run ends as one of {allowed}", field="status")
        return self._replace(detail_json=check_json(self.detail_json, limits, field="detail_json"))

    def needs(self, run_id: str) -> Iterable[Need]:
        return ending_needs(run_id, self.parent_run_id)

    @property
    def size(self) -> int:
        return len(self.detail_json)

    def has_ended(self, run: Run) -> bool:
        """Whether the run ended like this, or will have once it is unwound."""
        return self.status in (run.status, run.ending) and self.detail_json == run.outcome_json

    def write(self, state: Reading, run: Run) -> RunWriteResult:
        check_parent(run, self.parent_run_id)
        return ended_or_unwinding(state, run, RunStatus(self.status), self.detail_json)


class CancelRun(NamedTuple):
    """From outside: ended at once if nobody drives it, else its driver is told by its next write.

    The reply is the run.
    """

    reason: str
    parent_run_id: str | None = None

    def checked(self, limits: Limits) -> "CancelRun":
        return self._replace(reason=clipped(self.reason, limits) or "cancelled")

    def needs(self, run_id: str) -> Iterable[Need]:
        return ending_needs(run_id, self.parent_run_id)

    @property
    def size(self) -> int:
        return len(self.reason)

    def write(self, state: Reading, run: Run) -> RunWriteResult:
        if not run.may_go_on or (run.cancel_reason and run.is_leased(state.now_ms)):
            return RunWriteResult(run, run)
        check_parent(run, self.parent_run_id)
        run = run._replace(cancel_reason=self.reason)
        if run.is_leased(state.now_ms):
            return RunWriteResult(run, run, [run_line(run, "cancel_requested", reason=self.reason)])
        detail = orjson.dumps({"cancelled": self.reason}).decode()
        return ended_or_unwinding(state, run, RunStatus.CANCELLED, detail)


def ended_or_unwinding(
    state: Reading, run: Run, status: RunStatus, outcome_json: str
) -> RunWriteResult:
    """The run at its end, or on the way there if it has obligations to unwind first."""
    if status not in (RunStatus.FAILED, RunStatus.CANCELLED) or not run.top_obligation:
        return ended(state, run, status, outcome_json)
    run = run.unleased()._replace(
        status=RunStatus.COMPENSATING.value,
        ending=status.value,
        outcome_json=outcome_json,
        ended_at_ms=0,
        waiting_on="",
    )
    line = run_line(run, ending=status.name.lower(), detail=raw(outcome_json))
    return RunWriteResult(run, run, [line])


def ended(state: Reading, run: Run, status: RunStatus, outcome_json: str) -> RunWriteResult:
    stuck = status is RunStatus.STUCK
    run = run.unleased()._replace(
        status=status.value,
        outcome_json=outcome_json,
        ended_at_ms=state.now_ms,
        waiting_on="",
        ending=run.ending if stuck else 0,
    )
    line = run_line(run, detail=raw(outcome_json), fencing_token=run.fencing_token)
    if not run.parent_run_id or status not in FOR_GOOD:
        return RunWriteResult(run, run, [line])
    parent = state.get(RUNS, run.parent_run_id)
    if parent is None or not parent.may_go_on:
        return RunWriteResult(run, run, [line])
    name = child_gate(run.run_id)
    gate = state.get(GATES, (parent.run_id, name))
    if gate is not None and gate.released:
        return RunWriteResult(run, run, [line])
    outcome = {"status": status.name.lower(), "outcome": raw(outcome_json)}
    parent, lines, changes = release(gate, parent, name, orjson.dumps(outcome).decode())
    return RunWriteResult(run, run, [line], changes, [(parent, lines)])


def child_gate(run_id: str) -> str:
    """The gate at which a parent waits for a child."""
    return f"run:{run_id}"


def ending_needs(run_id: str, parent_run_id: str | None) -> Iterable[Need]:
    if parent_run_id:
        yield Need(RUNS, parent_run_id)
        yield Need(GATES, (parent_run_id, child_gate(run_id)))


def check_parent(run: Run, parent_run_id: str | None) -> None:
    """A parent that was not named was not loaded, and would wait for ever."""
    if run.parent_run_id != parent_run_id:
        raise InvalidArgument(f"the run's is {run.parent_run_id!r}", field="parent_run_id")
