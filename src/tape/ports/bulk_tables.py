"""The tables beside the journal as a bulk reader names them, with the columns of their rows."""

from typing import Any, Final, NamedTuple

from tape.model.budget import BudgetRow
from tape.model.bulk_write import BulkWrite, WriteList
from tape.model.credential import Credential
from tape.model.decision import DecisionPlace
from tape.model.drainer import Drainer
from tape.model.effect import BusinessKey, Effect
from tape.model.event_subscription import EventSubscription
from tape.model.gate import Gate
from tape.model.obligation import Obligation
from tape.model.outbox import RelayTerm
from tape.model.reaction import Book, Reaction, ReactionCursor, Tally
from tape.model.run import Run
from tape.model.session import Session, StoredEvent
from tape.model.subscription import (
    AcceptedPlace,
    GatewayPath,
    Listener,
    PassedPosition,
    SeenKey,
    Subscription,
    SubscriptionRevision,
)
from tape.model.timer import Timer
from tape.model.value import Value


class TaskRow(NamedTuple):
    """A task, queued or ended; what is of its entry is blank where that is gone."""

    task_id: str
    reaction_id: str
    shard: int
    source_run_id: str
    source_global_seq: int
    subject: str
    status: int
    attempts: int
    next_attempt_at_ms: int
    lease_owner: str
    lease_expires_at_ms: int
    last_error: str
    created_at_ms: int
    completed_at_ms: int
    trace_id: str
    span_id: str


class MatcherRow(NamedTuple):
    """Whose the right to match is, and how far the journal has been considered."""

    name: str
    owner: str
    fencing_token: int
    expires_at_ms: int
    position: int


class QueuedTaskRow(NamedTuple):
    """A task that is queued, with the columns that an ended one does not have."""

    reaction_id: str
    shard: int
    source_global_seq: int
    status: int
    next_attempt_at_ms: int
    lease_owner: str
    lease_expires_at_ms: int
    claimed_at_ms: int
    debounce_key: str
    debounce_until_ms: int


class StagedChunkRow(NamedTuple):
    """A chunk that was staged for a write in bulk, without its body."""

    write_id: str
    epoch: int
    part: str
    number: int
    rows: int
    staged_at_ms: int


class CredentialVersionRow(NamedTuple):
    """A version of a credential, without what is sealed."""

    alias: str
    version: int
    form: str
    key_id: str
    wrapped_at_ms: int


class DeadLetterRow(NamedTuple):
    """A dead letter of a subscription, without the body of its message."""

    subscription: str
    letter_id: str
    place: str
    message_id: str
    reason: str
    detail: str
    attempts: int
    at_ms: int
    source: str
    origin: str
    position: str
    key: str
    timestamp_ms: int
    source_subject: str
    headers_json: str


class RetentionRow(NamedTuple):
    """Up to where the journal was pruned."""

    name: str
    pruned_through: int


class OutboxTableRow(NamedTuple):
    """A row of the outbox with all of its columns; an idempotency key of NULL is blank."""

    id: int
    event_id: str
    subject: str
    payload_json: str
    schema_version: int
    entity_type: str
    entity_id: str
    idempotency_key: str
    caused_by: str
    source: str
    occurred_at_ms: int
    trace_id: str
    span_id: str
    parent_span_id: str
    created_at_ms: int
    global_seq: int
    published_to_nats: bool
    published_at_ms: int
    published_term: int
    attempts: int
    last_error: str
    has_entry: bool
    repeat_of: str
    repeat_of_seq: int
    repeated_at_ms: int


class ProcessedRow(NamedTuple):
    """A message that a consumer has handled."""

    consumer: str
    message_id: str
    processed_at_ms: int


class SequenceRow(NamedTuple):
    """The last number that was given out: to an entry (`journal`) or to a row of the outbox."""

    name: str
    last: int


SIDE_TABLES: Final[dict[str, type[tuple[Any, ...]]]] = {
    "runs": Run,
    "effects": Effect,
    "obligations": Obligation,
    "gates": Gate,
    "timers": Timer,
    "budgets": BudgetRow,
    "values": Value,
    "decisions": DecisionPlace,
    "reactions": Reaction,
    "reaction_cursors": ReactionCursor,
    "reaction_tallies": Tally,
    "tasks": TaskRow,
    "sessions": Session,
    "matcher": MatcherRow,
    "event_drain_state": Drainer,
    "event_subscriptions": EventSubscription,
    "business_keys": BusinessKey,
    "session_events": StoredEvent,
    "reaction_book": Book,
    "task_queue": QueuedTaskRow,
    "writes": BulkWrite,
    "write_lists": WriteList,
    "write_chunks": StagedChunkRow,
    "retention": RetentionRow,
    "relays": RelayTerm,
    "outbox": OutboxTableRow,
    "processed": ProcessedRow,
    "sequences": SequenceRow,
    "credentials": Credential,
    "credential_versions": CredentialVersionRow,
    "subscriptions": Subscription,
    "subscription_revisions": SubscriptionRevision,
    "gateway_paths": GatewayPath,
    "accepted_places": AcceptedPlace,
    "passed_positions": PassedPosition,
    "seen_keys": SeenKey,
    "subscription_dead_letters": DeadLetterRow,
    "listeners": Listener,
}
