"""The operations on sessions over gRPC."""

from tape.client.representable import representable
from tape.client.server import Server
from tape.model.entry import NO_TRACE, Trace
from tape.model.session import Appended, Session, SessionEvent, SessionKey, SessionWithEvents
from tape.wire import mapping_sessions, records
from tape.wire.v1 import tape_pb2 as pb


class GrpcSessions:
    def __init__(self, server: Server) -> None:
        self._server = server
        self._rpc = server.rpc

    async def create_session(
        self, key: SessionKey, state_json: str, trace: Trace = NO_TRACE
    ) -> Session:
        with representable():
            request = pb.CreateSessionRequest(
                **key._asdict(), state_json=state_json, **trace._asdict()
            )
        return records.SESSION.from_wire(
            await self._server.call(self._rpc.CreateSession, request, writes=True)
        )

    async def get_session(self, key: SessionKey, max_events: int) -> SessionWithEvents | None:
        with representable():
            request = pb.GetSessionRequest(**key._asdict(), max_events=max_events)
        return mapping_sessions.found_from_wire(
            await self._server.call(self._rpc.GetSession, request)
        )

    async def list_sessions(self, app_name: str, user_id: str) -> list[SessionWithEvents]:
        with representable():
            request = pb.ListSessionsRequest(app_name=app_name, user_id=user_id)
        return mapping_sessions.sessions_from_wire(
            await self._server.call(self._rpc.ListSessions, request)
        )

    async def delete_session(self, key: SessionKey, trace: Trace = NO_TRACE) -> bool:
        with representable():
            request = pb.DeleteSessionRequest(**key._asdict(), **trace._asdict())
        return (await self._server.call(self._rpc.DeleteSession, request, writes=True)).deleted

    async def append_event(
        self,
        key: SessionKey,
        event: SessionEvent,
        state_delta_json: str,
        run: tuple[str, int] = ("", 0),
        trace: Trace = NO_TRACE,
    ) -> Appended:
        with representable():
            request = mapping_sessions.append_to_wire(key, event, state_delta_json, run, trace)
        return records.APPENDED.from_wire(
            await self._server.call(self._rpc.AppendEvent, request, writes=True)
        )

    async def list_session_apps(self, after: str, limit: int) -> list[str]:
        """It may hold fewer than `limit` although there are more; none is the end."""
        with representable():
            request = pb.ListNamesRequest(after=after, limit=limit)
        return list((await self._server.call(self._rpc.ListSessionApps, request)).names)
