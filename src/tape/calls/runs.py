"""The calls on a run's life, and those that look at runs. `run_writes.py` and `run_changes.py` have
the writes for runs, `run_records.py` what a run has written down.
"""

from collections.abc import Mapping
from typing import Any, Final

from tape.calls.call import Call, Fence, Noun, Pages, Repeat, StreamCall
from tape.calls.checks import SEQUENCE, check_member, check_names, check_number
from tape.calls.extend_run import TAKER_NAMES, answer_begin, answer_extend, is_repeatable
from tape.calls.fitting import fitting
from tape.calls.replies import HandMapped, Inside, Listed
from tape.calls.role import Role
from tape.calls.run_changes import CHANGES
from tape.calls.run_records import RUN_RECORDS
from tape.calls.run_writes import DRIVER_WRITES
from tape.errors import NotFound
from tape.model.begin_once import BegunOnce
from tape.model.entry import Entry, Trace
from tape.model.lease import WHOEVER, NewRun, Taker
from tape.model.names import check_name
from tape.model.run import RunName, RunStatus
from tape.model.trace_context import TraceTexts
from tape.ports.runs import RunQuery
from tape.runs.operations import WAITING_MS, RunOperations
from tape.settings import Limits
from tape.wire.codec import Absent, Computed, Empty, One, Record, Spread, Unsent
from tape.wire.mapping_entries import entries_from_wire, entry_to_wire, run_entry_from_wire
from tape.wire.records import RECOVER_QUERY, RUN, WAITING_RUNS
from tape.wire.v1 import tape_pb2 as pb

TAKER: Final = Record(
    Taker, pb.ResumeRunRequest, renamed=TAKER_NAMES, held={"reactor": Empty(Taker().reactor)}
)

_EXPECTED: Final = Absent(WHOEVER, left_out=True)


def _session_of(request: pb.ListRunsRequest) -> tuple[str, str] | None:
    is_named = request.HasField("user_id") or request.HasField("session_id")
    return (request.user_id, request.session_id) if is_named else None


def _session_fields(session: tuple[str, str] | None) -> Mapping[str, Any]:
    return {} if session is None else {"user_id": session[0], "session_id": session[1]}


RUN_QUERY: Final = Record(
    RunQuery, pb.ListRunsRequest, held={"session": Computed(_session_of, _session_fields)}
)


def _check_run_query(request: pb.ListRunsRequest, limits: Limits) -> None:
    check_member(RunStatus, request.status, field="status")
    for field in ("parent_run_id", "user_id", "session_id"):
        check_name(getattr(request, field), limits, field=field)


def _check_recover_query(request: pb.ListRunsToRecoverRequest, limits: Limits) -> None:
    check_name(request.pool, limits, field="pool")
    check_names(request.app_names, limits, field="app_names")


async def _resume_run(
    runs: RunOperations, request: pb.ResumeRunRequest, _limits: Limits
) -> pb.ResumeRunResponse:
    """A run that was put back has a token too, but it is not its caller's."""
    taker, expected = TAKER.from_wire(request), _EXPECTED.reader("expected_token")(request)
    run = await runs.resume_run(request.run_id, taker, expected_token=expected)
    token = run.fencing_token if taker.owner else 0
    return pb.ResumeRunResponse(run=RUN.to_wire(run), fencing_token=token)


async def _get_run(runs: RunOperations, request: pb.GetRunRequest, _limits: Limits) -> pb.RunState:
    run = await runs.get_run(request.run_id)
    if run is None:
        raise NotFound(f"no run has the id {request.run_id!r}")
    return RUN.to_wire(run)


def _run_to_wire(run: Any) -> pb.RunState:
    return RUN.to_wire(run)


def _entries_to_wire(found: list[Entry]) -> pb.EntryBatch:
    entries, more = fitting(map(entry_to_wire, found))
    return pb.EntryBatch(entries=entries, cursor=entries[-1].seq if entries else 0, more=more)


