"""The value store: versioned, compare-and-set, each change an entry that holds the previous one."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import orjson

from tape.errors import InvalidArgument, VersionMismatch
from tape.model.entry import NO_TRACE, Entry, EntryDraft, Kind, Trace
from tape.model.json_text import check_json
from tape.model.move import Decision, Need, Reading, RowChange, Table, save
from tape.model.names import check_name
from tape.model.run import RUNS, Run, check_token, fenced_run
from tape.model.subject import check_length
from tape.model.subjects import value_changed, value_deleted
from tape.settings import Limits

ANY_VERSION = -1


class Value(NamedTuple):
    namespace: str
    key: str
    value_json: str
    version: int
    ts_ms: int
    writer: str
    deleted: bool

    @property
    def value(self) -> Any:
        """The value, parsed at each use; None if it was deleted."""
        return orjson.loads(self.value_json) if self.value_json else None


class ValueChange(NamedTuple):
    """A change of a value, with the previous value."""

    value: Value
    prev_version: int
    prev_value_json: str


class Deleted(NamedTuple):
    """`deleted` is False if there was nothing to delete."""

    deleted: bool
    version: int


class ValueRow(NamedTuple):
    """A value as it is stored, with the id of the call that made its version, if that had one."""

    namespace: str
    key: str
    value_json: str
    version: int
    ts_ms: int
    writer: str
    deleted: bool
    request_id: str

    @property
    def value(self) -> Value:
        return Value._make(self[:-1])


VALUES = Table("values", ValueRow, lambda row: (row.namespace, row.key))


class Author(NamedTuple):
    """Who changes a value: a named writer, a run with its token, and the trace it belongs to.

    `request_id` is unique to the call and the same whenever that call is sent again.
    """

    writer: str = ""
    run_id: str = ""
    fencing_token: int = 0
    trace: Trace = NO_TRACE
    request_id: str = ""


class _ChangeValue:
    __slots__ = ("_author", "_event_id", "_key", "_namespace", "weight")

    def __init__(
        self, namespace: str, key: str, author: Author, event_id: str, limits: Limits
    ) -> None:
        self._namespace = check_name(namespace, limits, field="namespace", required=True)
        self._key = check_name(key, limits, field="key", required=True)
        check_length(value_changed(namespace, key), limits)
        check_name(author.writer, limits, field="writer")
        check_name(author.run_id, limits, field="run_id")
        check_name(author.request_id, limits, field="request_id")
        check_token(author.run_id, author.fencing_token)
        self._author = author
        self._event_id = event_id
        self.weight = 512

    def needs(self) -> Iterable[Need]:
        yield Need(VALUES, (self._namespace, self._key))
        if self._author.run_id:
            yield Need(RUNS, self._author.run_id)

    def _before(self, state: Reading) -> tuple[ValueRow | None, Run | None]:
        """The value as it is and the run that changes it, if one does and its token holds."""
        author = self._author
        run = fenced_run(state, author.run_id, author.fencing_token) if author.run_id else None
        return state.get(VALUES, (self._namespace, self._key)), run

    def _written(
        self, before: ValueRow | None, after: ValueRow, run: Run | None
    ) -> tuple[EntryDraft, list[RowChange]]:
        """The entry and rows of a change, numbered in its run if a run makes it."""
        author, changes, seq = self._author, [save(VALUES, after)], 0
        if run is not None:
            seq = run.seq_cursor + 1
            changes.append(save(RUNS, run._replace(seq_cursor=seq)))
        subject = value_deleted if after.deleted else value_changed
        draft = EntryDraft(
            event_id=self._event_id,
            kind=Kind.VALUE.value,
            subject=subject(self._namespace, self._key),
            payload_json=_payload(before, after),
            run_id=author.run_id or None,
            seq=seq or None,
            trace_id=author.trace.trace_id,
            span_id=author.trace.span_id,
            parent_span_id=author.trace.parent_span_id,
        )
        return draft, changes


class WriteValue(_ChangeValue):
    """Set a value. `if_version` < 0 does not look, 0 only creates, n replaces version n.

    A repeat of the write that made the current version is answered with it. It is known by the id
    of its call; where neither has one, by a writer, which then must be unique to the client. A
    write with neither is never taken for a repeat: two clients that compare and set would both win.
    """

    __slots__ = ("_if_version", "_value_json")

    def __init__(
        self,
        namespace: str,
        key: str,
        value_json: str,
        if_version: int,
        *,
        author: Author,
        event_id: str,
        limits: Limits,
    ) -> None:
        super().__init__(namespace, key, author, event_id, limits)
        if not value_json:
            raise InvalidArgument(
                "must be JSON; a deleted value needs DeleteValue", field="value_json"
            )
        self._value_json = check_json(value_json, limits, field="value_json")
        self._if_version = if_version
        self.weight += 2 * len(value_json)

    def decide(self, state: Reading) -> Decision[Value]:
        before, run = self._before(state)
        version = before.version if before else 0
        live = before is not None and not before.deleted
        if before is not None and live and self._is_repeat(before):
            recorded = before.value
            return Decision(lambda _place: recorded)
        if self._if_version >= 0 and self._if_version != (version if live else 0):
            found = f"it is at version {version}" if live else "there is no such value"
            raise VersionMismatch(
                f"value {self._namespace}/{self._key}: expected version {self._if_version}, {found}"
            )
        after = ValueRow(
            self._namespace,
            self._key,
            self._value_json,
            version + 1,
            state.now_ms,
            self._author.writer,
            False,
            self._author.request_id,
        )
        draft, changes = self._written(before, after, run)
        return Decision(lambda _place: after.value, [draft], changes)

    def _is_repeat(self, before: ValueRow) -> bool:
        author = self._author
        if before.value_json != self._value_json:
            return False
        if author.request_id or before.request_id:
            return author.request_id == before.request_id
        if self._if_version < 0 or before.version != self._if_version + 1:
            return False
        return bool(author.writer) and before.writer == author.writer


class DeleteValue(_ChangeValue):
    """Delete a value. Its version goes on counting, so a later writer cannot mistake it.

    A repeat with the id of the call that deleted it is answered as that was.
    """

    __slots__ = ()

    def decide(self, state: Reading) -> Decision[Deleted]:
        before, run = self._before(state)
        if before is None or before.deleted:
            call = self._author.request_id
            again = bool(call) and before is not None and before.request_id == call
            as_it_is = Deleted(again, before.version if before else 0)
            return Decision(lambda _place: as_it_is)
        after = before._replace(
            value_json="",
            version=before.version + 1,
            ts_ms=state.now_ms,
            writer=self._author.writer,
            deleted=True,
            request_id=self._author.request_id,
        )
        draft, changes = self._written(before, after, run)
        return Decision(lambda _place: Deleted(True, after.version), [draft], changes)


def _payload(before: ValueRow | None, after: ValueRow) -> str:
    change = {
        "value": after.value._asdict(),
        "prev_version": before.version if before else 0,
        "prev_value_json": before.value_json if before else "",
    }
    return orjson.dumps(change).decode()


def change_of(entry: Entry) -> ValueChange:
    """The change that an entry of kind `value` holds."""
    payload = entry.payload
    return ValueChange(
        Value(**payload["value"]), payload["prev_version"], payload["prev_value_json"]
    )
