"""Promotion: outbox rows become events on the journal, each once, whoever promotes.

Rows are promoted in the order of their ids. In its turn the move looks which of them are promoted
already, so any number of processes may try the same rows.

A row whose idempotency key was used before on its subject is a repeat: it makes no event, and says
which one it repeats. So is a row with the id, the subject and the payload of one that was promoted.

A row that cannot be an event (somebody put it there by hand) must not stop the others. It stays
where it is, and what comes after it on the same subject stays behind it, so the order of a subject
never has a hole. A row with the id of another event is one of those.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tape.errors import InvalidArgument
from tape.model.bus_subject import check_bus_subject
from tape.model.entry import EntryDraft
from tape.model.event import ENVELOPE_BYTES, NewEvent, draft_own_event, refuse_reserved
from tape.model.move import KNOWN, Decision, Need, RowChange, State, UsedKey, save
from tape.model.outbox import (
    OUTBOX,
    OUTBOX_IDS,
    OUTBOX_KEYS,
    REPEATED,
    EntryOfKey,
    OutboxPlace,
    OutboxRow,
    key_on_journal,
)
from tape.settings import Limits

_ULID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}").fullmatch


class RefusedRow(NamedTuple):
    """A row that cannot be an event, and why."""

    row: OutboxRow
    error: str


class Promoted(NamedTuple):
    """What became of rows: how many were promoted now, which cannot be, how many are repeats."""

    promoted: int
    unfit: list[RefusedRow]
    repeats: int = 0


class _First(NamedTuple):
    """An event that a row may repeat; `row_id` is 0 where it is not known."""

    event_id: str
    global_seq: int
    subject: str
    payload_json: str
    row_id: int


class PromoteOutbox:
    """Put rows on the journal that are not there yet."""

    __slots__ = ("_drafts", "_rows", "_unfit", "weight")

    def __init__(self, rows: Sequence[OutboxRow], limits: Limits) -> None:
        self._rows = {row.id: row for row in rows}
        self._drafts: dict[int, EntryDraft] = {}
        self._unfit: list[RefusedRow] = []
        held: set[str] = set()
        for row in sorted(rows, key=lambda row: row.id):
            if row.subject in held:
                continue
            try:
                self._drafts[row.id] = draft_row(row, limits)
            except InvalidArgument as fault:
                held.add(row.subject)
                self._unfit.append(RefusedRow(row, str(fault)))
        self.weight = sum(len(row.payload_json) + ENVELOPE_BYTES for row in rows)

    def needs(self) -> Iterable[Need]:
        for row_id, draft in self._drafts.items():
            yield Need(OUTBOX, row_id)
            yield Need(OUTBOX_IDS, draft.event_id)
            if draft.idempotency_key:
                yield Need(KNOWN, draft.idempotency_key)
                row = self._rows[row_id]
                yield Need(OUTBOX_KEYS, (row.subject, row.idempotency_key))

    def decide(self, state: State) -> Decision[Promoted]:
        entries: list[EntryDraft] = []
        changes: list[RowChange] = []
        unfit = [*self._unfit]
        held: set[str] = set()
        # Other moves of the batch may have promoted rows before this one.
        made = {
            draft.event_id: _first(draft, place, 0)
            for place, draft in enumerate(state.entries, state.next_global_seq)
        }
        keys: dict[str, UsedKey] = {}
        for row_id, draft in self._drafts.items():
            place = state.get(OUTBOX, row_id)
            if place is None or place.global_seq or place.subject in held:
                continue
            if (place.event_id, place.subject) != (draft.event_id, draft.event_type):
                # Somebody has corrected it since. It is read again, and nothing overtakes it.
                held.update((place.subject, draft.event_type))
                continue
            known = self._find_key(row_id, draft, state, keys)
            same_id = made.get(draft.event_id) or _find_id(draft, state)
            if known is not None:
                changes.append(save(OUTBOX, _repeat(place, known.event_id, known.global_seq)))
            elif same_id is None:
                index = state.next_global_seq + len(state.entries) + len(entries)
                made[draft.event_id] = _first(draft, index, row_id)
                if key := draft.idempotency_key:
                    keys[key] = UsedKey(key, draft.event_id, index, 0)
                entries.append(draft)
                changes.append(
                    save(OUTBOX, place._replace(global_seq=index, has_entry=True, last_error=""))
                )
            elif _is_same(draft, same_id):
                changes.append(save(OUTBOX, _repeat(place, same_id.event_id, same_id.global_seq)))
            else:
                held.add(place.subject)
                unfit.append(RefusedRow(self._rows[row_id], _taken(same_id)))
        promoted = Promoted(len(entries), unfit, len(changes) - len(entries))
        return Decision(lambda _place: promoted, entries, changes)

    def _find_key(
        self, row_id: int, draft: EntryDraft, state: State, mine: dict[str, UsedKey]
    ) -> UsedKey | EntryOfKey | None:
        """The first event with the key on its subject, by the journal or else by the outbox."""
        if not draft.idempotency_key:
            return None
        row = self._rows[row_id]
        return (
            mine.get(draft.idempotency_key)
            or state.get(KNOWN, draft.idempotency_key)
            or state.get(OUTBOX_KEYS, (row.subject, row.idempotency_key))
        )


def draft_row(row: OutboxRow, limits: Limits) -> EntryDraft:
    """The event that a row becomes; InvalidArgument if it cannot be one."""
    check_bus_subject(row.subject)
    if not _ULID(row.event_id):
        raise InvalidArgument("is not a ULID, which every event id must be", field="event_id")
    event = NewEvent(
        row.subject, row.payload_json, row.entity_type, row.entity_id, row.idempotency_key or "",
        row.caused_by, row.source, happened_at_ms(row), row.schema_version, "", 0, row.trace_id,
        row.span_id, row.parent_span_id,
    )  # fmt: skip
    refuse_reserved(row.subject)
    # Whoever wrote the row may have given its payload another version. The row is committed, and
    # nobody is hurt by that: to hold up its subject would be worse.
    draft = draft_own_event(event, row.event_id, limits)
    key = draft.idempotency_key
    return draft._replace(idempotency_key=key_on_journal(row.subject, key)) if key else draft


def happened_at_ms(row: OutboxRow) -> int:
    """When its producer says that it happened, or else wrote it."""
    return row.occurred_at_ms or row.created_at_ms


def _first(draft: EntryDraft, global_seq: int, row_id: int) -> _First:
    return _First(draft.event_id, global_seq, draft.event_type, draft.payload_json, row_id)


def _find_id(draft: EntryDraft, state: State) -> _First | None:
    """The event that a row of the outbox has made under this id."""
    found = state.get(OUTBOX_IDS, draft.event_id)
    if found is None:
        return None
    payload = found.payload_json or "null"
    return _First(found.event_id, found.global_seq, found.subject, payload, found.row_id)


def _is_same(draft: EntryDraft, first: _First) -> bool:
    return (draft.event_type, draft.payload_json) == (first.subject, first.payload_json)


def _taken(first: _First) -> str:
    row = f"row {first.row_id}, " if first.row_id else ""
    return (
        f"event_id: belongs to another event ({row}subject {first.subject}, global_seq "
        f"{first.global_seq}), with another subject or payload: give each event its own id"
    )


def _repeat(place: OutboxPlace, event_id: str, global_seq: int) -> OutboxPlace:
    return place._replace(
        global_seq=REPEATED, repeat_of=event_id, repeat_of_seq=global_seq, last_error=""
    )
