"""The calls on a run's life: begun, leased, let go of, signalled, cancelled, looked at."""

from tape.api.auth import Role, needs
from tape.api.fitting import fitting
from tape.api.handlers import Unary
from tape.api.run_input import (
    SEQUENCE,
    check_member,
    check_names,
    check_number,
    check_size,
    naming_write,
)
from tape.bus import Operations
from tape.config import Limits
from tape.errors import NotFound
from tape.model.names import check_name
from tape.model.run import Run, RunStatus
from tape.model.run_end import CancelRun
from tape.ports.runs import RunQuery
from tape.runs.operations import WAITING_MS, RunOperations
from tape.wire import mapping_begin, mapping_gates, mapping_runs, records
from tape.wire.mapping_entries import entry_to_wire
from tape.wire.v1 import tape_pb2 as pb

SESSION_PAGE = 100


class RunCalls:
    def __init__(self, operations: Operations, limits: Limits) -> None:
        self._operations = operations
        self._limits = limits

    def methods(self) -> dict[str, Unary]:
        return {
            "BeginRun": self.begin_run,
            "ResumeRun": self.resume_run,
            "HeartbeatRun": self.heartbeat_run,
            "ReleaseRun": self.release_run,
            "CancelRun": self.cancel_run,
            "SendSignal": self.send_signal,
            "GetRun": self.get_run,
            "ListRuns": self.list_runs,
            "ListRunsToRecover": self.list_runs_to_recover,
            "ListWaitingRuns": self.list_waiting_runs,
            "ReadRunEntries": self.read_run_entries,
        }

    @needs(Role.WRITE)
    async def begin_run(self, request: pb.BeginRunRequest) -> pb.BeginRunResponse:
        check_size(request, self._limits, field="writes")
        new, taker, writes = mapping_begin.begin_from_wire(request)
        with naming_write(writes, self._limits):
            begun = await self._runs.begin_run(new, taker, writes)
        return mapping_begin.begun_to_wire(begun, writes)

    @needs(Role.WRITE)
    async def resume_run(self, request: pb.ResumeRunRequest) -> pb.ResumeRunResponse:
        taker = mapping_runs.taker_from_wire(request)
        run = await self._runs.resume_run(
            request.run_id, taker, expected_token=mapping_runs.expected_from_wire(request)
        )
        token = run.fencing_token if taker.owner else 0
        return pb.ResumeRunResponse(run=records.RUN.to_wire(run), fencing_token=token)

    @needs(Role.WRITE)
    async def heartbeat_run(self, request: pb.HeartbeatRunRequest) -> pb.HeartbeatRunResponse:
        run = await self._runs.heartbeat_run(
            request.run_id, request.fencing_token, request.lease_ttl_ms
        )
        return pb.HeartbeatRunResponse(run=records.RUN.to_wire(run))

    @needs(Role.WRITE)
    async def release_run(self, request: pb.ReleaseRunRequest) -> pb.ReleaseRunResponse:
        run = await self._runs.release_run(
            request.run_id,
            request.fencing_token,
            waiting_on=request.waiting_on,
            seen_seq=request.seen_seq,
        )
        return pb.ReleaseRunResponse(run=records.RUN.to_wire(run))

    @needs(Role.WRITE)
    async def cancel_run(self, request: pb.CancelRunRequest) -> pb.CancelRunResponse:
        write = CancelRun(request.reason)
        run: Run = await self._runs.change_run(request.run_id, write)
        return pb.CancelRunResponse(run=records.RUN.to_wire(run))

    @needs(Role.WRITE)
    async def send_signal(self, request: pb.SendSignalRequest) -> pb.SendSignalResponse:
        run_id = request.run_id or await self._newest_open(request)
        write = records.SEND_SIGNAL.from_wire(request)
        return mapping_gates.signalled_to_wire(await self._runs.change_run(run_id, write))

    @needs(Role.READ)
    async def get_run(self, request: pb.GetRunRequest) -> pb.RunState:
        run = await self._runs.get_run(request.run_id)
        if run is None:
            raise NotFound(f"no run has the id {request.run_id!r}")
        return records.RUN.to_wire(run)

    @needs(Role.READ)
    async def list_runs(self, request: pb.ListRunsRequest) -> pb.ListRunsResponse:
        """As many as fit; the rest is what the next call begins with."""
        check_member(RunStatus, request.status, field="status")
        for field in ("parent_run_id", "user_id", "session_id"):
            check_name(getattr(request, field), self._limits, field=field)
        found = await self._runs.list_runs(mapping_runs.query_from_wire(request))
        runs, more = fitting(map(records.RUN.to_wire, found))
        return pb.ListRunsResponse(runs=runs, more=more)

    @needs(Role.READ)
    async def list_runs_to_recover(
        self, request: pb.ListRunsToRecoverRequest
    ) -> pb.ListRunsToRecoverResponse:
        check_name(request.pool, self._limits, field="pool")
        check_names(request.app_names, self._limits, field="app_names")
        found = await self._runs.list_runs_to_recover(records.RECOVER_QUERY.from_wire(request))
        runs, _ = fitting(map(records.RUN.to_wire, found))
        return pb.ListRunsToRecoverResponse(runs=runs)

    @needs(Role.READ)
    async def list_waiting_runs(
        self, request: pb.ListWaitingRunsRequest
    ) -> pb.ListWaitingRunsResponse:
        older_than_ms = request.older_than_ms if request.HasField("older_than_ms") else WAITING_MS
        found = await self._runs.list_waiting_runs(older_than_ms)
        waiting, more = fitting(map(records.WAITING_RUNS.to_wire, found))
        return pb.ListWaitingRunsResponse(waiting=waiting, more=more)

    @needs(Role.READ)
    async def read_run_entries(self, request: pb.ReadRunEntriesRequest) -> pb.EntryBatch:
        """As many as fit; the rest is what the next call begins with."""
        after = check_number(request.after_seq, SEQUENCE, field="after_seq")
        found = await self._runs.read_run(request.run_id, after, request.limit)
        entries, more = fitting(map(entry_to_wire, found))
        cursor = entries[-1].seq if entries else after
        return pb.EntryBatch(entries=entries, cursor=cursor, more=more)

    async def _newest_open(self, request: pb.SendSignalRequest) -> str:
        """The run that a signal to a session is for."""
        for field in ("app_name", "user_id", "session_id"):
            needed = field == "app_name"
            check_name(getattr(request, field), self._limits, field=field, required=needed)
        session = (request.user_id, request.session_id)
        query = RunQuery(app_name=request.app_name, session=session, limit=SESSION_PAGE)
        while page := await self._runs.list_runs(query):
            for run in page:
                if run.is_open:
                    return run.run_id
            query = query._replace(after=page[-1].run_id)
        raise NotFound(f"{request.app_name!r} has no open run in session {session!r}")

    @property
    def _runs(self) -> RunOperations:
        return self._operations.runs
