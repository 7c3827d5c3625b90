"""Events that are recorded, and where they went."""

from collections.abc import Iterable
from operator import attrgetter

from tape.model.event import NewEvent, Recorded
from tape.wire.v1 import tape_pb2 as pb

_event_fields = attrgetter(*NewEvent._fields)
_recorded_fields = attrgetter(*Recorded._fields)


def events_to_wire(events: Iterable[NewEvent]) -> pb.RecordEventsRequest:
    request = pb.RecordEventsRequest()
    add = request.events.add
    for event in events:
        message = add()
        (
            message.event_type, message.payload_json, entity_type, entity_id, key, caused_by,
            source, occurred_at_ms, message.schema_version, run_id, fencing_token, trace_id,
            span_id, parent_span_id,
        ) = event  # fmt: skip
        if entity_type:
            message.entity_type = entity_type
        if entity_id:
            message.entity_id = entity_id
        if key:
            message.idempotency_key = key
        if caused_by:
            message.caused_by = caused_by
        if source:
            message.source = source
        if occurred_at_ms:
            message.occurred_at_ms = occurred_at_ms
        if run_id or fencing_token:
            message.run_id = run_id
            message.fencing_token = fencing_token
        if trace_id or span_id or parent_span_id:
            message.trace_id = trace_id
            message.span_id = span_id
            message.parent_span_id = parent_span_id
    return request


def events_from_wire(request: pb.RecordEventsRequest) -> list[NewEvent]:
    """An unset schema version is version 1."""
    events = map(NewEvent._make, map(_event_fields, request.events))
    return [event if event[8] else event._replace(schema_version=1) for event in events]


def recorded_to_wire(results: Iterable[Recorded]) -> pb.RecordEventsResponse:
    response = pb.RecordEventsResponse()
    add = response.results.add
    for event_id, global_seq, seq, duplicate in results:
        add(event_id=event_id, global_seq=global_seq, seq=seq, duplicate=duplicate)
    return response


def recorded_from_wire(response: pb.RecordEventsResponse) -> list[Recorded]:
    return [Recorded._make(_recorded_fields(result)) for result in response.results]
