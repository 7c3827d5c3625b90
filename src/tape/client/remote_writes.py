"""The operations at a server that no row of the table can make: writes for runs, whose replies are
read beside the writes, and outcomes of tasks, which may need several requests.
"""

from collections.abc import Sequence
from typing import Any, Final

from tape.calls import extend_run as mapping
from tape.calls.run_changes import CHANGES
from tape.calls.runs import BEGIN_RUN, EXTEND_RUN
from tape.calls.tasks import SETTLE_TASKS
from tape.client.remote import Sender
from tape.client.representable import representable
from tape.errors import InvalidArgument, TapeError
from tape.model.entry import NO_TRACE, Trace
from tape.model.lease import Begun, NewRun, Taker
from tape.model.run_write import Extended, RunWrite
from tape.model.task import TaskOutcome, TaskStatus
from tape.runs.operations import NOBODY
from tape.wire import mapping_tasks

_CHANGES: Final = {row.kind: row for row in CHANGES}


class RemoteWrites:
    def __init__(self, sender: Sender) -> None:
        self._sender = sender

    async def begin_run(
        self, new: NewRun, taker: Taker = NOBODY, writes: Sequence[RunWrite] = ()
    ) -> Begun:
        with representable():
            request = mapping.begin_to_wire(new, taker, writes)
        answer = await self._sender.send(BEGIN_RUN.name, request, BEGIN_RUN.repeat)
        return mapping.begun_from_wire(answer, writes)

    async def extend_run(
        self,
        run_id: str,
        fencing_token: int,
        writes: Sequence[RunWrite],
        trace: Trace = NO_TRACE,
    ) -> Extended:
        with representable():
            request = mapping.extend_to_wire(run_id, fencing_token, writes, trace)
        repeat = EXTEND_RUN.may_repeat(run_id, fencing_token, writes, trace)
        answer = await self._sender.send(EXTEND_RUN.name, request, repeat)
        return mapping.extended_from_wire(answer, writes)

    async def change_run(self, run_id: str, write: RunWrite) -> Any:
        row = _CHANGES.get(type(write))
        if row is None:
            what = f"{type(write).__name__} has no call of its own: extend the run with it"
            raise InvalidArgument(what, field="write")
        with representable():
            request = row.write.to_wire(write, run_id=run_id)
        return row.reply.from_wire(await self._sender.send(row.name, request, row.repeat))

    async def settle_tasks(
        self, owner: str, outcomes: Sequence[TaskOutcome]
    ) -> list[TaskStatus | TapeError]:
        with representable():
            requests = mapping_tasks.outcomes_to_wire(owner, outcomes)
        results: list[TaskStatus | TapeError] = []
        for request in requests:
            answer = await self._sender.send(SETTLE_TASKS.name, request, SETTLE_TASKS.repeat)
            results += mapping_tasks.settled_from_wire(answer)
        return results
