"""What a document of `kind: Subscription` says, read and checked, with every default filled in.

`subscriptions/spec.py` makes a `SubscriptionSpec` of a document and refuses what is wrong with it;
everything else reads these rows. Names are those of the document, but for `app`, which a document
calls `playbook`.
"""

from enum import StrEnum
from typing import Final, Literal, NamedTuple

SUBSCRIPTION_POOL: Final = "subscription"
"""Where the runs of a subscription go unless it says otherwise."""


class SourceKind(StrEnum):
    NATS = "nats"
    KAFKA = "kafka"
    PUBSUB = "pubsub"
    FILE = "file"
    WEBHOOK = "webhook"


TIMEOUT_MS: Final = {SourceKind.PUBSUB: 10_000}
"""Where that of `RuntimeSpec` is too short: a pull of Pub/Sub may take so long to answer."""
MOST_TIMEOUT_MS: Final = {SourceKind.PUBSUB: 60_000}
OTHER_TIMEOUT_MS: Final = 5_000


_SEGMENT: Final = r"(?!\.\.?(?:/|$))(?:\*\*|(?:[^/*]|\*(?!\*))+)"
FILE_PATTERN: Final = rf"{_SEGMENT}(?:/{_SEGMENT})*"
"""Which files of a folder. What it does not match leads out of the folder, or Python 3.11 cannot
look for it."""
FILE_PATTERN_FORM: Final = (
    "a pattern of files in the folder, such as *.jsonl or orders/**/*.txt: with neither .. nor a "
    "leading /, and ** only as a whole folder"
)


class Control(StrEnum):
    """What a header may decide."""

    PLAYBOOK = "dispatch.playbook"
    EXECUTION_POOL = "dispatch.execution_pool"
    PRIORITY = "priority"
    IDEMPOTENCY_KEY = "idempotency_key"
    CONTENT_TYPE = "content_type"
    SCHEMA_HINT = "schema_hint"


class PayloadFrom(StrEnum):
    BODY = "message.body"
    JSON = "message.json"
    ATTRIBUTES = "message.attributes"


class SourceSpec(NamedTuple):
    """Where messages are fetched from. Each kind uses its own fields; the others are empty.

    `auth` is the alias of a credential. `subscription` belongs to Pub/Sub, `stream` and `consumer`
    to NATS, `topic` and `group` to Kafka, `folder` and `pattern` to files.
    """

    kind: SourceKind
    auth: str = ""
    subscription: str = ""
    stream: str = ""
    consumer: str = ""
    topic: str = ""
    group: str = ""
    folder: str = ""
    pattern: str = ""


class RuntimeSpec(NamedTuple):
    """Who listens, and how much it takes at once. `pool` is the pool of listeners."""

    target: Literal["dedicated-pool", "cloud-run", "local"] = "dedicated-pool"
    pool: str = ""
    batch: int = 100
    timeout_ms: int = 2_000
    max_in_flight: int = 1_000
    server_url: str = ""
    concurrency: int = 0
    max_instances: int = 0


class DispatchSpec(NamedTuple):
    """What a message becomes where no header says otherwise. 0 of `batch_max` is never."""

    app: str
    payload_from: PayloadFrom = PayloadFrom.JSON
    execution_pool: str = SUBSCRIPTION_POOL
    batch_dispatch: bool = False
    batch_max: int = 100


class DirectiveSpec(NamedTuple):
    """A header that may decide something. `header` is in lower case.

    `allowed` are the values that count, empty for any; `pools` maps values to pools for `priority`.
    """

    header: str
    controls: Control
    allowed: tuple[str, ...] = ()
    pools: tuple[tuple[str, str], ...] = ()


class HeaderSpec(NamedTuple):
    """`directives` is the whole list of headers that decide anything. All others are data."""

    normalize: bool = True
    directives: tuple[DirectiveSpec, ...] = ()
    propagates_trace: bool = False
    baggage_allowlist: tuple[str, ...] = ()


class DedupSpec(NamedTuple):
    """`key` is `idempotency_key`, the name of a field of the JSON body, or CEL."""

    window_secs: int
    key: str = "idempotency_key"


class VerifyType(StrEnum):
    """How deliveries are verified. There is no type for none."""

    HMAC_SHA256 = "hmac_sha256"
    BEARER = "bearer"
    PUBSUB_OIDC = "pubsub_oidc"
    HMAC = "hmac"
    TWILIO = "twilio"
    API_KEY = "api_key"
    BASIC = "basic"
    JWT = "jwt"
    AWS_SNS = "aws_sns"


