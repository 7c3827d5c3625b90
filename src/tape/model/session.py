"""Sessions: a conversation's state and its events, both written in one move."""

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

import orjson

from tape.errors import InvalidArgument, NotFound, TooLarge
from tape.model.entry import NO_TRACE, EntryDraft, Kind, Trace
from tape.model.event import check_trace
from tape.model.json_text import check_json, utf8_length
from tape.model.move import Decision, Need, State, Table, delete, save
from tape.model.names import check_name
from tape.model.run import RUNS, check_token, fenced_run
from tape.model.subject import check_length
from tape.model.subjects import session as session_subject
from tape.model.subjects import session_event_appended
from tape.settings import Limits


class SessionKey(NamedTuple):
    app_name: str
    user_id: str
    session_id: str

    def checked(self, limits: Limits) -> "SessionKey":
        for field, text in self._asdict().items():
            check_name(text, limits, field=field, required=True)
        check_length(session_subject("created", *self), limits)
        return self


class Session(NamedTuple):
    app_name: str
    user_id: str
    session_id: str
    state_json: str
    event_count: int
    created_at_ms: int
    last_update_time_ms: int


class SessionEvent(NamedTuple):
    """One event of a session as its author states it."""

    id: str
    invocation_id: str = ""
    author: str = ""
    branch: str = ""
    content_json: str = "null"
    actions_json: str = "null"
    timestamp_ms: int = 0


class StoredEvent(NamedTuple):
    app_name: str
    user_id: str
    session_id: str
    id: str
    position: int
    invocation_id: str
    author: str
    branch: str
    content_json: str
    actions_json: str
    timestamp_ms: int

    @property
    def event(self) -> SessionEvent:
        return SessionEvent(self.id, *self[5:])


class SessionWithEvents(NamedTuple):
    session: Session
    events: list[SessionEvent]


class Appended(NamedTuple):
    event: SessionEvent
    last_update_time_ms: int


SESSIONS = Table("sessions", Session, lambda row: SessionKey(*row[:3]))
SESSION_EVENTS = Table("session_events", StoredEvent, lambda row: row[:4], parent=SESSIONS)


class CreateSession:
    """Start a session. One that exists is answered as it is."""

    __slots__ = ("_event_id", "_key", "_state_json", "_trace", "weight")

    def __init__(
        self,
        key: SessionKey,
        state_json: str,
        event_id: str,
        limits: Limits,
        trace: Trace = NO_TRACE,
    ) -> None:
        check_trace(*trace)
        self._trace = trace
        self._key = key.checked(limits)
        self._state_json = check_json(state_json or "{}", limits, field="state_json")
        _object(self._state_json, "state_json")
        self._event_id = event_id
        self.weight = 512 + len(state_json)

    def needs(self) -> Iterable[Need]:
        yield Need(SESSIONS, self._key)

    def decide(self, state: State) -> Decision[Session]:
        found = state.get(SESSIONS, self._key)
        if found is not None:
            existing = found
            return Decision(lambda _place: existing)
        now = state.now_ms
        made = Session(*self._key, self._state_json, 0, now, now)
        payload = orjson.dumps({"state": orjson.Fragment(self._state_json)}).decode()
        subject = session_subject("created", *self._key)
        draft = EntryDraft(
            self._event_id, Kind.SESSION.value, subject, payload, **self._trace._asdict()
        )
        return Decision(lambda _place: made, [draft], [save(SESSIONS, made)])


class DeleteSession:
    """Delete a session and its events; the journal keeps what it has."""

    __slots__ = ("_event_id", "_key", "_trace", "weight")

    def __init__(
        self, key: SessionKey, event_id: str, limits: Limits, trace: Trace = NO_TRACE
    ) -> None:
        check_trace(*trace)
        self._trace = trace
        self._key = key.checked(limits)
        self._event_id = event_id
        self.weight = 512

    def needs(self) -> Iterable[Need]:
        yield Need(SESSIONS, self._key)

    def decide(self, state: State) -> Decision[bool]:
        if state.get(SESSIONS, self._key) is None:
            return Decision(lambda _place: False)
        subject = session_subject("deleted", *self._key)
        draft = EntryDraft(
            self._event_id, Kind.SESSION.value, subject, "{}", **self._trace._asdict()
        )
        return Decision(lambda _place: True, [draft], [delete(SESSIONS, self._key)])


