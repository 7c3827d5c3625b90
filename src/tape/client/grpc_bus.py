"""The operations of the bus over gRPC.

Readers outlive their server: they wait for it to come back and go on from their cursor, so nothing
is skipped or repeated. A write is sent again only where a repeat cannot do harm.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

import grpc

from tape.bus import FollowQuery
from tape.client.address import parse_address
from tape.client.again import pauses, until_answered
from tape.client.grpc_ledger import GrpcLedger
from tape.client.grpc_reactions import GrpcReactions
from tape.client.grpc_runs import GrpcRuns
from tape.client.representable import representable
from tape.client.server import Server
from tape.config import Settings
from tape.errors import OutcomeUnknown, StoreUnavailable, VersionMismatch
from tape.journal.follow import Page
from tape.model.entry import NO_TRACE, Entry, Trace
from tape.model.event import NewEvent, Recorded
from tape.model.outbox import OutboxPlace
from tape.model.session import Appended, Session, SessionEvent, SessionKey, SessionWithEvents
from tape.model.value import Author, Deleted, Value, ValueChange
from tape.ports.outbox import OutboxStatus
from tape.ports.store import JournalInfo
from tape.wire import (
    mapping_entries,
    mapping_events,
    mapping_outbox,
    mapping_sessions,
    mapping_values,
)
from tape.wire.v1 import tape_pb2 as pb

A = TypeVar("A")

log = logging.getLogger("tape.client")


class GrpcBus(GrpcReactions):
    """Tape at a server. Open it on the event loop it will be used on."""

    def __init__(self, server: Server, settings: Settings) -> None:
        super().__init__(server)
        self._settings = settings
        self._exposed = True
        self._retry_for_s = settings.writer.retry_for_s
        self._runs = GrpcRuns(server, self._retry_for_s, settings.limits)
        self._ledger = GrpcLedger(server)

    @property
    def settings(self) -> Settings:
        return self._settings

    @property
    def exposed(self) -> bool:
        """Whether others can reach the server; one that does not say so may be."""
        return self._exposed

    @property
    def runs(self) -> GrpcRuns:
        return self._runs

    @property
    def ledger(self) -> GrpcLedger:
        return self._ledger

    @classmethod
    async def open(cls, url: str, token: str, settings: Settings) -> "GrpcBus":
        """A server that is not there, or does not let us in, is found out here."""
        address = parse_address(url, with_token=bool(token))
        bus = cls(Server(address, token), settings)
        try:
            await bus._get_to_know()
        except BaseException:
            await bus.close()
            raise
        return bus

    async def outbox_status(self) -> OutboxStatus:
        request = pb.GetOutboxStatusRequest()
        status = await self._server.call(self._rpc.GetOutboxStatus, request)
        return mapping_outbox.status_from_wire(status)

    async def skip_outbox_row(self, row_id: int, *, reason: str, by: str) -> OutboxPlace:
        with representable():
            request = pb.SkipOutboxRowRequest(row_id=row_id, reason=reason, by=by)
        place = await self._server.call(self._rpc.SkipOutboxRow, request, writes=True)
        return mapping_outbox.place_from_wire(place)

    async def record_events(self, events: Sequence[NewEvent]) -> list[Recorded]:
        """With a key on every event a request that was cut off is sent again for a while."""
        with representable():
            request = mapping_events.events_to_wire(events)
        keyed = all(event.idempotency_key for event in events)

        async def send() -> pb.RecordEventsResponse:
            return await self._server.call(self._rpc.RecordEvents, request, writes=True)

        response = await until_answered(send, self._retry_for_s if keyed else 0)
        return mapping_events.recorded_from_wire(response)

    async def follow(self, query: FollowQuery) -> AsyncGenerator[Page, None]:
        cursor = query.after

        def ask() -> pb.FollowEntriesRequest:
            return pb.FollowEntriesRequest(
                subject_pattern=query.pattern,
                predicate_cel=query.predicate,
                from_global_seq=cursor,
                max_batch=query.max_batch,
                to_global_seq=query.until,
                kind=query.kind,
                run_id=query.run_id,
                from_ts_ms=query.from_ts_ms,
            )

        async with aclosing(self._outliving(self._rpc.FollowEntries, ask)) as batches:
            async for batch in batches:
                cursor = batch.cursor
                entries = mapping_entries.entries_from_wire(batch)
                yield Page(entries, cursor, batch.skipped, batch.last_error)
                if query.until and cursor >= query.until:
                    return

    async def follow_run(
        self, run_id: str, after_seq: int, max_bytes: int = 0
    ) -> AsyncGenerator[list[Entry], None]:
        """One by one; the server bounds what it holds."""
        del max_bytes

        def ask() -> pb.SubscribeRunRequest:
            return pb.SubscribeRunRequest(run_id=run_id, from_seq=after_seq)

        async with aclosing(self._outliving(self._rpc.SubscribeRun, ask)) as messages:
            async for message in messages:
                after_seq = message.seq
                yield [mapping_entries.run_entry_from_wire(message, run_id)]

    async def write_value(
        self, namespace: str, key: str, value_json: str, if_version: int, author: Author
    ) -> Value:
        """With a version and an id of the call, one that was cut off is sent again for a while."""
        with representable():
            request = mapping_values.write_to_wire(namespace, key, value_json, if_version, author)
        cut_off: list[OutcomeUnknown] = []

        async def send() -> pb.ValueRecord:
            try:
                return await self._server.call(self._rpc.WriteValue, request, writes=True)
            except OutcomeUnknown as error:
                cut_off.append(error)
                raise

        known = bool(author.request_id) and if_version >= 0
        try:
            written = await until_answered(send, self._retry_for_s if known else 0)
        except VersionMismatch:
            if cut_off:  # it may be this call's own version that another has replaced since
                raise cut_off[0] from None
            raise
        return mapping_values.value_from_wire(written)

    async def get_value(self, namespace: str, key: str) -> Value | None:
        with representable():
            request = pb.GetValueRequest(namespace=namespace, key=key)
        return mapping_values.found_from_wire(await self._server.call(self._rpc.GetValue, request))

    async def watch_value(
        self, namespace: str, key: str, from_version: int, max_bytes: int = 0
    ) -> AsyncGenerator[ValueChange, None]:
        """One by one; the server bounds what it holds."""
        del max_bytes

        def ask() -> pb.WatchValueRequest:
            return pb.WatchValueRequest(namespace=namespace, key=key, from_version=from_version)

        async with aclosing(self._outliving(self._rpc.WatchValue, ask)) as messages:
            async for message in messages:
                from_version = message.value.version
                yield mapping_values.change_from_wire(message)

    async def delete_value(self, namespace: str, key: str, author: Author) -> Deleted:
        with representable():
            request = mapping_values.delete_to_wire(namespace, key, author)
        deleted = await self._server.call(self._rpc.DeleteValue, request, writes=True)
        return mapping_values.deleted_from_wire(deleted)

    async def list_values(self, namespace: str, after_key: str, limit: int) -> list[Value]:
        """It may hold fewer than `limit` although there are more; none is the end."""
        with representable():
            request = pb.ListValuesRequest(namespace=namespace, after_key=after_key, limit=limit)
        return mapping_values.values_from_wire(
            await self._server.call(self._rpc.ListValues, request)
        )

    async def create_session(
        self, key: SessionKey, state_json: str, trace: Trace = NO_TRACE
    ) -> Session:
        with representable():
            request = pb.CreateSessionRequest(
                **key._asdict(), state_json=state_json, **trace._asdict()
            )
        return mapping_sessions.session_from_wire(
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
        return mapping_sessions.appended_from_wire(
            await self._server.call(self._rpc.AppendEvent, request, writes=True)
        )

    async def info(self) -> JournalInfo:
        return mapping_entries.info_from_wire(await self._info())

    async def _info(self) -> pb.GetJournalInfoResponse:
        return await self._server.call(self._rpc.GetJournalInfo, pb.GetJournalInfoRequest())

    async def _get_to_know(self) -> None:
        """What is refused before it is sent is what the server would refuse."""
        told = await self._info()
        self._runs.limits = mapping_entries.limits_from_wire(told, self._settings.limits)
        self._exposed = told.exposed

    async def close(self) -> None:
        await self._server.close()

    async def _outliving(
        self, rpc: grpc.aio.UnaryStreamMultiCallable[Any, A], ask: Callable[[], Any]
    ) -> AsyncGenerator[A, None]:
        """Messages for ever: asked for anew, from where the caller is, when the server is back."""
        waits = pauses()
        while True:
            with representable():
                request = ask()
            try:
                async with aclosing(self._server.stream(rpc, request)) as messages:
                    async for message in messages:
                        waits = pauses()
                        yield message
            except StoreUnavailable as error:
                log.warning("following pauses: %s", error)
            await asyncio.sleep(next(waits))
