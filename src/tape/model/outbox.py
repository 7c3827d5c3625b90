"""An outbox row: an event that a program wrote in its own transaction.

The row names a *bus subject* (`market.klines.binance.spot.btcusdt.1m`): tokens of lower-case
letters, digits, `-` and `_`, with dots between. On the journal it is the event's type. `event_id`
is drawn by the producer and is the message's id at the broker, however often it is sent.

An `idempotency_key` belongs to its subject: the second row with it is a *repeat* of the first, as
long as that is on the journal or in the outbox. It makes no entry, is never published, and says
which event it repeats. On the journal the key is `bus.outbox/<subject>/<key>`, a form that no key
of a recorded event may have, so neither swallows the other.
"""

from collections.abc import Iterable
from typing import NamedTuple

import orjson

from tape.errors import InvalidArgument, NotFound
from tape.model.entry import EntryDraft, Kind
from tape.model.event import OUTBOX_KEY_PREFIX
from tape.model.move import Decision, EntryPlace, Need, State, Table, save
from tape.model.names import check_name
from tape.model.subjects import outbox_skipped
from tape.settings import Limits

NATS_RELAY = "nats"
"""The relay that promotes rows to the journal and publishes them to NATS."""
JOURNAL_RELAY = "journal"
"""The relay of a server without a broker: it promotes and leaves publishing to others."""

SKIPPED = "skipped: "
"""How the `last_error` of a skipped row begins."""
REPEATED = -1
"""The `global_seq` of a row that is a repeat: it never has an entry of its own."""


class OutboxRow(NamedTuple):
    """A row as the relay reads it. `global_seq` is 0 until it is promoted."""

    id: int
    event_id: str
    subject: str
    payload_json: str
    schema_version: int
    entity_type: str
    entity_id: str
    idempotency_key: str | None
    caused_by: str
    source: str
    occurred_at_ms: int
    trace_id: str
    span_id: str
    parent_span_id: str
    created_at_ms: int
    global_seq: int
    attempts: int
    last_error: str


class NewOutboxRow(NamedTuple):
    """A row as its producer writes it, in the order of its columns."""

    event_id: str
    subject: str
    payload_json: str
    schema_version: int
    entity_type: str
    entity_id: str
    idempotency_key: str | None
    caused_by: str
    source: str
    occurred_at_ms: int
    trace_id: str = ""
    span_id: str = ""
    parent_span_id: str = ""


class OutboxPlace(NamedTuple):
    """Where a row stands: on the journal (`global_seq` is 0 until then) and with the broker.

    `has_entry` says that the row made the entry there. A repeat has the `global_seq` REPEATED, and
    the id and the place of the first event in `repeat_of` and `repeat_of_seq`.
    """

    id: int
    event_id: str
    subject: str
    global_seq: int
    published_to_nats: bool
    last_error: str
    has_entry: bool = False
    repeat_of: str = ""
    repeat_of_seq: int = 0


class EntryOfId(NamedTuple):
    """The row that made an entry under an id."""

    event_id: str
    row_id: int
    subject: str
    payload_json: str
    global_seq: int


class EntryOfKey(NamedTuple):
    """The entry that a row made with a key of its subject."""

    subject: str
    idempotency_key: str
    event_id: str
    global_seq: int


class FailingRow(NamedTuple):
    """A row that the broker or the journal did not take, as it is told; without its payload."""

    id: int
    event_id: str
    subject: str
    created_at_ms: int
    global_seq: int
    attempts: int
    last_error: str


class RepeatedRow(NamedTuple):
    """A row that repeats an event, as it is told. It was not published, and never will be."""

    id: int
    event_id: str
    subject: str
    idempotency_key: str
    created_at_ms: int
    repeated_at_ms: int
    repeat_of: str
    repeat_of_seq: int


class RelayTerm(NamedTuple):
    """Who was elected last. `expires_at_ms` counts only where no session holds the lock."""

    relay: str
    term: int
    owner: str
    elected_at_ms: int
    expires_at_ms: int


def key_on_journal(subject: str, key: str) -> str:
    """The form in which a key of the outbox is on the journal."""
    return f"{OUTBOX_KEY_PREFIX}{subject}/{key}"


OUTBOX_IDS = Table("outbox_ids", EntryOfId, lambda row: row.event_id)
OUTBOX_KEYS = Table("outbox_keys", EntryOfKey, lambda row: (row.subject, row.idempotency_key))
OUTBOX = Table("outbox", OutboxPlace, lambda row: row.id)
RELAYS = Table("relays", RelayTerm, lambda row: row.relay)


class SkipOutboxRow:
    """Let what comes after a failing row pass; only for a row that has failed.

    The row counts as published from then on, with the reason. One that never became an event gets
    the place of the entry that tells of its skipping.
    """

    __slots__ = ("_by", "_event_id", "_reason", "_row_id", "weight")

    def __init__(self, row_id: int, reason: str, by: str, event_id: str, limits: Limits) -> None:
        self._row_id = row_id
        self._reason = check_name(reason, limits, field="reason", required=True)
        self._by = check_name(by, limits, field="by")
        self._event_id = event_id
        self.weight = 1024

    def needs(self) -> Iterable[Need]:
        yield Need(OUTBOX, self._row_id)

    def decide(self, state: State) -> Decision[OutboxPlace]:
        row = state.get(OUTBOX, self._row_id)
        if row is None:
            raise NotFound(f"the outbox has no row {self._row_id}")
        if row.published_to_nats:
            raise InvalidArgument(f"row {row.id} was already published or skipped", field="row_id")
        if row.repeat_of:
            raise InvalidArgument(
                f"row {row.id} is a repeat of the event {row.repeat_of}: it is not published and "
                "blocks no other row",
                field="row_id",
            )
        if not row.last_error:
            raise InvalidArgument(
                f"row {row.id} has not failed and will be published in its turn; only a row that "
                "failed can be skipped",
                field="row_id",
            )
        here = state.next_global_seq + len(state.entries)
        skipped = row._replace(
            global_seq=row.global_seq or here,
            published_to_nats=True,
            last_error=f"{SKIPPED}{self._reason}; was: {row.last_error}",
        )
        payload = {
            "row_id": row.id, "event_id": row.event_id, "subject": row.subject,
            "global_seq": row.global_seq, "reason": self._reason, "by": self._by,
            "error": row.last_error,
        }  # fmt: skip
        entry = EntryDraft(
            self._event_id,
            Kind.OUTBOX.value,
            outbox_skipped(row.subject, row.id),
            orjson.dumps(payload).decode(),
        )

        def reply(_place: EntryPlace) -> OutboxPlace:
            return skipped

        return Decision(reply, [entry], [save(OUTBOX, skipped)])
