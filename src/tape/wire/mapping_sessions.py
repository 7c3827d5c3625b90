"""Sessions and their events."""

from collections.abc import Iterable, Sequence
from operator import attrgetter

from tape.model.entry import Trace
from tape.model.session import (
    Appended,
    Session,
    SessionEvent,
    SessionKey,
    SessionWithEvents,
)
from tape.wire.v1 import tape_pb2 as pb

_session_fields = attrgetter(*Session._fields)
_event_fields = attrgetter(*SessionEvent._fields)

Keyed = (
    pb.CreateSessionRequest | pb.GetSessionRequest | pb.DeleteSessionRequest | pb.AppendEventRequest
)


def key_from_wire(request: Keyed) -> SessionKey:
    return SessionKey(request.app_name, request.user_id, request.session_id)


def session_to_wire(session: Session, events: Sequence[SessionEvent] = ()) -> pb.Session:
    return pb.Session(**session._asdict(), events=map(event_to_wire, events))


def session_from_wire(message: pb.Session) -> Session:
    return Session._make(_session_fields(message))


def with_events_from_wire(message: pb.Session) -> SessionWithEvents:
    return SessionWithEvents(
        session_from_wire(message), [event_from_wire(event) for event in message.events]
    )


def found_to_wire(found: SessionWithEvents | None) -> pb.GetSessionResponse:
    if found is None:
        return pb.GetSessionResponse()
    return pb.GetSessionResponse(found=True, session=session_to_wire(*found))


def found_from_wire(message: pb.GetSessionResponse) -> SessionWithEvents | None:
    return with_events_from_wire(message.session) if message.found else None


def sessions_to_wire(found: Iterable[SessionWithEvents]) -> pb.ListSessionsResponse:
    return pb.ListSessionsResponse(sessions=(session_to_wire(*each) for each in found))


def sessions_from_wire(message: pb.ListSessionsResponse) -> list[SessionWithEvents]:
    return [with_events_from_wire(session) for session in message.sessions]


def event_to_wire(event: SessionEvent) -> pb.EventRecord:
    return pb.EventRecord(**event._asdict())


def event_from_wire(message: pb.EventRecord) -> SessionEvent:
    return SessionEvent._make(_event_fields(message))


def append_to_wire(
    key: SessionKey, event: SessionEvent, state_delta_json: str, run: tuple[str, int], trace: Trace
) -> pb.AppendEventRequest:
    run_id, fencing_token = run
    return pb.AppendEventRequest(
        **key._asdict(),
        event=event_to_wire(event),
        state_delta_json=state_delta_json,
        run_id=run_id,
        fencing_token=fencing_token,
        **trace._asdict(),
    )


def appended_to_wire(appended: Appended) -> pb.AppendEventResponse:
    return pb.AppendEventResponse(
        event=event_to_wire(appended.event), last_update_time_ms=appended.last_update_time_ms
    )


def appended_from_wire(message: pb.AppendEventResponse) -> Appended:
    return Appended(event_from_wire(message.event), message.last_update_time_ms)
