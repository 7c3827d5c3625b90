"""Entries on the wire. This is the hot path of following: every entry passes here twice.

So entries are taken apart by position, fields at their default are not touched, and messages are
made inside their batch instead of being copied into it.
"""

from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter

from tape.model.entry import Entry
from tape.ports.store import JournalInfo
from tape.settings import Limits
from tape.wire.v1 import tape_pb2 as pb

_entry_fields = attrgetter(*Entry._fields)
_run_entry_fields = attrgetter(*(name for name in Entry._fields if name != "run_id"))


def batch_to_wire(
    entries: Sequence[Entry], cursor: int, skipped: int = 0, error: str = ""
) -> pb.EntryBatch:
    batch = pb.EntryBatch(cursor=cursor, skipped=skipped, last_error=error)
    add = batch.entries.add
    for entry in entries:
        message = add()
        if entry[1]:
            message.run_id = entry[1]
        _fill(message, entry)
    return batch


def entries_from_wire(batch: pb.EntryBatch) -> list[Entry]:
    make = Entry._make
    return [make(_entry_fields(message)) for message in batch.entries]


def entry_to_wire(entry: Entry) -> pb.EventEntry:
    message = pb.EventEntry(run_id=entry.run_id)
    _fill(message, entry)
    return message


def entry_from_wire(message: pb.EventEntry) -> Entry:
    return Entry._make(_entry_fields(message))


def run_entry_to_wire(entry: Entry) -> pb.JournalEntry:
    message = pb.JournalEntry()
    _fill(message, entry)
    return message


def run_entry_from_wire(message: pb.JournalEntry, run_id: str) -> Entry:
    global_seq, *others = _run_entry_fields(message)
    return Entry(global_seq, run_id, *others)


def _fill(message: pb.EventEntry | pb.JournalEntry, entry: Entry) -> None:
    """All but `run_id`, which a run's own stream leaves out."""
    (
        message.global_seq, _, seq, message.kind, message.subject, message.payload_json,
        message.schema_version, trace_id, span_id, parent_span_id, message.ts_ms, message.event_id,
        event_type, entity_type, entity_id, caused_by, source, message.occurred_at_ms, key,
    ) = entry  # fmt: skip
    if seq:
        message.seq = seq
    if trace_id or span_id or parent_span_id:
        message.trace_id = trace_id
        message.span_id = span_id
        message.parent_span_id = parent_span_id
    if event_type:
        message.event_type = event_type
    if entity_type or entity_id:
        message.entity_type = entity_type
        message.entity_id = entity_id
    if caused_by:
        message.caused_by = caused_by
    if source:
        message.source = source
    if key:
        message.idempotency_key = key


def info_to_wire(
    info: JournalInfo, version: str, limits: Limits, *, exposed: bool = False
) -> pb.GetJournalInfoResponse:
    # Those that a client goes by: what the server alone decides about is not told.
    told = pb.Limits(
        **{name: getattr(limits, name) for name in pb.Limits.DESCRIPTOR.fields_by_name}
    )
    return pb.GetJournalInfoResponse(
        **info._asdict(), version=version, limits=told, exposed=exposed
    )


def limits_from_wire(message: pb.GetJournalInfoResponse, own: Limits) -> Limits:
    """Those of the server; of one that does not tell them, what this side is set to."""
    if not message.HasField("limits"):
        return own
    told = {field.name: value for field, value in message.limits.ListFields()}
    return replace(own, **told)


def info_from_wire(message: pb.GetJournalInfoResponse) -> JournalInfo:
    return JournalInfo(
        message.store, message.first_global_seq, message.head_global_seq, message.migration
    )
