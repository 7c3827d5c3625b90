"""An outbox row: an event that a program wrote in its own transaction.

The row names a *bus subject* (`market.klines.binance.spot.btcusdt.1m`): tokens of lower-case
letters, digits, `-` and `_`, with dots between. On the journal it is the event's type. `event_id`
is drawn by the producer and is the message's id at the broker, however often it is sent; where the
row's idempotency key was used before, promotion replaces it with the id of the first event.
"""

from typing import NamedTuple

from tape.model.move import Table

NATS_RELAY = "nats"
"""The relay that promotes and publishes; the lock of the seed is its lock."""
JOURNAL_RELAY = "journal"
"""The relay of a server without a broker: it promotes and leaves publishing to others."""


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
    """Where a row stands: on the journal (`global_seq` is 0 until then) and with the broker."""

    id: int
    event_id: str
    subject: str
    global_seq: int
    published_to_nats: bool
    last_error: str


class FailingRow(NamedTuple):
    """A row that the broker or the journal did not take, as it is told; without its payload."""

    id: int
    event_id: str
    subject: str
    created_at_ms: int
    global_seq: int
    attempts: int
    last_error: str


class RelayTerm(NamedTuple):
    """Who was elected last. `expires_at_ms` counts only where no session holds the lock."""

    relay: str
    term: int
    owner: str
    elected_at_ms: int
    expires_at_ms: int


OUTBOX = Table("outbox", OutboxPlace, lambda row: row.id)
RELAYS = Table("relays", RelayTerm, lambda row: row.relay)
