"""The calls with one question and one answer: a message in, the operation, a message out."""

from typing import TypeVar

from google.protobuf.message import Message

from tape.api.auth import Role, needs
from tape.bus import Operations
from tape.config import VERSION, Limits
from tape.errors import TooLarge
from tape.wire import mapping_entries, mapping_events, mapping_sessions, mapping_values, records
from tape.wire.v1 import tape_pb2 as pb

M = TypeVar("M", bound=Message)

NAMES_MOST = 1_000


class Calls:
    def __init__(self, operations: Operations, limits: Limits, *, exposed: bool = False) -> None:
        self._operations = operations
        self._exposed = exposed
        self._limits = limits
        self._answer_bytes = limits.request_bytes

    @needs(Role.WRITE)
    async def record_events(self, request: pb.RecordEventsRequest) -> pb.RecordEventsResponse:
        events = mapping_events.events_from_wire(request)
        return mapping_events.recorded_to_wire(await self._operations.record_events(events))

    @needs(Role.WRITE)
    async def write_value(self, request: pb.WriteValueRequest) -> pb.ValueRecord:
        written = await self._operations.values.write_value(
            request.namespace,
            request.key,
            request.value_json,
            request.if_version,
            records.AUTHOR.from_wire(request),
        )
        return records.VALUE.to_wire(written)

    @needs(Role.READ)
    async def get_value(self, request: pb.GetValueRequest) -> pb.GetValueResponse:
        found = await self._operations.values.get_value(request.namespace, request.key)
        return mapping_values.found_to_wire(found)

    @needs(Role.WRITE)
    async def delete_value(self, request: pb.DeleteValueRequest) -> pb.DeleteValueResponse:
        author = records.AUTHOR.from_wire(request)
        deleted = await self._operations.values.delete_value(request.namespace, request.key, author)
        return records.DELETED.to_wire(deleted)

    @needs(Role.READ)
    async def list_values(self, request: pb.ListValuesRequest) -> pb.ListValuesResponse:
        values = await self._operations.values.list_values(
            request.namespace, request.after_key, request.limit
        )
        size, kept = 0, 0
        for value in values:  # the rest is what the next call begins with
            size += len(value.value_json)
            if kept and 4 * size > self._answer_bytes:
                break
            kept += 1
        return mapping_values.values_to_wire(values[:kept])

    @needs(Role.READ)
    async def list_namespaces(self, request: pb.ListNamesRequest) -> pb.ListNamesResponse:
        names = await self._operations.values.list_namespaces(request.after, request.limit)
        return _names_to_wire(names)

    @needs(Role.READ)
    async def list_session_apps(self, request: pb.ListNamesRequest) -> pb.ListNamesResponse:
        names = await self._operations.sessions.list_session_apps(request.after, request.limit)
        return _names_to_wire(names)

    @needs(Role.WRITE)
    async def create_session(self, request: pb.CreateSessionRequest) -> pb.Session:
        key = records.SESSION_KEY.from_wire(request)
        return records.SESSION.to_wire(
            await self._operations.sessions.create_session(
                key, request.state_json, records.TRACE.from_wire(request)
            )
        )

    @needs(Role.READ)
    async def get_session(self, request: pb.GetSessionRequest) -> pb.GetSessionResponse:
        key = records.SESSION_KEY.from_wire(request)
        found = await self._operations.sessions.get_session(key, request.max_events)
        return self._sendable(mapping_sessions.found_to_wire(found), "max_events")

    @needs(Role.READ)
    async def list_sessions(self, request: pb.ListSessionsRequest) -> pb.ListSessionsResponse:
        found = await self._operations.sessions.list_sessions(request.app_name, request.user_id)
        return self._sendable(mapping_sessions.sessions_to_wire(found), "user_id")

    @needs(Role.WRITE)
    async def delete_session(self, request: pb.DeleteSessionRequest) -> pb.DeleteSessionResponse:
        key = records.SESSION_KEY.from_wire(request)
        trace = records.TRACE.from_wire(request)
        return pb.DeleteSessionResponse(
            deleted=await self._operations.sessions.delete_session(key, trace)
        )

    @needs(Role.WRITE)
    async def append_event(self, request: pb.AppendEventRequest) -> pb.AppendEventResponse:
        appended = await self._operations.sessions.append_event(
            records.SESSION_KEY.from_wire(request),
            records.SESSION_EVENT.from_wire(request.event),
            request.state_delta_json,
            (request.run_id, request.fencing_token),
            records.TRACE.from_wire(request),
        )
        return records.APPENDED.to_wire(appended)

    @needs(Role.READ)
    async def get_journal_info(self, _request: pb.GetJournalInfoRequest) -> Message:
        info = await self._operations.info()
        return mapping_entries.info_to_wire(info, VERSION, self._limits, exposed=self._exposed)

    def _sendable(self, answer: M, field: str) -> M:
        if answer.ByteSize() > self._answer_bytes:
            raise TooLarge(
                f"the answer is over {self._answer_bytes} bytes: ask for less", field=field
            )
        return answer


def _names_to_wire(names: list[str]) -> pb.ListNamesResponse:
    """As many as fit into an answer, whatever their length."""
    return pb.ListNamesResponse(names=names[:NAMES_MOST])
