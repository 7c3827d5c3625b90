"""Rows that programs and tasks write themselves, by SQL, and with which nothing is wrong."""

from typing import Any

from tests.pipeline.audit.planting import IDS, Field

SKIPPED_ROW = 7
"""The row of which the journal says that it was skipped."""


def outbox_row(field: Field, seq: int = 0, **columns: Any) -> int:
    """A row of the outbox: on the journal if `seq` is, and then it says what its entry says."""
    row: dict[str, Any] = {
        "event_id": next(IDS), "subject": "desk.orders", "payload_json": "{}",
        "occurred_at_ms": field.now_ms, "global_seq": seq,
    } | columns  # fmt: skip
    field.row(field.outbox, **row)
    return int(field.one(f"SELECT max(id) FROM {field.outbox}"))


def promoted_row(field: Field, **columns: Any) -> int:
    """A row with the entry that it became."""
    event_id, text = next(IDS), '{"qty": 1}'
    seq = field.event("desk.orders", event_id=event_id, payload=text, source="desk")
    said = {"event_id": event_id, "payload_json": text, "source": "desk", "has_entry": True}
    return outbox_row(field, seq, **(said | columns))


def repeated_row(field: Field, **columns: Any) -> int:
    """A row that was not taken, since another was the first."""
    first = next(IDS)
    seq = field.event("desk.orders", event_id=first)
    named = {"repeat_of": first, "repeat_of_seq": seq, "repeated_at_ms": field.now_ms}
    return outbox_row(field, -1, **(named | columns))


def published(field: Field) -> dict[str, Any]:
    return {"published_to_nats": True, "published_at_ms": field.now_ms, "published_term": 3}


def sow_outbox(field: Field) -> None:
    outbox_row(field)
    outbox_row(field, last_error="is not a ULID", attempts=2, event_id="by hand")
    promoted_row(field)
    promoted_row(field, **published(field))
    # By the code before: the place of another's event, whose key was used before.
    earlier = {"idempotency_key": "again", "has_entry": False}
    promoted_row(field, payload_json='{"qty": 2}', **earlier, **published(field))
    repeated_row(field)
    told = field.one("SELECT max(global_seq) FROM tape_journal WHERE kind = 'outbox'")
    skipped = {**published(field), "published_term": 0, "last_error": "skipped: enough"}
    assert outbox_row(field, told, subject="Not A Subject/1", **skipped) == SKIPPED_ROW
    field.row(field.processed, consumer="risk", message_id="m1")


def sow_chunks(field: Field) -> None:
    """A write of which two chunks are staged and are yet to be recorded."""
    field.row(
        "tape_writes", write_id="w1", epoch=3, origin="stream", chunks=2, recorded=0, rows=0,
        duplicates=0, updated_at_ms=field.now_ms,
    )  # fmt: skip
    field.row("tape_write_lists", write_id="w1", epoch=3, parts_json='[["a",2,9],["b",0,0]]')
    for number in range(2):
        chunk(field, "w1", 3, "a", number)
    chunk(field, "w1", 3, "lost", 4)  # of a task that was killed: on no list


def chunk(field: Field, write_id: str, epoch: int, part: str, number: int, rows: int = 3) -> None:
    field.row(
        "tape_write_chunks", write_id=write_id, epoch=epoch, part=part, number=number, rows=rows,
        staged_at_ms=field.now_ms, body=b"",
    )  # fmt: skip


def sow(field: Field) -> None:
    sow_outbox(field)
    sow_chunks(field)
