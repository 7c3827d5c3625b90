"""The records of Tape as JSON objects: the same names everywhere, payloads as JSON and not text."""

from typing import Any

from tape.cli.output import raw_json
from tape.model.entry import Entry
from tape.model.session import Session, SessionEvent
from tape.model.value import Value, ValueChange


def entry_record(entry: Entry) -> dict[str, Any]:
    record = entry._asdict()
    record["payload"] = raw_json(record.pop("payload_json"))
    return record


def value_record(value: Value) -> dict[str, Any]:
    record = value._asdict()
    record["value"] = raw_json(record.pop("value_json"))
    return record


def change_record(change: ValueChange) -> dict[str, Any]:
    """A value's record with what was there before it."""
    return value_record(change.value) | {
        "prev_version": change.prev_version,
        "prev_value": raw_json(change.prev_value_json),
    }


def session_record(session: Session) -> dict[str, Any]:
    record = session._asdict()
    record["state"] = raw_json(record.pop("state_json"))
    return record


def session_event_record(event: SessionEvent) -> dict[str, Any]:
    record = event._asdict()
    for name in ("content", "actions"):
        record[name] = raw_json(record.pop(f"{name}_json"))
    return record
