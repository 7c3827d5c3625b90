"""Recording events: what a producer hands in, and the move that puts it on the journal."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import orjson

from tape.errors import InvalidArgument, TooLarge
from tape.model.entry import EntryDraft, Kind
from tape.model.event_glob import OWN_PREFIX
from tape.model.json_text import check_json
from tape.model.move import KNOWN, Decision, EntryPlace, Need, RowChange, State, UsedKey, save
from tape.model.names import check_name
from tape.model.payload_schema import VERSION_FIELD
from tape.model.run import RUNS, Run, check_token, fenced_run
from tape.model.subject import check_length
from tape.model.subjects import event_recorded
from tape.settings import Limits

VERSIONS = range(1, 32768)
_KIND = Kind.EVENT.value
ENVELOPE_BYTES = 256  # what an entry weighs besides its payload, about
OUTBOX_KEY_PREFIX = "bus.outbox/"
"""How keys of outbox rows begin on the journal; no producer may use it (see `model.outbox`)."""


class NewEvent(NamedTuple):
    """An event as its producer states it. Only `event_type` is required."""

    event_type: str
    payload_json: str = "null"
    entity_type: str = ""
    entity_id: str = ""
    idempotency_key: str = ""
    caused_by: str = ""
    source: str = ""
    occurred_at_ms: int = 0
    schema_version: int = 1
    run_id: str = ""
    fencing_token: int = 0
    trace_id: str = ""
    span_id: str = ""
    parent_span_id: str = ""


class Recorded(NamedTuple):
    """Where an event was recorded. With `duplicate`, its key was used before: these are the first
    event's ids.
    """

    event_id: str
    global_seq: int
    seq: int
    duplicate: bool


def draft_event(event: NewEvent, event_id: str, limits: Limits) -> EntryDraft:
    """The entry that a user's event becomes; every fault in it is found here."""
    draft = draft_own_event(event, event_id, limits)
    # Nearly every event is of a type of its own and tells no version: it is let through here.
    if event[0].startswith(OWN_PREFIX) or VERSION_FIELD in event[1]:
        check_statement(event)
    return draft


def check_statement(event: NewEvent) -> None:
    """Refuse a type that only Tape may use, and a payload that tells another version."""
    refuse_reserved(event.event_type)
    told = version_in(event.payload_json)
    if told is not None and told != event.schema_version:
        raise InvalidArgument(
            f"the payload says {told}, the event {event.schema_version}: give the event the "
            "payload's version",
            field=VERSION_FIELD,
        )


def version_in(payload_json: str) -> float | None:
    """The version that a payload tells, None if it tells none."""
    if VERSION_FIELD not in payload_json:
        return None
    payload = orjson.loads(payload_json)
    told = payload.get(VERSION_FIELD) if isinstance(payload, dict) else None
    return told if isinstance(told, int | float) and not isinstance(told, bool) else None


def stated_version(payload_json: str) -> int:
    """The version that a payload tells, if an event can have it; else 1."""
    told = version_in(payload_json)
    return int(told) if told is not None and told in VERSIONS else 1


def refuse_reserved(event_type: str) -> None:
    if event_type.startswith(OWN_PREFIX):
        raise InvalidArgument(
            f"types that begin with {OWN_PREFIX} are reserved for Tape; choose another",
            field="event_type",
        )


def draft_own_event(event: NewEvent, event_id: str, limits: Limits) -> EntryDraft:
    """The entry of an event that Tape itself records, or that is committed already.

    Its type may be a reserved one, and its payload may tell another version.
    """
    (
        event_type, payload_json, entity_type, entity_id, idempotency_key, caused_by, source,
        occurred_at_ms, schema_version, run_id, token, trace_id, span_id, parent_span_id,
    ) = event  # fmt: skip
    # One look at all names together decides for nearly every event.
    names = f"{event_type}{entity_type}{entity_id}{idempotency_key}{caused_by}{source}{run_id}"
    if not (event_type and names.isascii() and len(names) <= limits.name_bytes) or "\0" in names:
        _check_names(event, limits)
    if idempotency_key and idempotency_key.startswith(OUTBOX_KEY_PREFIX):
        raise InvalidArgument(
            f"{OUTBOX_KEY_PREFIX!r} begins the keys of the outbox in the journal: choose another "
            "key",
            field="idempotency_key",
        )
    if schema_version not in VERSIONS:
        raise InvalidArgument(f"{schema_version} is not in 1..32767", field="schema_version")
    if not 0 <= occurred_at_ms < 2**63:
        raise InvalidArgument("must be in 0..2^63-1", field="occurred_at_ms")
    if trace_id or span_id or parent_span_id:
        check_trace(trace_id, span_id, parent_span_id)
    if token:
        check_token(run_id, token)
    subject = event_recorded(event_type, entity_type, entity_id)
    if len(subject) > limits.subject_bytes:
        check_length(subject, limits)
    return EntryDraft(
        event_id,
        _KIND,
        subject,
        check_json(payload_json, limits, field="payload_json"),
        run_id or None,
        None,
        schema_version,
        trace_id,
        span_id,
        parent_span_id,
        event_type,
        entity_type,
        entity_id,
        caused_by,
        source,
        occurred_at_ms,
        idempotency_key or None,
    )


