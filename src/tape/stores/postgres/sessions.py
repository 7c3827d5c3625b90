"""Sessions in Postgres; see `ports.sessions`."""

import asyncpg

from tape.model.session import Session, SessionKey, SessionWithEvents, StoredEvent
from tape.stores.postgres.pool import PostgresPool
from tape.stores.postgres.turn import SQL

LIST_LIMIT = 10_000


class PostgresSessions:
    def __init__(self, reads: PostgresPool) -> None:
        self._reads = reads

    async def get_session(self, key: SessionKey, max_events: int) -> SessionWithEvents | None:
        async def read(connection: asyncpg.Connection) -> SessionWithEvents | None:
            row = await connection.fetchrow(SQL["get_session"], *key)
            if row is None:
                return None
            newest = await connection.fetch(SQL["read_session_events"], *key, max_events)
            events = [StoredEvent(*event).event for event in reversed(newest)]
            return SessionWithEvents(Session(*row), events)

        return await self._reads.at_once(read)

    async def list_sessions(self, app_name: str, user_id: str) -> list[SessionWithEvents]:
        found = await self._reads.rows(Session, "list_sessions", app_name, user_id, LIST_LIMIT)
        return [SessionWithEvents(session, []) for session in found]

    async def list_session_apps(self, after: str, limit: int) -> list[str]:
        return await self._reads.rows(str, "list_session_apps", after, limit)
