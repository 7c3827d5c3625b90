"""The operations on sessions: a user's conversation with an app, its events and its state."""

from typing import Final, Protocol

from tape.bus.pages import page_entries
from tape.journal.ids import UlidFactory
from tape.journal.writer import Writer
from tape.model.entry import NO_TRACE, Trace
from tape.model.names import check_name
from tape.model.session import (
    Appended,
    AppendEvent,
    CreateSession,
    DeleteSession,
    Session,
    SessionEvent,
    SessionKey,
    SessionWithEvents,
)
from tape.ports.store import Store
from tape.runs.operations import Runs
from tape.settings import Limits

MAX_SESSION_EVENTS: Final = 10_000


class SessionOperations(Protocol):
    async def create_session(
        self, key: SessionKey, state_json: str, trace: Trace = NO_TRACE
    ) -> Session: ...

    async def get_session(self, key: SessionKey, max_events: int) -> SessionWithEvents | None: ...

    async def list_sessions(self, app_name: str, user_id: str) -> list[SessionWithEvents]: ...

    async def list_session_apps(self, after: str, limit: int) -> list[str]:
        """The apps that have a session, by name after `after`."""

    async def delete_session(self, key: SessionKey, trace: Trace = NO_TRACE) -> bool: ...

    async def append_event(
        self,
        key: SessionKey,
        event: SessionEvent,
        state_delta_json: str,
        run: tuple[str, int] = ("", 0),
        trace: Trace = NO_TRACE,
    ) -> Appended: ...


class Sessions:
    def __init__(
        self, store: Store, writer: Writer, ids: UlidFactory, limits: Limits, runs: Runs
    ) -> None:
        self._store = store
        self._writer = writer
        self._ids = ids
        self._limits = limits
        self._runs = runs

    async def create_session(
        self, key: SessionKey, state_json: str, trace: Trace = NO_TRACE
    ) -> Session:
        event_id = next(self._ids)
        if not key.session_id:
            key = key._replace(session_id=event_id)
        move = CreateSession(key, state_json, event_id, self._limits, trace)
        return await self._writer.submit(move)

    async def get_session(self, key: SessionKey, max_events: int) -> SessionWithEvents | None:
        wanted = min(max_events, MAX_SESSION_EVENTS) if max_events > 0 else MAX_SESSION_EVENTS
        return await self._store.sessions.get_session(key.checked(self._limits), wanted)

    async def list_sessions(self, app_name: str, user_id: str) -> list[SessionWithEvents]:
        check_name(app_name, self._limits, field="app_name", required=True)
        check_name(user_id, self._limits, field="user_id", required=True)
        return await self._store.sessions.list_sessions(app_name, user_id)

    async def list_session_apps(self, after: str, limit: int) -> list[str]:
        check_name(after, self._limits, field="after")
        most = page_entries(limit, self._limits)
        return await self._store.sessions.list_session_apps(after, most)

    async def delete_session(self, key: SessionKey, trace: Trace = NO_TRACE) -> bool:
        return await self._writer.submit(DeleteSession(key, next(self._ids), self._limits, trace))

    async def append_event(
        self,
        key: SessionKey,
        event: SessionEvent,
        state_delta_json: str,
        run: tuple[str, int] = ("", 0),
        trace: Trace = NO_TRACE,
    ) -> Appended:
        event_id = next(self._ids)
        if not event.id:
            event = event._replace(id=event_id)
        move = AppendEvent(
            key,
            event,
            state_delta_json,
            event_id=event_id,
            limits=self._limits,
            run=run,
            trace=await self._runs.joined(run[0], trace),
        )
        return await self._writer.submit(move)
