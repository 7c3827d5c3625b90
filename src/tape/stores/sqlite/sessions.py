"""Sessions in a SQLite file; see `ports.sessions`."""

import sqlite3

from tape.model.session import Session, SessionKey, SessionWithEvents, StoredEvent
from tape.stores.sqlite.pool import SqlitePool
from tape.stores.sqlite.turn import SQL

LIST_LIMIT = 10_000


class SqliteSessions:
    def __init__(self, reads: SqlitePool) -> None:
        self._reads = reads

    async def get_session(self, key: SessionKey, max_events: int) -> SessionWithEvents | None:
        def read(db: sqlite3.Connection) -> SessionWithEvents | None:
            row = db.execute(SQL["get_session"], key).fetchone()
            if row is None:
                return None
            newest = db.execute(SQL["read_session_events"], (*key, max_events)).fetchall()
            events = [StoredEvent(*event).event for event in reversed(newest)]
            return SessionWithEvents(Session(*row), events)

        return await self._reads.at_once(read)

    async def list_sessions(self, app_name: str, user_id: str) -> list[SessionWithEvents]:
        found = await self._reads.rows(Session, "list_sessions", app_name, user_id, LIST_LIMIT)
        return [SessionWithEvents(session, []) for session in found]

    async def list_session_apps(self, after: str, limit: int) -> list[str]:
        return await self._reads.rows(str, "list_session_apps", after, limit)