class SignatureScheme(StrEnum):
    """Whose signatures `hmac_sha256` verifies; `raw` is the body alone, in hex."""

    RAW = "raw"
    GITHUB = "github"
    STRIPE = "stripe"
    SLACK = "slack"
    SHOPIFY = "shopify"
    STANDARD = "standard"
    SVIX = "svix"


class HmacTemplate(NamedTuple):
    """What a signature of type `hmac` is made of, and how it is written.

    `parts` is a text in which {id}, {timestamp}, {url} and {body} stand for those of the delivery:
    the id is in `message_id_header` of the ingress, the time is in `timestamp_header`, the URL is
    `public_url`. `prefix` stands before the signature in its header.
    """

    parts: str = "{body}"
    algorithm: Literal["sha1", "sha256", "sha512"] = "sha256"
    encoding: Literal["hex", "base64", "base64url"] = "hex"
    prefix: str = ""
    secret_encoding: Literal["text", "base64"] = "text"  # noqa: S105 - how it is written
    timestamp_header: str = ""


class VerifySpec(NamedTuple):
    """How a delivery proves who sent it. What a type does not use is empty.

    `secret` is the alias of a credential. `header` is in lower case. `scheme` belongs to
    `hmac_sha256`, `template` to `hmac`. `tolerance_secs` is how far the time of a signature may be
    off, either way.
    """

    type: VerifyType
    header: str = ""
    secret: str = ""
    scheme: SignatureScheme = SignatureScheme.RAW
    template: HmacTemplate = HmacTemplate()
    tolerance_secs: int = 300
    audience: str = ""
    service_account: str = ""
    public_url: str = ""
    jwks_url: str = ""
    issuer: str = ""
    topic_arns: tuple[str, ...] = ()
    confirm: bool = False


class IngressSpec(NamedTuple):
    """Where the id of a delivery is, if its scheme does not say: in the header `message_id_header`,
    in lower case, or what the CEL of `message_id_cel` gives; one of them, or neither.

    `ordering_key` is the name of a field of the JSON body or CEL, empty for no order.
    """

    gateway_path: str
    verify: VerifySpec
    message_id_header: str = ""
    message_id_cel: str = ""
    ordering_key: str = ""


class CircuitSpec(NamedTuple):
    trip_after: int = 5
    probe_after_ms: int = 30_000


class DownstreamSpec(NamedTuple):
    """`probe` is `http URL`, `tcp HOST:PORT` or `nats URL`; empty for none."""

    name: str
    probe: str = ""


class RetentionSpec(NamedTuple):
    max_age_hours: int = 72
    max_bytes: int = 10 * 1024**3
    on_full: Literal["stop_acking", "drop_to_dlq", "alert_only"] = "stop_acking"


class DrainSpec(NamedTuple):
    on_recovery: Literal["ordered_then_live", "interleave"] = "ordered_then_live"
    rate_per_sec: float = 200.0
    max_replay_attempts: int = 10


class SpoolSpec(NamedTuple):
    """`hybrid_after_ms` of 0 asks the source for half of its retention."""

    mode: Literal["off", "buffer_and_ack", "hybrid"]
    backend: str = ""
    bucket: str = ""
    auth: str = ""
    circuit: CircuitSpec = CircuitSpec()
    downstreams: tuple[DownstreamSpec, ...] = ()
    ordering: Literal["global", "per_key", "none"] = "per_key"
    ordering_key: str = ""
    retention: RetentionSpec = RetentionSpec()
    drain: DrainSpec = DrainSpec()
    hybrid_after_ms: int = 0


class KedaSpec(NamedTuple):
    """What an operator of KEDA should scale by. Nothing here scales; it is shown, and exported as
    metrics. 0 is not said."""

    trigger: str
    min_replicas: int = 0
    max_replicas: int = 0
    lag_threshold: int = 0


class SubscriptionSpec(NamedTuple):
    """`activation` and `cadence` belong to pull, `ingress` to push. `dispatch_per_sec` of 0 is no
    limit."""

    name: str
    path: str
    mode: Literal["pull", "push"]
    source: SourceSpec
    dispatch: DispatchSpec
    activation: Literal["", "continuous", "scheduled"] = ""
    cadence: str = ""
    runtime: RuntimeSpec = RuntimeSpec()
    headers: HeaderSpec | None = None
    ingress: IngressSpec | None = None
    spool: SpoolSpec | None = None
    dedup: DedupSpec | None = None
    max_in_flight: int = 1_000
    """In one process: the smallest of what `runtime` and `limits` say, `concurrency` included."""
    dispatch_per_sec: float = 0.0
    keda: KedaSpec | None = None
