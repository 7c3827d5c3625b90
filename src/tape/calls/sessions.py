"""The calls on sessions."""

from typing import Final

from tape.bus.sessions import SessionOperations
from tape.calls.call import Call, Fence, Noun, Whole
from tape.calls.replies import Field, Found, Listed, Names
from tape.calls.role import Role
from tape.model.entry import Trace
from tape.model.session import SessionKey
from tape.wire.codec import Computed, One, Spread
from tape.wire.records import APPENDED, SESSION, SESSION_EVENT, SESSION_WITH_EVENTS
from tape.wire.v1 import tape_pb2 as pb


def _run_of(request: pb.AppendEventRequest) -> tuple[str, int]:
    return request.run_id, request.fencing_token


_RUN: Final = Computed(_run_of, lambda run: {"run_id": run[0], "fencing_token": run[1]})

SESSIONS: Final[Noun[SessionOperations]] = Noun(
    lambda operations: operations.sessions,
    Call(
        "CreateSession",
        Role.WRITE,
        SessionOperations.create_session,
        SESSION,
        held={"key": Spread(SessionKey), "trace": Spread(Trace)},
    ),
    Call(
        "GetSession",
        Role.READ,
        SessionOperations.get_session,
        Found("session", SESSION_WITH_EVENTS),
        held={"key": Spread(SessionKey)},
        whole=Whole("max_events"),
    ),
    Call(
        "ListSessions",
        Role.READ,
        SessionOperations.list_sessions,
        Listed("sessions", SESSION_WITH_EVENTS, whole=True),
        whole=Whole("user_id"),
    ),
    Call("ListSessionApps", Role.READ, SessionOperations.list_session_apps, Names("names")),
    Call(
        "DeleteSession",
        Role.WRITE,
        SessionOperations.delete_session,
        Field("deleted", bool),
        held={"key": Spread(SessionKey), "trace": Spread(Trace)},
    ),
    Call(
        "AppendEvent",
        Role.WRITE,
        SessionOperations.append_event,
        APPENDED,
        held={
            "key": Spread(SessionKey),
            "event": One(SESSION_EVENT),
            "run": _RUN,
            "trace": Spread(Trace),
        },
        fence=Fence.TOKEN,
    ),
)
