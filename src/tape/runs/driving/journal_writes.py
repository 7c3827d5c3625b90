"""What a run writes that is not its own: values and events, fenced like all else it writes."""

from collections.abc import Sequence
from typing import Any, Protocol
from uuid import uuid4

from tape.model.entry import Trace
from tape.model.event import NewEvent, Recorded, draft_own_event, stated_version
from tape.model.json_text import to_json
from tape.model.names import check_name
from tape.model.run import Run
from tape.model.subject import check_length
from tape.model.subjects import value_changed
from tape.model.value import Author, Deleted, Value
from tape.runs.boundary import boundary
from tape.runs.driving.pen import Pen
from tape.runs.operations import RunOperations
from tape.telemetry.tracing import recording


class RunValues(Protocol):
    """As much of the operations on values as a run needs."""

    async def write_value(
        self, namespace: str, key: str, value_json: str, if_version: int, author: Author
    ) -> Value: ...

    async def get_value(self, namespace: str, key: str) -> Value | None: ...

    async def delete_value(self, namespace: str, key: str, author: Author) -> Deleted: ...


class JournalOperations(Protocol):
    """As much of the bus as a run needs."""

    @property
    def runs(self) -> RunOperations: ...

    @property
    def values(self) -> RunValues: ...

    async def record_events(self, events: Sequence[NewEvent]) -> list[Recorded]: ...


class JournalWrites:
    def __init__(self, operations: JournalOperations, run: Run, pen: Pen, ttl_ms: int) -> None:
        self._operations = operations
        self._run = run
        self._pen = pen
        self._ttl_ms = ttl_ms
        self._limits = operations.runs.limits
        self._author = Author(f"run:{run.run_id}", run.run_id, run.fencing_token)

    @property
    def runs(self) -> RunOperations:
        return self._operations.runs

    async def heartbeat(self) -> Run:
        run = self._run
        return await self.runs.heartbeat_run(run.run_id, run.fencing_token, self._ttl_ms)

    def check_name(self, namespace: str, key: str) -> None:
        """Refuse what no value can be named."""
        check_name(namespace, self._limits, field="namespace", required=True)
        check_name(key, self._limits, field="key", required=True)
        check_length(value_changed(namespace, key), self._limits)

    def checked_value(self, namespace: str, key: str, value: Any) -> str:
        """The value as JSON, if it and its name can be written at all."""
        self.check_name(namespace, key)
        return to_json(value, self._limits, field="value")

    async def set_value(self, namespace: str, key: str, value_json: str, if_version: int) -> int:
        boundary(f"before set_value {namespace}/{key}")
        with recording(f"set_value {namespace}") as trace:
            written = await self._operations.values.write_value(
                namespace, key, value_json, if_version, self._author_of_call(trace)
            )
        boundary(f"after set_value {namespace}/{key}")
        self._pen.missed = True  # its number in the run's journal is not told
        return written.version

    async def get_value(self, namespace: str, key: str) -> Any:
        found = await self._operations.values.get_value(namespace, key)
        return None if found is None else found.value

    async def delete_value(self, namespace: str, key: str) -> bool:
        boundary(f"before delete_value {namespace}/{key}")
        with recording(f"delete_value {namespace}") as trace:
            author = self._author_of_call(trace)
            deleted = await self._operations.values.delete_value(namespace, key, author)
        boundary(f"after delete_value {namespace}/{key}")
        self._pen.missed = True
        return deleted.deleted

    def _author_of_call(self, trace: Trace) -> Author:
        return self._author._replace(request_id=uuid4().hex, trace=trace)

    def event(self, event_type: str, payload: Any, entity: tuple[str, str], key: str) -> NewEvent:
        """An event of this run, if it can be written at all. It has the version that its payload
        tells.
        """
        payload_json = to_json(payload, self._limits, field="payload")
        event = NewEvent(
            event_type,
            payload_json,
            entity_type=entity[0],
            entity_id=entity[1],
            idempotency_key=key,
            schema_version=stated_version(payload_json),
            run_id=self._run.run_id,
            fencing_token=self._run.fencing_token,
        )
        draft_own_event(event, "", self._limits)
        return event

    async def record(self, event: NewEvent) -> None:
        boundary(f"before record {event.event_type}")
        with recording(f"record {event.event_type}") as trace:
            traced = event._replace(**trace._asdict())
            (recorded,) = await self._operations.record_events([traced])
        boundary(f"after record {event.event_type}")
        self._pen.note_seq(recorded.seq)
