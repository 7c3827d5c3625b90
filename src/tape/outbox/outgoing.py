"""An outbox row on its way to the broker: the event it is on the journal, under its own id."""

from tape.model.entry import Entry, Kind
from tape.model.outbox import OutboxRow
from tape.model.promote import happened_at_ms
from tape.model.subjects import event_recorded
from tape.ports.broker import Outgoing


def outgoing(row: OutboxRow) -> Outgoing:
    """The message of a row that is promoted. Its lane is its subject."""
    happened_ms = happened_at_ms(row)
    entry = Entry(
        global_seq=row.global_seq,
        run_id="",
        seq=0,
        kind=Kind.EVENT.value,
        subject=event_recorded(row.subject, row.entity_type, row.entity_id),
        payload_json=row.payload_json or "null",
        schema_version=row.schema_version,
        trace_id=row.trace_id,
        span_id=row.span_id,
        parent_span_id=row.parent_span_id,
        ts_ms=happened_ms,
        event_id=row.event_id,
        event_type=row.subject,
        entity_type=row.entity_type,
        entity_id=row.entity_id,
        caused_by=row.caused_by,
        source=row.source,
        occurred_at_ms=happened_ms,
        idempotency_key=row.idempotency_key or "",
    )
    return Outgoing(entry, row.event_id, row.subject, row.attempts + 1)
