"""What a store tells of sessions: `store.sessions`."""

from typing import Protocol

from tape.model.session import SessionKey, SessionWithEvents


class SessionStore(Protocol):
    async def get_session(self, key: SessionKey, max_events: int) -> SessionWithEvents | None:
        """The session with its newest events, oldest of them first; at most `max_events`."""

    async def list_sessions(self, app_name: str, user_id: str) -> list[SessionWithEvents]:
        """Sessions without their events, newest change first."""

    async def list_session_apps(self, after: str, limit: int) -> list[str]:
        """Apps with a session: by name, after `after`."""
