"""Settings with their defaults. Nothing here reads a file or the environment."""

from dataclasses import dataclass, field

VERSION = "0.2.0"

DEFAULT_URL = "tape://127.0.0.1:7878"
DEFAULT_STORE = "sqlite:tape.db"

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True)
class Limits:
    """What a single request may contain. A larger one is refused and changes nothing.

    `message_bytes` limits the body of a message of a subscription.
    """

    payload_bytes: int = 1 * MIB
    json_depth: int = 64
    name_bytes: int = 512
    subject_bytes: int = 2 * KIB
    predicate_bytes: int = 4 * KIB
    request_events: int = 10_000
    request_bytes: int = 16 * MIB
    page_entries: int = 10_000
    page_bytes: int = 8 * MIB
    shards: int = 1_024
    claim_tasks: int = 1_000
    message_bytes: int = 1 * MIB

    @property
    def message_input_bytes(self) -> int:
        """The input of a run that a message becomes: its body, its headers, and their encoding."""
        return 2 * self.message_bytes


@dataclass(frozen=True, slots=True)
class WriterSettings:
    """How much the writer queues, and how much of it goes into one transaction."""

    queue_moves: int = 10_000
    queue_bytes: int = 64 * MIB
    queue_wait_s: float = 5.0
    batch_moves: int = 2_000
    batch_bytes: int = 4 * MIB
    retry_for_s: float = 15.0


@dataclass(frozen=True, slots=True)
class PostgresSettings:
    """Sessions and time-outs.

    `idle_in_transaction_s` and `transaction_s` limit how long a hung writer can delay others. If a
    commit was cut off, the store looks for it for `resolve_s` before its outcome is unknown.
    """

    idle_in_transaction_s: float = 3.0
    transaction_s: float = 10.0
    poll_s: float = 1.0
    connect_s: float = 10.0
    resolve_s: float = 30.0
    readers: int = 8
    workers: int = 4


@dataclass(frozen=True, slots=True)
class SqliteSettings:
    """`busy_s` is how long a write waits for another process that is writing."""

    busy_s: float = 10.0
    poll_s: float = 0.2
    readers: int = 4


@dataclass(frozen=True, slots=True)
class MatcherSettings:
    """If a matcher is silent for `ttl_s`, another takes over. Entries that match nothing are
    recorded as considered after `settle_s`.
    """

    ttl_s: float = 3.0
    settle_s: float = 0.05
    page_entries: int = 2_000
    step_tasks: int = 5_000
    expiry_s: float = 1.0


@dataclass(frozen=True, slots=True)
class DispatcherSettings:
    """What one dispatcher handles at a time. A reaction's own limits hold over all dispatchers.

    If a dispatcher is silent for `lease_s`, its tasks can be claimed again. A handler that runs for
    `stuck_s` is reported in the log. A stopping dispatcher lets handlers finish for `grace_s`.
    """

    lease_s: float = 60.0
    concurrency: int = 1_000
    threads: int = 32
    claim_most: int = 250
    grace_s: float = 30.0
    stuck_s: float = 300.0


@dataclass(frozen=True, slots=True)
class ReactorSettings:
    """If a reactor is silent for `lease_ttl_s`, its lease expires. It renews the lease every
    `heartbeat_s`; 0 means a third of the TTL.
    """

    lease_ttl_s: float = 30.0
    heartbeat_s: float = 0.0

    @property
    def heartbeat_every_s(self) -> float:
        return self.heartbeat_s or self.lease_ttl_s / 3


@dataclass(frozen=True, slots=True)
class ReactorsSettings:
    """The leases of each reactor, and the settings that all share.

    A reactor that lost a takeover pauses for `backoff_first_s`, then longer, at most
    `backoff_most_s`. `runs` is how many runs one worker drives at a time.
    """

    recovery: ReactorSettings = field(default_factory=ReactorSettings)
    reconciler: ReactorSettings = field(default_factory=ReactorSettings)
    compensation: ReactorSettings = field(default_factory=ReactorSettings)
    outbox: ReactorSettings = field(default_factory=ReactorSettings)
    agent: ReactorSettings = field(default_factory=ReactorSettings)
    backoff_first_s: float = 1.0
    backoff_most_s: float = 10.0
    poll_s: float = 1.0
    runs: int = 100
    threads: int = 32


@dataclass(frozen=True, slots=True)
class OutboxSettings:
    """The relay of the outbox. `nats` is where it publishes; empty means only to the journal.

    A relay that does not lead tries again after `lead_retry_s`. A leader that is silent for
    `hung_s` loses the lead. A leader whose broker has failed for `give_way_s` resigns. Published
    rows are kept for `keep_s`.
    """

    nats: str = ""
    batch: int = 100
    active_poll_s: float = 0.1
    idle_poll_s: float = 1.0
    lead_retry_s: float = 30.0
    hung_s: float = 10.0
    backoff_first_s: float = 1.0
    backoff_most_s: float = 30.0
    give_way_s: float = 300.0
    keep_s: float = 86_400.0
    lock_key: int = 0x0B05_0010_2026_0508


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """The JetStream stream of the outbox. Without subjects, the relay does not create it."""

    name: str = "tape-bus"
    subjects: tuple[str, ...] = ()
    max_age_s: float = 604_800.0
    max_bytes: int = 1024 * MIB
    duplicate_window_s: float = 120.0
    replicas: int = 1