class AppendEvent:
    """Append one event and merge `state_delta` into the session's state, together.

    The delta's top-level keys replace the state's. A repeat of an event's id changes nothing.
    """

    __slots__ = (
        "_delta",
        "_delta_json",
        "_event",
        "_event_id",
        "_key",
        "_limits",
        "_run",
        "_trace",
        "weight",
    )

    def __init__(
        self,
        key: SessionKey,
        event: SessionEvent,
        state_delta_json: str,
        *,
        event_id: str,
        limits: Limits,
        run: tuple[str, int] = ("", 0),
        trace: Trace = NO_TRACE,
    ) -> None:
        self._key = key.checked(limits)
        check_name(event.id, limits, field="event.id", required=True)
        for field in ("invocation_id", "author", "branch"):
            check_name(getattr(event, field), limits, field=f"event.{field}")
        if not 0 <= event.timestamp_ms < 2**63:
            raise InvalidArgument("must be in 0..2^63-1", field="event.timestamp_ms")
        check_name(run[0], limits, field="run_id")
        check_token(*run)
        check_trace(*trace)
        self._event = event._replace(
            content_json=check_json(event.content_json, limits, field="event.content_json"),
            actions_json=check_json(event.actions_json, limits, field="event.actions_json"),
        )
        delta = check_json(state_delta_json or "{}", limits, field="state_delta_json")
        self._delta = _object(delta, "state_delta_json")
        self._delta_json = orjson.Fragment(delta)
        self._event_id = event_id
        self._limits = limits
        self._run = run
        self._trace = trace
        self.weight = 512 + len(event.content_json) + len(event.actions_json) + len(delta)

    def needs(self) -> Iterable[Need]:
        yield Need(SESSIONS, self._key)
        yield Need(SESSION_EVENTS, (*self._key, self._event.id))
        if self._run[0]:
            yield Need(RUNS, self._run[0])

    def decide(self, state: State) -> Decision[Appended]:
        run = fenced_run(state, *self._run) if self._run[0] else None
        session = state.get(SESSIONS, self._key)
        if session is None:
            raise NotFound(f"no session {'/'.join(self._key)}")
        stored = state.get(SESSION_EVENTS, (*self._key, self._event.id))
        if stored is not None:
            again = Appended(stored.event, session.last_update_time_ms)
            return Decision(lambda _place: again)
        event = self._event
        if not event.timestamp_ms:
            event = event._replace(timestamp_ms=state.now_ms)
        after = session._replace(
            state_json=self._merged(session.state_json),
            event_count=session.event_count + 1,
            last_update_time_ms=state.now_ms,
        )
        row = StoredEvent(
            **self._key._asdict(),
            **event._asdict(),
            position=after.event_count,
        )
        changes = [save(SESSIONS, after), save(SESSION_EVENTS, row)]
        seq = 0
        if run is not None:
            seq = run.seq_cursor + 1
            changes.append(save(RUNS, run._replace(seq_cursor=seq)))
        appended = Appended(event, state.now_ms)
        return Decision(lambda _place: appended, [self._draft(event, seq)], changes)

    def _merged(self, state_json: str) -> str:
        if not self._delta:
            return state_json
        # The standard library's parser keeps integers of any size, orjson's does not.
        merged = json.dumps({**json.loads(state_json), **self._delta}, ensure_ascii=False)
        size = utf8_length(merged, "state_delta_json")
        if size > self._limits.payload_bytes:
            raise TooLarge(f"the state would have {size} bytes", field="state_delta_json")
        return merged

    def _draft(self, event: SessionEvent, seq: int) -> EntryDraft:
        content = event._asdict() | {
            "content": orjson.Fragment(event.content_json),
            "actions": orjson.Fragment(event.actions_json),
        }
        del content["content_json"], content["actions_json"]
        payload = orjson.dumps({"event": content, "state_delta": self._delta_json}).decode()
        return EntryDraft(
            event_id=self._event_id,
            kind=Kind.EVENT.value,
            subject=session_event_appended(*self._key),
            payload_json=payload,
            run_id=self._run[0] or None,
            seq=seq or None,
            trace_id=self._trace.trace_id,
            span_id=self._trace.span_id,
            parent_span_id=self._trace.parent_span_id,
        )


def _object(text: str, field: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise InvalidArgument("must be a JSON object", field=field)
    return value
