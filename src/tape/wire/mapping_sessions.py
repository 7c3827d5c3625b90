"""Sessions, where more than names is mapped."""

from collections.abc import Iterable

from tape.model.entry import Trace
from tape.model.session import SessionEvent, SessionKey, SessionWithEvents
from tape.wire.records import SESSION_EVENT, SESSION_WITH_EVENTS
from tape.wire.v1 import tape_pb2 as pb


def found_to_wire(found: SessionWithEvents | None) -> pb.GetSessionResponse:
    if found is None:
        return pb.GetSessionResponse()
    return pb.GetSessionResponse(found=True, session=SESSION_WITH_EVENTS.to_wire(found))


def found_from_wire(message: pb.GetSessionResponse) -> SessionWithEvents | None:
    return SESSION_WITH_EVENTS.from_wire(message.session) if message.found else None


def sessions_to_wire(found: Iterable[SessionWithEvents]) -> pb.ListSessionsResponse:
    return pb.ListSessionsResponse(sessions=map(SESSION_WITH_EVENTS.to_wire, found))


def sessions_from_wire(message: pb.ListSessionsResponse) -> list[SessionWithEvents]:
    return SESSION_WITH_EVENTS.all_from_wire(message.sessions)


def append_to_wire(
    key: SessionKey, event: SessionEvent, state_delta_json: str, run: tuple[str, int], trace: Trace
) -> pb.AppendEventRequest:
    run_id, fencing_token = run
    return pb.AppendEventRequest(
        **key._asdict(),
        event=SESSION_EVENT.to_wire(event),
        state_delta_json=state_delta_json,
        run_id=run_id,
        fencing_token=fencing_token,
        **trace._asdict(),
    )
