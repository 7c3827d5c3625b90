"""What both stores need to find runs, effects and obligations: which statement, and in what order.

What can pile up is in an index by groups: runs to drive by pool and app, effects without an outcome
by status, way and connector. A list takes the first ones of every group that is asked for, so a
backlog of one app or connector costs nobody else anything.
"""

from collections.abc import Iterable
from typing import NamedTuple

from tape.errors import NotFound
from tape.model.effect import DispatchMode, Effect, EffectStatus
from tape.model.obligation import OBLIGATIONS, Obligation
from tape.model.run import OPEN, Run, RunStatus
from tape.ports.runs import RunQuery, WaitingRuns

UNDRIVEN = (RunStatus.RUNNABLE.value, RunStatus.RUNNING.value)
TO_DISPATCH = ((EffectStatus.PENDING.value, DispatchMode.OUTBOX.value),)
PENDING = tuple((EffectStatus.PENDING.value, mode.value) for mode in DispatchMode)
UNKNOWN = tuple((EffectStatus.UNKNOWN.value, mode.value) for mode in DispatchMode)
_NEWER_THAN_ALL = (2**63 - 1, "")


class RunGroup(NamedTuple):
    pool: str
    app_name: str


class EffectGroup(NamedTuple):
    status: int
    dispatch_mode: int
    connector: str


def listing(query: RunQuery) -> str:
    """The statement whose index the query's narrowest filter leads into."""
    if query.session is not None and query.app_name:
        return "list_open_runs_of_session" if query.status in OPEN else "list_runs_of_session"
    if query.parent_run_id:
        return "list_runs_of_parent"
    if query.status not in (0, RunStatus.TERMINAL):
        return "list_runs_of_status"
    if query.app_name:
        return "list_runs_of_app"
    return "list_runs_of_pool" if query.pool else "list_runs"


def listing_params(query: RunQuery, last: Run | None) -> tuple[object, ...]:
    """What every such statement takes. `last` is the run that `after` names."""
    if query.after and last is None:
        raise NotFound(f"no run has the id {query.after!r}, so no list can continue after it")
    place = (last.started_at_ms, last.run_id) if last else _NEWER_THAN_ALL
    session = query.session or (None, None)
    return (
        int(query.status), query.app_name, query.pool, *session, query.parent_run_id, *place,
        query.limit,
    )  # fmt: skip


def oldest_runs(found: Iterable[Run], limit: int) -> list[Run]:
    return sorted(found, key=lambda run: (run.started_at_ms, run.run_id))[:limit]


def longest_waiting(found: Iterable[WaitingRuns]) -> list[WaitingRuns]:
    return sorted(found, key=lambda group: (group.since_ms, group.pool, group.app_name))


def oldest_effects(found: Iterable[Effect], limit: int) -> list[Effect]:
    return sorted(found, key=lambda row: (row.ts_ms, row.run_id, row.seq))[:limit]


def oldest_obligations(found: Iterable[Obligation], limit: int) -> list[Obligation]:
    """Each once: one that is stuck may be on top of a run that was put back to unwind it."""
    once = {OBLIGATIONS.key(row): row for row in found}.values()
    return sorted(once, key=lambda row: (row.ts_ms, row.run_id, row.seq))[:limit]