@dataclass(frozen=True, slots=True)
class BrokersSettings:
    """`hosts` may get the logins of this process, at any address: HOST, HOST:PORT or *.DOMAIN.

    Without `allow_private`, targets of reactions at other hosts may not lead to loopback or private
    addresses. A server that other machines can reach always refuses these.
    """

    hosts: tuple[str, ...] = ()
    allow_private: bool = True


@dataclass(frozen=True, slots=True)
class CredentialSettings:
    """The wallet's credentials, by alias, with which this process logs in to brokers and signs
    webhooks. Where one is empty, the login comes from the environment.
    """

    nats: str = ""
    kafka: str = ""
    pubsub: str = ""
    webhook: str = ""


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """A durable consumer. A message that is not acknowledged within `ack_wait_s` is delivered
    again.
    """

    ack_wait_s: float = 30.0
    fetch: int = 100
    reconnect_first_s: float = 0.5
    reconnect_most_s: float = 30.0
    retry_first_s: float = 1.0
    retry_most_s: float = 30.0


@dataclass(frozen=True, slots=True)
class DrainerSettings:
    """If a drainer is silent for `lease_s`, another instance may take over. A server retries a
    halted drainer after `retry_s`, then twice as late each time, up to `retry_most_s`. `await_s` is
    how long one pass waits for a run.
    """

    lease_s: float = 30.0
    page: int = 100
    retry_s: float = 30.0
    retry_most_s: float = 600.0
    await_s: float = 30.0


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    """What this process does for declared subscriptions that it listens for.

    If a listener is silent for `lease_s`, another takes over. Every `look_s` a process looks for
    subscriptions that nobody listens for. A subscription has about `hand_bytes` of messages in hand
    at most. A listener that stops finishes what it has in hand, gives the rest back to its source
    and lets go, within `grace_s`, of which a third is kept for the latter.
    """

    lease_s: float = 15.0
    look_s: float = 1.0
    hand_bytes: int = 32 * MIB
    grace_s: float = 30.0


@dataclass(frozen=True, slots=True)
class PredicateSettings:
    """What all predicates of a process together may use.

    They are evaluated for `slice_s` at a time, then other work has a turn. Slow predicates get
    `share` of the time. A search ends its page after `request_s` of work. Reactions that take
    `page_s` more than the free time are matched separately.
    """

    slice_s: float = 0.002
    share: float = 0.1
    request_s: float = 1.0
    page_s: float = 0.1


@dataclass(frozen=True, slots=True)
class DoorSettings:
    """What clients may use of a server, over gRPC and HTTP.

    The head of a request must arrive within `header_s`, its body within `body_s` after that. A
    client that reads nothing for `write_s` is cut off. A gRPC connection without a call is closed
    after `idle_s`.

    `connections` may be open over HTTP: one more closes the one that has gone longest without a
    complete request. `requests` are answered at once there. `body_bytes` limits bodies that are
    being received, and `unread_bytes` answers that are not read; over gRPC both hold per client. A
    client, known by its token or else its address, may have `calls_per_client` calls and
    `streams_per_client` of all `streams`; each stream holds about `stream_bytes`.
    """

    header_s: float = 10.0
    body_s: float = 60.0
    write_s: float = 30.0
    idle_s: float = 300.0
    connections: int = 2_000
    requests: int = 500
    body_bytes: int = 128 * MIB
    unread_bytes: int = 128 * MIB
    calls_per_client: int = 4_096
    streams: int = 1_000
    streams_per_client: int = 256
    stream_bytes: int = 256 * KIB


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings with their defaults. `tape.yaml` has a section for each of these."""

    limits: Limits = field(default_factory=Limits)
    writer: WriterSettings = field(default_factory=WriterSettings)
    postgres: PostgresSettings = field(default_factory=PostgresSettings)
    sqlite: SqliteSettings = field(default_factory=SqliteSettings)
    matcher: MatcherSettings = field(default_factory=MatcherSettings)
    dispatcher: DispatcherSettings = field(default_factory=DispatcherSettings)
    reactors: ReactorsSettings = field(default_factory=ReactorsSettings)
    outbox: OutboxSettings = field(default_factory=OutboxSettings)
    stream: StreamSettings = field(default_factory=StreamSettings)
    brokers: BrokersSettings = field(default_factory=BrokersSettings)
    credentials: CredentialSettings = field(default_factory=CredentialSettings)
    consumers: ConsumerSettings = field(default_factory=ConsumerSettings)
    drainers: DrainerSettings = field(default_factory=DrainerSettings)
    listeners: ListenerSettings = field(default_factory=ListenerSettings)
    predicates: PredicateSettings = field(default_factory=PredicateSettings)
    doors: DoorSettings = field(default_factory=DoorSettings)