async def _read_run_entries(
    runs: RunOperations, request: pb.ReadRunEntriesRequest, _limits: Limits
) -> pb.EntryBatch:
    after = check_number(request.after_seq, SEQUENCE, field="after_seq")
    batch = _entries_to_wire(await runs.read_run(request.run_id, after, request.limit))
    if not batch.entries:
        batch.cursor = after
    return batch


BEGIN_RUN: Final = Call(
    "BeginRun",
    Role.WRITE,
    RunOperations.begin_run,
    fence=Fence.TOKEN,
    repeat=Repeat.ALWAYS,
    answer=answer_begin,
)
NEW_RUN_ONCE: Final = Record(
    NewRun,
    pb.BeginRunOnceRequest,
    held={
        "name": Spread(RunName),
        "trace": Spread(Trace),
        "context": Spread(TraceTexts),
        "parent_run_id": Unsent(""),
        "parent_fencing_token": Unsent(0),
    },
)
BEGUN_ONCE: Final = Record(BegunOnce, pb.BeginRunOnceResponse, held={"run": One(RUN)})
EXTEND_RUN: Final = Call(
    "ExtendRun",
    Role.WRITE,
    RunOperations.extend_run,
    fence=Fence.TOKEN,
    repeat_if=is_repeatable,
    answer=answer_extend,
)

RUNS: Final[Noun[RunOperations]] = Noun(
    lambda operations: operations.runs,
    BEGIN_RUN,
    Call(
        "BeginRunOnce",
        Role.WRITE,
        RunOperations.begin_run_once,
        BEGUN_ONCE,
        held={"new": Spread(NEW_RUN_ONCE)},
        repeat=Repeat.ALWAYS,
    ),
    Call(
        "ResumeRun",
        Role.WRITE,
        RunOperations.resume_run,
        Inside("run", RUN),
        held={"taker": Spread(TAKER), "expected_token": _EXPECTED},
        fence=Fence.TAKING,
        repeat=Repeat.ALWAYS,
        answer=_resume_run,
    ),
    Call(
        "HeartbeatRun",
        Role.WRITE,
        RunOperations.heartbeat_run,
        Inside("run", RUN),
        renamed={"ttl_ms": "lease_ttl_ms"},
        fence=Fence.TOKEN,
        repeat=Repeat.TWICE,
    ),
    Call(
        "ReleaseRun",
        Role.WRITE,
        RunOperations.release_run,
        Inside("run", RUN),
        fence=Fence.TOKEN,
        repeat=Repeat.ALWAYS,
    ),
    EXTEND_RUN,
    *DRIVER_WRITES,
    *CHANGES,
    Call(
        "GetRun",
        Role.READ,
        RunOperations.get_run,
        HandMapped(_run_to_wire, RUN.from_wire),
        none_if_missing=True,
        answer=_get_run,
    ),
    Call(
        "ListRuns",
        Role.READ,
        RunOperations.list_runs,
        Listed("runs", RUN),
        held={"query": Spread(RUN_QUERY)},
        check=_check_run_query,
        pages=Pages("after", lambda run: run.run_id, limited=True),
    ),
    Call(
        "ListRunsToRecover",
        Role.READ,
        RunOperations.list_runs_to_recover,
        Listed("runs", RUN),
        held={"query": Spread(RECOVER_QUERY)},
        check=_check_recover_query,
    ),
    Call(
        "ListWaitingRuns",
        Role.READ,
        RunOperations.list_waiting_runs,
        Listed("waiting", WAITING_RUNS),
        held={"older_than_ms": Absent(WAITING_MS)},
    ),
    Call(
        "ReadRunEntries",
        Role.READ,
        RunOperations.read_run,
        HandMapped(_entries_to_wire, entries_from_wire),
        pages=Pages("after_seq", lambda entry: entry.seq, limited=True),
        answer=_read_run_entries,
    ),
    StreamCall(
        "SubscribeRun",
        Role.READ,
        RunOperations.follow_run,
        lambda message, request: [run_entry_from_wire(message, request.run_id)],
        cursor=("from_seq", lambda message: message.seq),
        renamed={"after_seq": "from_seq"},
        held={"max_bytes": Unsent(0)},  # the server bounds what it holds
    ),
    *RUN_RECORDS,
)
