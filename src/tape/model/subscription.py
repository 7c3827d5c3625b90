"""A declared subscription: its document, its state, and what its listeners have done.

A document is registered under `subscriptions/<name>`. Another text makes another revision; the same
one changes nothing. The state is a row and moves as an operator says:

    registered, deactivated ── activate ──► active ── pause ──► paused ── resume ──► active
    active, paused ── drain ──► draining ──► deactivated      (by itself, once nothing is in hand)
    active, paused, draining ── deactivate ──► deactivated

Every change of document or state is an entry of kind `subscription`.

One listener works for a subscription at a time, by a lease with a fencing token on the listener's
row (`model/hold.py`), which every message that it accepts is checked against.
"""

from enum import StrEnum
from typing import Final, NamedTuple

import orjson

from tape.model.digest import short_digest
from tape.model.move import Table

SOURCE_FIELDS: Final = (
    "source", "auth", "subscription", "stream", "consumer", "topic", "group", "folder", "pattern",
)  # fmt: skip
"""What a document says of its source, as `SourceSpec` has it."""
MESSAGE_USER: Final = "subscription"
"""The user of the runs that messages become; their session is the subscription."""


class SubscriptionState(StrEnum):
    REGISTERED = "registered"
    ACTIVE = "active"
    PAUSED = "paused"
    DRAINING = "draining"
    DEACTIVATED = "deactivated"


class SubscriptionVerb(StrEnum):
    ACTIVATE = "activate"
    PAUSE = "pause"
    RESUME = "resume"
    DRAIN = "drain"
    DEACTIVATE = "deactivate"


class Subscription(NamedTuple):
    """What its newest revision says of who listens when, and how it stands.

    `digest` is that of its document. `target` and `listener_pool` say who listens, `cadence` when a
    scheduled one fetches, and `gateway_path` is that of a push.
    """

    name: str
    path: str
    state: str
    revision: int
    digest: str
    source: str
    mode: str
    activation: str
    cadence: str
    gateway_path: str
    target: str
    listener_pool: str
    created_at_ms: int
    changed_at_ms: int


class SubscriptionRevision(NamedTuple):
    """`document_json` is what was registered, as canonical JSON."""

    name: str
    revision: int
    document_json: str
    created_at_ms: int


class GatewayPath(NamedTuple):
    """Whose a path of the gateway is."""

    gateway_path: str
    name: str


class Listener(NamedTuple):
    """The lease, and what was done under it and those before.

    `revision` is the one that its holder works by. Of the counts `fetched` and `rejected` may lag
    by seconds; the others are exact. `backlog` is -1 where the source does not say. `due_at_ms` is
    when a scheduled one fetches next, 0 if it is not known yet. `free_at_us` is when the next
    dispatch is allowed, where the rate is limited, and `throttled_at_ms` when that last held
    something up, 0 once it no longer does.

    Its row stands a little longer than that of a deleted subscription: until everything of it is
    gone.
    """

    name: str
    lease_owner: str = ""
    lease_expires_at_ms: int = 0
    fencing_token: int = 0
    revision: int = 0
    fetched: int = 0
    redelivered: int = 0
    accepted: int = 0
    deduplicated: int = 0
    dead_lettered: int = 0
    rejected: int = 0
    spooled: int = 0
    replayed: int = 0
    in_flight: int = 0
    backlog: int = -1
    last_accepted_at_ms: int = 0
    last_error: str = ""
    due_at_ms: int = 0
    free_at_us: int = 0
    throttled_at_ms: int = 0


class AcceptedPlace(NamedTuple):
    """The run that the message of a place became, empty for a dead letter. It stands until the
    source can no longer deliver the message again. `number` is its position at a source that
    counts, else -1; then the place is the origin, a slash and the number."""

    subscription: str
    place: str
    run_id: str
    number: int
    accepted_at_ms: int


class PassedPosition(NamedTuple):
    """The position of an origin up to which its source delivers nothing again, as a listener has
    reported it; -1 is before all.

    `reader` is whose position it is (`reader_of`): it says nothing of what another consumer or
    group of the same stream or topic is given.
    """

    subscription: str
    origin: str
    reader: str
    position: int
    reported_at_ms: int


class SeenKey(NamedTuple):
    """A key of the window of repeats, and the run that its first message became. The window is the
    one that was declared when the key was seen, or a shorter one that is declared since.

    `rule` stands for how the key was found: what two rules find in messages may be equal by chance,
    as the number of an order and that of a customer. It is empty where whoever asks gives the key.
    """

    subscription: str
    rule: str
    key: str
    run_id: str
    place: str
    seen_at_ms: int
    until_ms: int


class SubscriptionDeadLetter(NamedTuple):
    """A message that could not be accepted, whole. `reason` is not_json, too_deep, too_large,
    number_too_large, altered, replay_failed, expired or spool_full. `headers_json` is a list of
    pairs of a name and a base64 value, `body` is base64."""

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
    body: str


def reader_of(document_json: str) -> str:
    """What a document reads, and as whom. Two that differ in it may be given the same messages."""
    spec = orjson.loads(document_json)["spec"]
    return short_digest([spec.get(field) for field in SOURCE_FIELDS])


SUBSCRIPTIONS = Table("subscriptions", Subscription, lambda row: row.name)
SUBSCRIPTION_REVISIONS = Table(
    "subscription_revisions", SubscriptionRevision, lambda row: (row.name, row.revision),
    parent=SUBSCRIPTIONS,
)  # fmt: skip
GATEWAY_PATHS = Table("gateway_paths", GatewayPath, lambda row: row.gateway_path)
LISTENERS = Table("listeners", Listener, lambda row: row.name)
ACCEPTED_PLACES = Table("accepted_places", AcceptedPlace, lambda row: (row.subscription, row.place))
PASSED_POSITIONS = Table(
    "passed_positions", PassedPosition, lambda row: (row.subscription, row.origin)
)
SEEN_KEYS = Table("seen_keys", SeenKey, lambda row: (row.subscription, row.rule, row.key))
SUBSCRIPTION_DEAD_LETTERS = Table(
    "subscription_dead_letters", SubscriptionDeadLetter,
    lambda row: (row.subscription, row.letter_id),
)  # fmt: skip
