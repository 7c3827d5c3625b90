"""Tasks on the wire, each with the entry that made it, laid out flat.

Every task passes here twice, so fields at their default are not touched.
"""

from collections.abc import Iterable, Sequence
from operator import attrgetter

from tape.errors import InvalidArgument, TapeError
from tape.model.entry import Entry
from tape.model.task import Task, TaskOutcome, TaskStatus, Verdict
from tape.ports.tasks import Claim, Want
from tape.wire.errors import from_reason
from tape.wire.v1 import tape_pb2 as pb

_VERDICTS: dict[int, Verdict] = {
    pb.VERDICT_DONE: "done",
    pb.VERDICT_FAILED: "failed",
    pb.VERDICT_REFUSED: "refused",
    pb.VERDICT_GIVEN_BACK: "given_back",
}
_NUMBERS = {verdict: number for number, verdict in _VERDICTS.items()}

TAG_BYTES = 8  # before each task of an answer: which field, and its length
REQUEST_CHARACTERS = 500_000
"""Of errors and tracebacks in a request; UTF-8 makes at most four times as many bytes of them."""
_STATUSES: frozenset[int] = frozenset(TaskStatus)

_ENTRY_AT = Task._fields.index("entry")
_task_fields = attrgetter(*Task._fields[:_ENTRY_AT])
# In the order of an entry's own fields: the source of a task, under the names that a task has.
_entry_fields = attrgetter(
    "source_global_seq", "source_run_id", "source_seq", "source_kind", "subject", "payload_json",
    "schema_version", "trace_id", "parent_span_id", "source_parent_span_id", "source_ts_ms",
    "event_id", "event_type", "entity_type", "entity_id", "caused_by", "source", "occurred_at_ms",
    "idempotency_key",
)  # fmt: skip


def task_to_wire(task: Task) -> pb.Task:
    message = pb.Task()
    _fill(message, task)
    return message


def task_from_wire(message: pb.Task) -> Task:
    entry = Entry._make(_entry_fields(message))
    return Task._make((*_task_fields(message), entry, message.last_traceback))


def tasks_to_wire(
    answer: pb.ClaimTasksResponse | pb.ListTasksResponse, tasks: Iterable[Task], most_bytes: int
) -> int:
    """Put in as many as fit into so many bytes, and at least one; how many."""
    size, add = 0, answer.tasks.add
    for kept, task in enumerate(tasks):
        message = add()
        _fill(message, task)
        size += message.ByteSize() + TAG_BYTES
        if kept and size > most_bytes:
            del answer.tasks[-1]
            break
    return len(answer.tasks)


def tasks_from_wire(messages: Iterable[pb.Task]) -> list[Task]:
    return [task_from_wire(message) for message in messages]


def _fill(message: pb.Task, task: Task) -> None:
    (
        message.task_id, message.reaction_id, shard, message.source_global_seq, status, attempts,
        next_attempt_at_ms, lease_owner, lease_expires_at_ms, claimed_at_ms, last_error,
        message.created_at_ms, completed_at_ms, entry, last_traceback,
    ) = task  # fmt: skip
    # Stubs know enums by their own type, the model by their number.
    message.status = status  # type: ignore[assignment]
    if shard:
        message.shard = shard
    if attempts:
        message.attempts = attempts
    if next_attempt_at_ms:
        message.next_attempt_at_ms = next_attempt_at_ms
    if lease_owner or lease_expires_at_ms or claimed_at_ms:
        message.lease_owner = lease_owner
        message.lease_expires_at_ms = lease_expires_at_ms
        message.claimed_at_ms = claimed_at_ms
    if last_error:
        message.last_error = last_error
    if last_traceback:
        message.last_traceback = last_traceback
    if completed_at_ms:
        message.completed_at_ms = completed_at_ms
    _fill_entry(message, entry)


