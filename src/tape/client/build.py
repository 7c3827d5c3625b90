"""Python values into what the operations take. The bus judges sizes: it knows the limits."""

from collections.abc import Mapping
from typing import Any

from tape.errors import InvalidArgument
from tape.model.event import NewEvent
from tape.model.json_text import UNLIMITED, to_json
from tape.model.session import SessionEvent


def as_json(value: Any, *, field: str) -> str:
    return to_json(value, UNLIMITED, field=field)


def must_be_text(**named: object) -> None:
    for name, value in named.items():
        if not isinstance(value, str):
            raise InvalidArgument(
                f"must be text, not {type(value).__name__}: write {str(value)!r}", field=name
            )


def event(
    event_type: str,
    payload: Any = None,
    *,
    entity_type: str = "",
    entity_id: str = "",
    idempotency_key: str = "",
    caused_by: str = "",
    source: str = "",
    occurred_at_ms: int = 0,
    schema_version: int = 1,
    run_id: str = "",
    fencing_token: int = 0,
    trace_id: str = "",
    span_id: str = "",
    parent_span_id: str = "",
) -> NewEvent:
    """Make an event for `record_many`. `payload` is any value that can be written as JSON."""
    must_be_text(
        event_type=event_type,
        entity_type=entity_type,
        entity_id=entity_id,
        idempotency_key=idempotency_key,
        caused_by=caused_by,
        source=source,
        run_id=run_id,
    )
    return NewEvent(
        event_type,
        as_json(payload, field="payload"),
        entity_type,
        entity_id,
        idempotency_key,
        caused_by,
        source,
        occurred_at_ms,
        schema_version,
        run_id,
        fencing_token,
        trace_id,
        span_id,
        parent_span_id,
    )


def session_event(event: SessionEvent | Mapping[str, Any]) -> SessionEvent:
    if isinstance(event, SessionEvent):
        return event
    fields = {"id": "", **event}
    for name in ("content", "actions"):
        if name in fields:
            fields[f"{name}_json"] = as_json(fields.pop(name), field=f"event.{name}")
    unknown = fields.keys() - set(SessionEvent._fields)
    if unknown:
        raise InvalidArgument(f"has no field {min(unknown)!r}", field="event")
    return SessionEvent(**fields)
