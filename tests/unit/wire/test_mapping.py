"""Whatever the model holds comes back from the wire as it was."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tape.bus.sessions import SessionOperations
from tape.bus.values import ValueOperations
from tape.model.entry import Entry, Trace
from tape.model.event import NewEvent, Recorded
from tape.model.session import Appended, Session, SessionEvent, SessionKey, SessionWithEvents
from tape.model.value import Author, Deleted, Value, ValueChange
from tape.ports.store import JournalInfo
from tape.settings import Limits
from tape.wire import mapping_entries, mapping_events, records
from tape.wire.v1 import tape_pb2 as pb
from tests.unit.wire.by_row import answered, asked, heard, sent, told

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
int64s = st.integers(-(2**63), 2**63 - 1)
int32s = st.integers(-(2**31), 2**31 - 1)


def rows(row: type, **special: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    by_type = {str: texts, int: int64s, bool: st.booleans()}
    fields = {
        name: special[name] if name in special else by_type[kind]
        for name, kind in row.__annotations__.items()
    }
    return st.builds(row, **fields)


entries = rows(Entry, schema_version=int32s)
values = rows(Value)
traces = rows(Trace)
authors = rows(Author, trace=traces)
session_events = rows(SessionEvent)
sessions = rows(Session)
with_events = st.builds(SessionWithEvents, sessions, st.lists(session_events, max_size=3))


@given(st.lists(entries, max_size=4), int64s, int64s, texts)
def test_batches(found: list[Entry], cursor: int, skipped: int, error: str) -> None:
    batch = sent(mapping_entries.batch_to_wire(found, cursor, skipped, error))
    assert mapping_entries.entries_from_wire(batch) == found
    assert (batch.cursor, batch.skipped, batch.last_error) == (cursor, skipped, error)


@given(entries)
def test_entries(entry: Entry) -> None:
    alone = sent(mapping_entries.entry_to_wire(entry))
    assert mapping_entries.entry_from_wire(alone) == entry
    in_run = sent(mapping_entries.run_entry_to_wire(entry))
    assert mapping_entries.run_entry_from_wire(in_run, entry.run_id) == entry


@given(st.lists(rows(NewEvent, schema_version=st.integers(1, 2**31 - 1)), max_size=4))
def test_events(events: list[NewEvent]) -> None:
    # A token without a run says nothing, and is not sent.
    events = [e if e.run_id else e._replace(fencing_token=0) for e in events]
    assert mapping_events.events_from_wire(sent(mapping_events.events_to_wire(events))) == events


def test_an_unset_schema_version_is_one() -> None:
    request = pb.RecordEventsRequest(events=[pb.NewEvent(event_type="a")])
    assert mapping_events.events_from_wire(request) == [NewEvent("a", payload_json="")]


@given(st.lists(rows(Recorded), max_size=4))
def test_recorded(results: list[Recorded]) -> None:
    response = sent(mapping_events.recorded_to_wire(results))
    assert mapping_events.recorded_from_wire(response) == results


@given(values, int64s, texts)
def test_values(value: Value, prev_version: int, prev: str) -> None:
    record = sent(records.VALUE.to_wire(value))
    assert records.VALUE.from_wire(record) == value
    change = ValueChange(value, prev_version, prev)
    event = sent(records.VALUE_CHANGE.to_wire(change))
    assert records.VALUE_CHANGE.from_wire(event) == change
    listed = answered(ValueOperations.list_values, [value, value])
    assert told(ValueOperations.list_values, listed) == [value, value]


@given(st.none() | values)
def test_found_values(value: Value | None) -> None:
    response = answered(ValueOperations.get_value, value)
    assert told(ValueOperations.get_value, response) == value
    assert response.found == (value is not None and not value.deleted)


@given(texts, texts, texts, int64s, authors, rows(Deleted))
def test_changing_values(
    namespace: str, key: str, value_json: str, if_version: int, author: Author, deleted: Deleted
) -> None:
    writing = (namespace, key, value_json, if_version, author)
    write = asked(ValueOperations.write_value, *writing)
    assert heard(ValueOperations.write_value, write) == [*writing]
    assert (write.namespace, write.key) == (namespace, key)
    assert (write.value_json, write.if_version) == (value_json, if_version)
    delete = asked(ValueOperations.delete_value, namespace, key, author=author)
    assert heard(ValueOperations.delete_value, delete) == [namespace, key, author]
    assert (delete.namespace, delete.key) == (namespace, key)
    for request in (write, delete):
        assert records.AUTHOR.from_wire(request) == author
    response = sent(records.DELETED.to_wire(deleted))
    assert records.DELETED.from_wire(response) == deleted


@given(sessions, st.none() | with_events, st.lists(with_events, max_size=3))
def test_sessions(
    session: Session, found: SessionWithEvents | None, listed: list[SessionWithEvents]
) -> None:
    message = sent(records.SESSION.to_wire(session))
    assert records.SESSION.from_wire(message) == session
    response = answered(SessionOperations.get_session, found)
    assert told(SessionOperations.get_session, response) == found
    several = answered(SessionOperations.list_sessions, listed)
    assert told(SessionOperations.list_sessions, several) == listed


@given(rows(SessionKey), session_events, texts, texts, int64s, traces)
def test_appending(
    key: SessionKey, event: SessionEvent, delta: str, run_id: str, token: int, trace: Trace
) -> None:
    appending = (key, event, delta, (run_id, token), trace)
    request = asked(SessionOperations.append_event, *appending)
    assert heard(SessionOperations.append_event, request) == [*appending]
    assert (request.app_name, request.user_id, request.session_id) == key
    assert records.SESSION_EVENT.from_wire(request.event) == event
    assert (request.run_id, request.fencing_token) == (run_id, token)
    assert records.TRACE.from_wire(request) == trace
    appended = Appended(event, token)
    response = sent(records.APPENDED.to_wire(appended))
    assert records.APPENDED.from_wire(response) == appended


@given(rows(JournalInfo, migration=int32s), texts)
def test_info(info: JournalInfo, version: str) -> None:
    limits = Limits(payload_bytes=4, shards=5)
    message = sent(mapping_entries.info_to_wire(info, version, limits))
    assert mapping_entries.info_from_wire(message) == info
    assert mapping_entries.limits_from_wire(message, Limits()) == limits
    message.ClearField("limits")  # of a server before this one
    assert mapping_entries.limits_from_wire(message, Limits()) == Limits()
    assert message.version == version