def _fill_entry(message: pb.Task, entry: Entry) -> None:
    (
        _, run_id, seq, message.source_kind, message.subject, message.payload_json,
        message.schema_version, trace_id, span_id, parent_span_id, message.source_ts_ms,
        message.event_id, event_type, entity_type, entity_id, caused_by, source,
        message.occurred_at_ms, key,
    ) = entry  # fmt: skip
    if run_id:
        message.source_run_id = run_id
    if seq:
        message.source_seq = seq
    if trace_id or span_id or parent_span_id:
        message.trace_id = trace_id
        message.parent_span_id = span_id
        message.source_parent_span_id = parent_span_id
    if event_type:
        message.event_type = event_type
    if entity_type or entity_id:
        message.entity_type = entity_type
        message.entity_id = entity_id
    if caused_by:
        message.caused_by = caused_by
    if source:
        message.source = source
    if key:
        message.idempotency_key = key


def claim_to_wire(claim: Claim, wait_ms: int = 0) -> pb.ClaimTasksRequest:
    return pb.ClaimTasksRequest(
        owner=claim.owner,
        lease_ms=claim.lease_ms,
        max=claim.most,
        wants=(
            pb.Want(reaction_id=want.reaction_id, shard=want.shard, max=want.most)
            for want in claim.wants
        ),
        wait_ms=wait_ms,
    )


def claim_from_wire(request: pb.ClaimTasksRequest) -> Claim:
    """`wants`, at most `max` in all, or else the one reaction that the request names itself."""
    wants = [Want(want.reaction_id, want.shard, want.max) for want in request.wants]
    if not wants:
        wants = [Want(request.reaction_id, request.shard, request.max)]
        return Claim(request.owner, request.lease_ms, wants)
    if request.max > 0:
        return Claim(request.owner, request.lease_ms, wants, request.max)
    return Claim(request.owner, request.lease_ms, wants)


def outcomes_to_wire(owner: str, outcomes: Iterable[TaskOutcome]) -> list[pb.SettleTasksRequest]:
    """One request, or several where tracebacks would make it larger than a server takes."""
    requests = [pb.SettleTasksRequest(owner=owner)]
    characters = 0
    for task_id, verdict, error, traceback in outcomes:
        number = _NUMBERS.get(verdict)
        if number is None:
            raise InvalidArgument(
                f"{verdict!r} is not one of {', '.join(_NUMBERS)}", field="verdict"
            )
        characters += len(error) + len(traceback)
        if characters > REQUEST_CHARACTERS:
            requests.append(pb.SettleTasksRequest(owner=owner))
            characters = len(error) + len(traceback)
        requests[-1].outcomes.add(task_id=task_id, verdict=number, error=error, traceback=traceback)
    return requests


def outcomes_from_wire(request: pb.SettleTasksRequest) -> list[TaskOutcome]:
    outcomes: list[TaskOutcome] = []
    for index, message in enumerate(request.outcomes):
        verdict = _VERDICTS.get(message.verdict)
        if verdict is None:
            known = ", ".join(f"{number} ({text})" for number, text in _VERDICTS.items())
            raise InvalidArgument(
                f"{message.verdict} is not one of {known}", field=f"outcomes[{index}].verdict"
            )
        outcomes.append(TaskOutcome(message.task_id, verdict, message.error, message.traceback))
    return outcomes


def settled_to_wire(results: Sequence[TaskStatus | TapeError]) -> pb.SettleTasksResponse:
    response = pb.SettleTasksResponse()
    add = response.tasks.add
    for result in results:
        if isinstance(result, TapeError):
            add(reason=result.reason, message=str(result))
        else:
            add(status=result.value)
    return response


def settled_from_wire(response: pb.SettleTasksResponse) -> list[TaskStatus | TapeError]:
    return [
        TaskStatus(message.status)
        if message.status in _STATUSES
        else from_reason(message.reason, message.message)
        for message in response.tasks
    ]
