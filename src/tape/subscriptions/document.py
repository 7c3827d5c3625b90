"""The document of `kind: Subscription` as types: which keys stand where, what each means, what it
may be and what it is by default.

`document_keys.py` says which keys go together, `document_rules.py` what else has to hold. The JSON
schema is made of all three.
"""

from typing import Annotated, Final, Literal

from pydantic import ConfigDict

from tape.model.subscription_spec import (
    SUBSCRIPTION_POOL,
    PayloadFrom,
    RuntimeSpec,
    SourceKind,
)
from tape.subscriptions.document_block import DocumentBlock, means
from tape.subscriptions.document_fields import (
    DAY_S,
    Between,
    CatalogPath,
    CronText,
    FilePattern,
    KafkaTopic,
    KeyText,
    NatsName,
    PubSubSubscription,
    ServerUrl,
    SubscriptionName,
    Text,
    Word,
)
from tape.subscriptions.document_headers import HeadersBlock
from tape.subscriptions.document_ingress import IngressBlock
from tape.subscriptions.document_keys import (
    ACTIVATION_KEYS,
    MODE_KEYS,
    PUSHED,
    SOURCE_KEYS,
    conditions,
)
from tape.subscriptions.document_spool import SpoolBlock

_RUNTIME: Final = RuntimeSpec()


class MetadataBlock(DocumentBlock):
    """How the subscription is named."""

    name: SubscriptionName = means("The name of the subscription.")
    path: CatalogPath = means("subscriptions/ and the name; registering it again is by this path.")


class RuntimeBlock(DocumentBlock):
    """Who listens, and how much it takes at once."""

    target: Literal["dedicated-pool", "cloud-run", "local"] = means(
        "Where the listener runs. A server leaves those of cloud-run to others.", _RUNTIME.target
    )
    pool: Text | None = means("The pool of listeners that work for it; any if left out.", None)
    batch: Annotated[int, Between(1, 10_000)] = means(
        "The most messages that one fetch returns.", _RUNTIME.batch
    )
    timeout_ms: Annotated[int, Between(1, 60_000)] | None = means(
        "How long a fetch waits for messages. By default 2000, at most 5000; for pubsub by default "
        "10000, at most 60000.",
        None,
    )
    max_in_flight: Annotated[int, Between(1, 100_000)] = means(
        "The most messages that are fetched and not yet accepted.", _RUNTIME.max_in_flight
    )
    server_url: ServerUrl | None = means(
        "The server that a listener outside works for; no login is part of it.", None
    )
    concurrency: Annotated[int, Between(1, 10_000)] | None = means(
        "The most messages that one process has in hand, as an instance of cloud-run does.", None
    )
    max_instances: Annotated[int, Between(1, 10_000)] | None = means(
        "The most instances of cloud-run; kept for whoever deploys it.", None
    )


class DispatchBlock(DocumentBlock):
    """What becomes of a message, unless an allowed header says otherwise."""

    playbook: Text = means("The app that runs for each message.")
    payload_from: Annotated[PayloadFrom, Word] = means(
        "What of a message is the payload: its body as text, its body as JSON, or its attributes.",
        PayloadFrom.JSON,
    )
    execution_pool: Text = means("The pool whose workers run it.", SUBSCRIPTION_POOL)
    batch_dispatch: bool = means(
        "Whether batch_max bounds how many of the messages that wait become runs in one turn; "
        "without it 500 do at most, and 4 MiB in either case.",
        default=False,
    )
    batch_max: Annotated[int, Between(1, 1_000)] = means(
        "With batch_dispatch, the most messages of one turn; above 500 it is as 500.", 100
    )


class DedupBlock(DocumentBlock):
    """Messages with the same key become one run."""

    window_secs: Annotated[int, Between(1, 31 * DAY_S)] = means("For how long a key counts.")
    key: KeyText = means(
        "idempotency_key (that of a header, else the message's id), a field of the JSON body, or "
        "CEL over payload and message.",
        "idempotency_key",
    )


class LimitsBlock(DocumentBlock):
    """How much is taken."""

    max_in_flight: Annotated[int, Between(1, 100_000)] | None = means(
        "As that of runtime; the smaller one holds.", None
    )
    max_dispatch_per_sec: Annotated[float, Between(0.001, 100_000)] | None = means(
        "The most messages that are dispatched per second; no limit if left out.", None
    )


class KedaBlock(DocumentBlock):
    """What KEDA should scale by."""

    trigger: Text = means("The kind of trigger, such as pubsub.")
    min: Annotated[int, Between(0, 10_000)] | None = means("The fewest listeners.", None)
    max: Annotated[int, Between(1, 10_000)] | None = means("The most listeners.", None)
    lag_threshold: Annotated[int, Between(1, 1_000_000_000)] | None = means(
        "Waiting messages per listener.", None
    )


class ScalingBlock(DocumentBlock):
    """What scales the listeners. It is kept, shown and exported as metrics; nothing acts on it."""

    keda: KedaBlock = means("What KEDA should scale by.")


class SubscriptionBlock(DocumentBlock):
    """What the subscription does."""

    model_config = ConfigDict(
        json_schema_extra={
            "allOf": [
                *conditions("source mode", SOURCE_KEYS)["allOf"],
                *conditions("mode", MODE_KEYS)["allOf"],
                *conditions("activation", ACTIVATION_KEYS)["allOf"],
                PUSHED,
            ]
        }
    )

    source: Annotated[SourceKind, Word] = means("The system that the messages come from.")
    mode: Literal["pull", "push"] = means("Whether messages are fetched, or delivered to us.")
    activation: Literal["continuous", "scheduled"] | None = means(
        "Whether a listener fetches all the time, or by a cadence.", None
    )
    cadence: CronText | None = means(
        "When a scheduled one fetches: minute, hour, day of month, month, day of week, in UTC.",
        None,
    )
    auth: Text | None = means(
        "The alias of the source's credential in the wallet. There is no default.", None
    )
    subscription: PubSubSubscription | None = means("The Pub/Sub subscription.", None)
    stream: NatsName | None = means("The JetStream stream.", None)
    consumer: NatsName | None = means(
        "The durable consumer of the stream. It has to be there already.", None
    )
    topic: KafkaTopic | None = means("The Kafka topic.", None)
    group: Text | None = means("The consumer group.", None)
    folder: Text | None = means("The folder whose files are read, a message per line.", None)
    pattern: FilePattern | None = means("Which files of the folder, such as *.jsonl.", None)
    runtime: RuntimeBlock = means("Who listens.", default_factory=RuntimeBlock)
    dispatch: DispatchBlock = means("What becomes of a message.")
    headers: HeadersBlock | None = means("Which headers decide something; none if left out.", None)
    ingress: IngressBlock | None = means("Where deliveries come in.", None)
    spool: SpoolBlock | None = means("Where messages are kept; nowhere if left out.", None)
    dedup: DedupBlock | None = means("Which messages become one run; none if left out.", None)
    limits: LimitsBlock | None = means("How much is taken.", None)
    scaling: ScalingBlock | None = means("What scales the listeners.", None)


class SubscriptionDocument(DocumentBlock):
    """A declared subscription: take the messages of a source, and make one run of each."""

    api_version: Literal["noetl.io/v1", "tape/v1"] = means(
        "The version of this form.", alias="apiVersion"
    )
    kind: Literal["Subscription"] = means("The kind of document.")
    metadata: MetadataBlock = means("How the subscription is named.")
    spec: SubscriptionBlock = means("What the subscription does.")
