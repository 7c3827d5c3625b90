"""The client: what a program says to Tape, the same in process and over the network."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from typing import Any, TypeVar
from uuid import uuid4
from weakref import WeakSet

from tape.bus import FollowQuery, Operations
from tape.client.build import as_json, event, must_be_text, session_event
from tape.client.ledger_calls import LedgerMethods
from tape.client.reaction_calls import ReactionMethods
from tape.client.run_calls import RunMethods
from tape.client.stream import Batches, Stream
from tape.client.subscription_calls import SubscriptionMethods
from tape.client.wallet_calls import WalletMethods
from tape.journal.follow import Page
from tape.model.entry import Entry, Trace
from tape.model.event import NewEvent, Recorded
from tape.model.outbox import OutboxPlace
from tape.model.session import Appended, Session, SessionEvent, SessionKey, SessionWithEvents
from tape.model.subject import EVERYTHING
from tape.model.value import ANY_VERSION, Author, Deleted, Value, ValueChange
from tape.ports.outbox import OutboxStatus
from tape.ports.polling import OwnPolledSources
from tape.ports.store import JournalInfo
from tape.telemetry.tracing import in_span, recording

T = TypeVar("T")

LIST_PAGE = 1_000


class AsyncTapeClient(
    RunMethods, ReactionMethods, LedgerMethods, SubscriptionMethods, WalletMethods
):
    """The client for a program with an event loop. Create it with `tape.connect_async`."""

    def __init__(self, operations: Operations, polled: OwnPolledSources | None = None) -> None:
        super().__init__(operations)
        self._polled = self._own_polled = polled
        self._streams: WeakSet[Stream[Any]] = WeakSet()
        self._closed = False

    async def __aenter__(self) -> "AsyncTapeClient":
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    async def record(
        self,
        event_type: str,
        payload: Any = None,
        *,
        entity_type: str = "",
        entity_id: str = "",
        idempotency_key: str = "",
        caused_by: str = "",
        source: str = "",
        occurred_at_ms: int = 0,
        schema_version: int = 1,
        run_id: str = "",
        fencing_token: int = 0,
    ) -> Recorded:
        """Record one event. Returns its ids and its `global_seq` once it is durable."""
        new = event(
            event_type,
            payload,
            entity_type=entity_type,
            entity_id=entity_id,
            idempotency_key=idempotency_key,
            caused_by=caused_by,
            source=source,
            occurred_at_ms=occurred_at_ms,
            schema_version=schema_version,
            run_id=run_id,
            fencing_token=fencing_token,
        )
        (recorded,) = await self._record(f"record {event_type}", [new])
        return recorded

    async def record_many(self, events: Iterable[NewEvent]) -> list[Recorded]:
        """Record several events in one request, all or none. `tape.event` makes one."""
        return await self._record("record_many", list(events))

    def follow(
        self,
        pattern: str = EVERYTHING,
        *,
        where: str = "",
        after: int | None = 0,
        live: bool = True,
        max_batch: int = 0,
    ) -> Stream[Entry]:
        """Read matching entries in order, those with a `global_seq` greater than `after`.

        `where` is a CEL predicate. `after=None` starts at the newest entry. With `live=False` the
        stream ends at the entry that was the newest when the stream started: at `async with`, or at
        the first item.
        """
        must_be_text(pattern=pattern, where=where)
        query = FollowQuery(pattern, where, after or 0, max_batch)

        async def start() -> Batches[Entry]:
            return _entries_of(await self._pages(query, from_head=after is None, live=live))

        return self._stream(start)

    def pages(
        self,
        pattern: str = EVERYTHING,
        *,
        where: str = "",
        after: int | None = 0,
        live: bool = True,
        max_batch: int = 0,
    ) -> Stream[Page]:
        """Read entries like `follow`, page by page. Use it to store `page.cursor`, or for speed."""
        must_be_text(pattern=pattern, where=where)
        query = FollowQuery(pattern, where, after or 0, max_batch)

        async def start() -> Batches[Page]:
            return _singly(await self._pages(query, from_head=after is None, live=live))

        return self._stream(start)

    def follow_run(self, run_id: str, *, after_seq: int = 0) -> Stream[Entry]:
        """Read the entries of one run in its own order, then wait for new ones."""

        async def start() -> Batches[Entry]:
            return _batches(self._operations.runs.follow_run(run_id, after_seq))

        return self._stream(start)

    async def set_value(
        self,
        namespace: str,
        key: str,
        value: Any,
        *,
        if_version: int = ANY_VERSION,
        writer: str = "",
    ) -> Value:
        """Set a value. `if_version` 0 only creates it, n replaces version n, -1 does not check."""
        must_be_text(namespace=namespace, key=key)
        text = as_json(value, field="value")
        with recording(f"set_value {namespace}") as trace:
            author = Author(writer, trace=trace, request_id=uuid4().hex)
            return await self._operations.values.write_value(
                namespace, key, text, if_version, author
            )

    async def get_value(self, namespace: str, key: str) -> Value | None:
        """Return the current value; None if it does not exist or was deleted."""
        must_be_text(namespace=namespace, key=key)
        found = await self._operations.values.get_value(namespace, key)
        return None if found is None or found.deleted else found

    def watch_value(
        self, namespace: str, key: str, *, from_version: int = 0
    ) -> Stream[ValueChange]:
        """Read every change with a greater version, with the previous value, then wait for new
        ones.
        """

        async def start() -> Batches[ValueChange]:
            return _singly(self._operations.values.watch_value(namespace, key, from_version))

        return self._stream(start)

    async def delete_value(self, namespace: str, key: str, *, writer: str = "") -> Deleted:
        """Delete a value. Its history stays."""
        with recording(f"delete_value {namespace}") as trace:
            author = Author(writer, trace=trace, request_id=uuid4().hex)
            return await self._operations.values.delete_value(namespace, key, author)

    async def list_values(self, namespace: str) -> list[Value]:
        """Return all values of a namespace that are not deleted, by key."""
        values: list[Value] = []
        after_key = ""
        while page := await self._operations.values.list_values(namespace, after_key, LIST_PAGE):
            values += page
            after_key = page[-1].key
        return values

    async def list_namespaces(self) -> list[str]:
        """The namespaces that hold a value, by name."""
        return await _all_names(self._operations.values.list_namespaces)

    async def list_session_apps(self) -> list[str]:
        """The apps that have a session, by name."""
        return await _all_names(self._operations.sessions.list_session_apps)

    async def create_session(
        self,
        app_name: str,
        user_id: str,
        session_id: str = "",
        state: Mapping[str, Any] | None = None,
    ) -> Session:
        """Create a session. If it exists, return it unchanged."""
        text = as_json(state or {}, field="state")
        key = SessionKey(app_name, user_id, session_id)
        with recording(f"create_session {app_name}") as trace:
            return await self._operations.sessions.create_session(key, text, trace)

    async def get_session(
        self, app_name: str, user_id: str, session_id: str, *, max_events: int = 0
    ) -> SessionWithEvents | None:
        """Return the session with its newest events, the oldest of them first."""
        key = SessionKey(app_name, user_id, session_id)
        return await self._operations.sessions.get_session(key, max_events)

    async def list_sessions(self, app_name: str, user_id: str) -> list[SessionWithEvents]:
        """Return a user's sessions without their events, the last changed first."""
        return await self._operations.sessions.list_sessions(app_name, user_id)

    async def delete_session(self, app_name: str, user_id: str, session_id: str) -> bool:
        """Delete a session. Returns False if it did not exist."""
        key = SessionKey(app_name, user_id, session_id)
        with recording(f"delete_session {app_name}") as trace:
            return await self._operations.sessions.delete_session(key, trace)

    async def append_event(
        self,
        app_name: str,
        user_id: str,
        session_id: str,
        event: SessionEvent | Mapping[str, Any],
        *,
        state_delta: Mapping[str, Any] | None = None,
    ) -> Appended:
        """Append an event to a session and change its state, in one step.

        A repeated event id changes nothing. The event is a SessionEvent, or a mapping with the same
        names in which `content` and `actions` are plain Python values.
        """
        delta = as_json(state_delta or {}, field="state_delta")
        key = SessionKey(app_name, user_id, session_id)
        new = session_event(event)
        with recording(f"append_event {app_name}") as trace:
            return await self._operations.sessions.append_event(key, new, delta, trace=trace)

    async def outbox_status(self) -> OutboxStatus:
        """Return the rows that wait in the outbox, those that were refused and why, and the leading
        relays.
        """
        return await self._operations.outbox.outbox_status()

    async def skip_outbox_row(self, row_id: int, *, reason: str, by: str = "") -> OutboxPlace:
        """Skip an outbox row that was refused, so that later rows of its subject are published."""
        return await self._operations.outbox.skip_outbox_row(row_id, reason=reason, by=by)

    async def info(self) -> JournalInfo:
        return await self._operations.info()

    async def close(self) -> None:
        """End every stream, write what is queued, and close the connection."""
        for stream in list(self._streams):
            await stream.aclose()
        if not self._closed:
            self._closed = True
            await self._stop_running_here()
            if self._own_polled is not None:
                await self._own_polled.close()
            await self._operations.close()

    def _record(self, name: str, events: list[NewEvent]) -> Awaitable[list[Recorded]]:
        if in_span():
            return self._record_traced(name, events)
        return self._operations.record_events(events)  # most writes: not even a frame more

    async def _record_traced(self, name: str, events: list[NewEvent]) -> list[Recorded]:
        with recording(name) as trace:
            traced = [_traced(new, trace) for new in events]
            return await self._operations.record_events(traced)

    def _stream(self, start: Callable[[], Awaitable[Batches[T]]]) -> Stream[T]:
        stream = Stream(start)
        self._streams.add(stream)
        return stream

    async def _pages(
        self, query: FollowQuery, *, from_head: bool, live: bool
    ) -> AsyncGenerator[Page, None]:
        if from_head or not live:
            head = (await self._operations.info()).head_global_seq
            after = head if from_head else query.after
            if not live and after == head:
                return _no_items()
            # Beyond the head there is nothing either, unless the cursor is refused.
            query = query._replace(after=after, until=0 if live else max(after, head))
        return self._operations.follow(query)


async def _all_names(listed: Callable[[str, int], Awaitable[list[str]]]) -> list[str]:
    names: list[str] = []
    while page := await listed(names[-1] if names else "", LIST_PAGE):
        names += page
    return names


def _traced(new: NewEvent, trace: Trace) -> NewEvent:
    """With that trace, unless its producer gave it one."""
    if new.trace_id or new.span_id or new.parent_span_id:
        return new
    return new._replace(**trace._asdict())


async def _no_items() -> AsyncGenerator[Any, None]:
    nothing: tuple[Any, ...] = ()
    for item in nothing:
        yield item


async def _batches(source: AsyncGenerator[list[T], None]) -> AsyncGenerator[list[T], None]:
    async with aclosing(source):
        async for batch in source:
            yield batch


async def _singly(source: AsyncGenerator[T, None]) -> AsyncGenerator[list[T], None]:
    async with aclosing(source):
        async for item in source:
            yield [item]


async def _entries_of(source: AsyncGenerator[Page, None]) -> AsyncGenerator[list[Entry], None]:
    async with aclosing(source):
        async for page in source:
            yield page.entries