def _check_names(event: NewEvent, limits: Limits) -> None:
    check_name(event.event_type, limits, field="event_type", required=True)
    for field in ("entity_type", "entity_id", "idempotency_key", "caused_by", "source", "run_id"):
        check_name(getattr(event, field), limits, field=field)


def check_trace(trace_id: str, span_id: str, parent_span_id: str) -> None:
    for field, text, width in (
        ("trace_id", trace_id, 32),
        ("span_id", span_id, 16),
        ("parent_span_id", parent_span_id, 16),
    ):
        if text and not (len(text) == width and set(text) <= set("0123456789abcdef")):
            raise InvalidArgument(f"must be {width} lower-case hexadecimal digits", field=field)


class RecordEvents:
    """Append events, all or none. A key that was used before answers with the first one's ids."""

    __slots__ = ("_drafts", "_keyed", "_tokens", "weight")

    def __init__(
        self, events: Sequence[NewEvent], event_ids: Iterable[str], limits: Limits
    ) -> None:
        if len(events) > limits.request_events:
            raise TooLarge(f"{len(events)} events, the limit is {limits.request_events}")
        self._drafts: list[EntryDraft] = []
        self._tokens: dict[str, int] = {}
        for event, event_id in zip(events, event_ids, strict=False):
            try:
                draft = draft_event(event, event_id, limits)
                if event.run_id:
                    self._note_token(event)
            except InvalidArgument as fault:
                fault.args = (f"events[{len(self._drafts)}].{fault}",)
                raise
            self._drafts.append(draft)
        self._keyed = [draft.idempotency_key for draft in self._drafts if draft.idempotency_key]
        size = sum(_size(draft.payload_json) for draft in self._drafts)
        if size > limits.request_bytes:
            raise TooLarge(f"the request has {size} bytes, the limit is {limits.request_bytes}")
        self.weight = size + ENVELOPE_BYTES * len(events)

    def _note_token(self, event: NewEvent) -> None:
        if self._tokens.setdefault(event.run_id, event.fencing_token) != event.fencing_token:
            raise InvalidArgument(
                "the request has two fencing tokens for one run", field="fencing_token"
            )

    def _all_new(self, place: EntryPlace) -> list[Recorded]:
        numbered = enumerate(self._drafts, place.global_seq)
        return [Recorded(draft[0], number, 0, False) for number, draft in numbered]

    def needs(self) -> Iterable[Need]:
        for key in self._keyed:
            yield Need(KNOWN, key)
        for run_id in self._tokens:
            yield Need(RUNS, run_id)

    def decide(self, state: State) -> Decision[list[Recorded]]:
        if not self._keyed and not self._tokens:
            return Decision(self._all_new, self._drafts)
        found = {run_id: fenced_run(state, run_id, t) for run_id, t in self._tokens.items()}
        runs = dict(found)
        entries: list[EntryDraft] = []
        results: list[UsedKey | int] = []  # a key used before, or the index of the new entry
        mine: dict[str, int] = {}
        for draft in self._drafts:
            key = draft.idempotency_key
            if key:
                known = state.get(KNOWN, key) or mine.get(key)
                if known is not None:
                    results.append(known)
                    continue
                mine[key] = len(entries)
            results.append(len(entries))
            entries.append(_numbered(draft, draft.run_id, runs) if draft.run_id else draft)
        changes: list[RowChange] = [
            save(RUNS, r) for r in runs.values() if r is not found[r.run_id]
        ]

        def reply(place: EntryPlace) -> list[Recorded]:
            seen: set[int] = set()
            return [_recorded(result, place.global_seq, entries, seen) for result in results]

        return Decision(reply, entries, changes)


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _numbered(draft: EntryDraft, run_id: str, runs: dict[str, Run]) -> EntryDraft:
    run = runs[run_id]
    runs[run_id] = run._replace(seq_cursor=run.seq_cursor + 1)
    return draft._replace(seq=run.seq_cursor + 1)


def _recorded(
    result: UsedKey | int, first: int, entries: list[EntryDraft], seen: set[int]
) -> Recorded:
    if isinstance(result, UsedKey):
        return Recorded(result.event_id, result.global_seq, result.seq, True)
    again = result in seen
    seen.add(result)
    draft = entries[result]
    return Recorded(draft.event_id, first + result, draft.seq or 0, again)
