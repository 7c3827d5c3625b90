"""Promotion: outbox rows become events on the journal, each once, whoever promotes.

Rows are promoted in the order of their ids. In its turn the move looks which of them are promoted
already, so any number of processes may try the same rows. A row whose idempotency key was used
before makes no event: it gets the id and the place of the first.

A row that cannot be an event (somebody put it there by hand) must not stop the others. It stays
where it is, and what comes after it on the same subject stays behind it, so the order of a subject
never has a hole.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tape.config import Limits
from tape.errors import InvalidArgument
from tape.model.bus_subject import check_bus_subject
from tape.model.entry import Draft
from tape.model.event import ENVELOPE_BYTES, NewEvent, draft_event
from tape.model.move import KNOWN, Change, Decision, Known, Need, State, save
from tape.model.outbox import OUTBOX, OutboxPlace, OutboxRow

_ULID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}").fullmatch


class Unfit(NamedTuple):
    """A row that cannot be an event, and why."""

    row: OutboxRow
    error: str


class Promoted(NamedTuple):
    """What became of rows: how many were promoted now, and which cannot be."""

    promoted: int
    unfit: list[Unfit]


class PromoteOutbox:
    """Put rows on the journal that are not there yet."""

    __slots__ = ("_drafts", "_unfit", "weight")

    def __init__(self, rows: Sequence[OutboxRow], limits: Limits) -> None:
        self._drafts: dict[int, Draft] = {}
        self._unfit: list[Unfit] = []
        held: set[str] = set()
        for row in sorted(rows, key=lambda row: row.id):
            if row.subject in held:
                continue
            try:
                self._drafts[row.id] = draft_row(row, limits)
            except InvalidArgument as fault:
                held.add(row.subject)
                self._unfit.append(Unfit(row, str(fault)))
        self.weight = sum(len(row.payload_json) + ENVELOPE_BYTES for row in rows)

    def needs(self) -> Iterable[Need]:
        for row_id, draft in self._drafts.items():
            yield Need(OUTBOX, row_id)
            if draft.idempotency_key:
                yield Need(KNOWN, draft.idempotency_key)

    def decide(self, state: State) -> Decision[Promoted]:
        entries: list[Draft] = []
        changes: list[Change] = []
        mine: dict[str, Known] = {}
        for row_id, draft in self._drafts.items():
            place = state.get(OUTBOX, row_id)
            if place is None or place.global_seq:
                continue
            key = draft.idempotency_key or ""
            known = state.get(KNOWN, key) or mine.get(key) if key else None
            if known is None:
                index = state.next_global_seq + len(state.entries) + len(entries)
                known = Known(key, draft.event_id, index, 0)
                entries.append(draft)
                if key:
                    mine[key] = known
            changes.append(save(OUTBOX, _placed(place, known)))
        promoted = Promoted(len(changes), self._unfit)
        return Decision(lambda _place: promoted, entries, changes)


def draft_row(row: OutboxRow, limits: Limits) -> Draft:
    """The event that a row becomes; InvalidArgument if it cannot be one."""
    check_bus_subject(row.subject)
    if not _ULID(row.event_id):
        raise InvalidArgument("is not a ULID, as every event's id is", field="event_id")
    event = NewEvent(
        row.subject, row.payload_json, row.entity_type, row.entity_id, row.idempotency_key or "",
        row.caused_by, row.source, happened_at_ms(row), row.schema_version, "", 0, row.trace_id,
        row.span_id, row.parent_span_id,
    )  # fmt: skip
    return draft_event(event, row.event_id, limits)


def happened_at_ms(row: OutboxRow) -> int:
    """When its producer says that it happened, or else wrote it."""
    return row.occurred_at_ms or row.created_at_ms


def _placed(place: OutboxPlace, known: Known) -> OutboxPlace:
    return place._replace(event_id=known.event_id, global_seq=known.global_seq, last_error="")
