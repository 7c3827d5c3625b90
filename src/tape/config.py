"""Settings with their defaults. Nothing here reads a file or the environment."""

from dataclasses import dataclass, field

VERSION = "0.2.0"

DEFAULT_URL = "tape://127.0.0.1:7878"
DEFAULT_STORE = "sqlite:tape.db"

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True)
class Limits:
    """What a single request may hold. Larger ones are refused and change nothing."""

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


@dataclass(frozen=True, slots=True)
class WriterSettings:
    """How much the writer holds and how much of it goes into one transaction."""

    queue_moves: int = 10_000
    queue_bytes: int = 64 * MIB
    queue_wait_s: float = 5.0
    batch_moves: int = 2_000
    batch_bytes: int = 4 * MIB
    retry_for_s: float = 15.0


@dataclass(frozen=True, slots=True)
class PostgresSettings:
    """Sessions and time-outs. The first two bound how long a hung writer can hold others up;
    `resolve_s` is how long a commit cut off in mid-flight is looked for before it is unknown.
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
    """`ttl_s` is how long a matcher that is not heard of keeps others from taking over; entries
    that match nothing are noted as considered after `settle_s`.
    """

    ttl_s: float = 3.0
    settle_s: float = 0.05
    page_entries: int = 2_000
    step_tasks: int = 5_000
    expiry_s: float = 1.0


@dataclass(frozen=True, slots=True)
class DispatcherSettings:
    """What one dispatcher holds at a time. A reaction's own limits hold over all dispatchers.

    `lease_s` is how long a task stays with a dispatcher that is not heard of; what runs for
    `stuck_s` is warned of; `grace_s` is how long a stopping dispatcher lets handlers finish.
    """

    lease_s: float = 60.0
    concurrency: int = 1_000
    threads: int = 32
    claim_most: int = 250
    grace_s: float = 30.0
    stuck_s: float = 300.0


@dataclass(frozen=True, slots=True)
class ReactorSettings:
    """`lease_ttl_s` is how long a lease stays with a reactor that is not heard of; `heartbeat_s` is
    how often it is renewed, 0 is a third of the TTL.
    """

    lease_ttl_s: float = 30.0
    heartbeat_s: float = 0.0

    @property
    def heartbeat_every_s(self) -> float:
        return self.heartbeat_s or self.lease_ttl_s / 3


@dataclass(frozen=True, slots=True)
class ReactorsSettings:
    """The leases of each reactor, and what all share: who lost a takeover pauses for
    `backoff_first_s`, then longer, at most `backoff_most_s`; `runs` is how many one worker drives
    at a time.
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
    """The relay of the outbox. `nats` is where it publishes, empty for the journal alone.

    Who does not lead tries again after `lead_retry_s`; a leader that is not heard of for `hung_s`
    loses the lead; one whose broker has failed for `give_way_s` lets another try. Published rows
    are kept for `keep_s`.
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
    """The JetStream stream of the outbox. Without subjects it is left to others to make one."""

    name: str = "tape-bus"
    subjects: tuple[str, ...] = ()
    max_age_s: float = 604_800.0
    max_bytes: int = 1024 * MIB
    duplicate_window_s: float = 120.0
    replicas: int = 1


@dataclass(frozen=True, slots=True)
class BrokersSettings:
    """`hosts` may be given the logins of this process, and may be anywhere: HOST, HOST:PORT or
    *.DOMAIN. Without `allow_private` no other target of a reaction leads to a loopback or private
    address, which is so anyway at a server that others can reach."""

    hosts: tuple[str, ...] = ()
    allow_private: bool = True


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """A durable consumer. What is not acknowledged within `ack_wait_s` is delivered again."""

    ack_wait_s: float = 30.0
    fetch: int = 100
    reconnect_first_s: float = 0.5
    reconnect_most_s: float = 30.0
    retry_first_s: float = 1.0
    retry_most_s: float = 30.0


@dataclass(frozen=True, slots=True)
class DrainerSettings:
    """`lease_s` is how long a drainer that is not heard of keeps others out; `retry_s` is when a
    server tries a halted one again by itself, twice as late each time up to `retry_most_s`;
    `await_s` is how long one pass waits for a run.
    """

    lease_s: float = 30.0
    page: int = 100
    retry_s: float = 30.0
    retry_most_s: float = 600.0
    await_s: float = 30.0


@dataclass(frozen=True, slots=True)
class PredicateSettings:
    """What predicates may take of a process, all of them together.

    They are evaluated for `slice_s` at a time, then others have a turn. What takes long gets
    `share` of the time. A request that looks for entries ends its page after `request_s` of it;
    reactions that take `page_s` more than is free are matched apart from the others.
    """

    slice_s: float = 0.002
    share: float = 0.1
    request_s: float = 1.0
    page_s: float = 0.1


@dataclass(frozen=True, slots=True)
class DoorSettings:
    """What clients may take of a server's doors.

    The head of a request is there within `header_s`, its body `body_s` later; a reader that takes
    nothing for `write_s` is cut off; a gRPC connection without a call is closed after `idle_s`.

    `connections` may be open on the HTTP door: one more closes the oldest that has no whole
    request. `requests` are answered at once there, `body_bytes` of bodies are held while they
    come, and `unread_bytes` of answers while nobody takes them; over gRPC that many of each client
    of both. A client, known by its token or else its address, has `calls_per_client` and
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
    consumers: ConsumerSettings = field(default_factory=ConsumerSettings)
    drainers: DrainerSettings = field(default_factory=DrainerSettings)
    predicates: PredicateSettings = field(default_factory=PredicateSettings)
    doors: DoorSettings = field(default_factory=DoorSettings)
