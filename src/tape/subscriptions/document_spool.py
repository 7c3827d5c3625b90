"""The block `spec.spool`: where messages are kept while a downstream is away."""

from typing import Annotated, Final, Literal

from pydantic import ConfigDict

from tape.model.subscription_spec import CircuitSpec, DrainSpec, RetentionSpec
from tape.subscriptions.document_block import DocumentBlock, means
from tape.subscriptions.document_fields import (
    HOUR_MS,
    Between,
    HttpUrl,
    KeyText,
    NatsUrl,
    Size,
    TcpAddress,
    Text,
)
from tape.subscriptions.document_keys import SPOOL_CONDITIONS

_CIRCUIT: Final = CircuitSpec()
_RETENTION: Final = RetentionSpec()
_DRAIN: Final = DrainSpec()


class CircuitBlock(DocumentBlock):
    """When messages are no longer dispatched."""

    trip_after: Annotated[int, Between(1, 1_000)] = means(
        "Failures of a downstream in a row after which its circuit opens.", _CIRCUIT.trip_after
    )
    probe_after_ms: Annotated[int, Between(100, 24 * HOUR_MS)] = means(
        "How long an open circuit waits before it tries again.", _CIRCUIT.probe_after_ms
    )


class ProbeBlock(DocumentBlock):
    """How to find out that a downstream is there again: one of the three."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    http: HttpUrl | None = means("A URL that answers 2xx.", None)
    tcp: TcpAddress | None = means("An address that accepts connections.", None)
    nats: NatsUrl | None = means("A NATS server that answers.", None)


class DownstreamBlock(DocumentBlock):
    """Something that the app needs."""

    name: Text = means("What the app calls it in tape.DownstreamUnavailable.")
    probe: ProbeBlock | None = means(
        "How to find out that it is there again; by default the oldest waiting run is tried.", None
    )


class RetentionBlock(DocumentBlock):
    """How long and how much is kept."""

    max_age_hours: Annotated[int, Between(1, 24 * 366)] = means(
        "How old a kept message may get.", _RETENTION.max_age_hours
    )
    max_bytes: Size = means(
        "How much is kept: bytes, or with Ki, Mi, Gi or Ti.", _RETENTION.max_bytes
    )
    on_full: Literal["stop_acking", "drop_to_dlq", "alert_only"] = means(
        "What happens beyond that.", _RETENTION.on_full
    )


class DrainBlock(DocumentBlock):
    """How kept messages are dispatched once the downstream is there again."""

    on_recovery: Literal["ordered_then_live", "interleave"] = means(
        "Whether new messages wait for the kept ones. interleave cannot keep a global order.",
        _DRAIN.on_recovery,
    )
    rate_per_sec: Annotated[float, Between(0.001, 100_000)] = means(
        "The most that are dispatched per second.", _DRAIN.rate_per_sec
    )
    max_replay_attempts: Annotated[int, Between(1, 1_000)] = means(
        "Failed dispatches after which a message is a dead letter.", _DRAIN.max_replay_attempts
    )


class HybridBlock(DocumentBlock):
    """When hybrid begins to keep messages."""

    after_ms: Annotated[int, Between(1, 24 * 366 * HOUR_MS)] = means(
        "How long messages are left at the source; by default half of what it keeps them, or ten "
        "minutes if it does not say."
    )


class SpoolBlock(DocumentBlock):
    """Where messages are kept while a downstream is away."""

    model_config = ConfigDict(json_schema_extra={"allOf": [*SPOOL_CONDITIONS]})

    mode: Literal["off", "buffer_and_ack", "hybrid"] | None = means(
        "off leaves messages at the source, buffer_and_ack keeps them, hybrid does one after the "
        "other. By default off for pull, buffer_and_ack for push.",
        None,
    )
    backend: Literal["gcs", "s3", "nats_object", "local_disk"] | None = means(
        "What keeps them; needed unless the mode is off.", None
    )
    bucket: Text | None = means(
        "gs://BUCKET/PREFIX, s3://BUCKET/PREFIX, the name of a NATS object store, or an absolute "
        "folder; needed unless the mode is off.",
        None,
    )
    auth: Text | None = means(
        "The alias of the backend's credential in the wallet; gcs and s3 can do without.", None
    )
    circuit: CircuitBlock = means(
        "When messages are no longer dispatched.", default_factory=CircuitBlock
    )
    downstreams: list[DownstreamBlock] | None = means(
        "What the app needs; by default one thing, named like the app.", None, min_length=1
    )
    ordering: Literal["global", "per_key", "none"] = means(
        "Which kept messages are dispatched one after another.", "per_key"
    )
    ordering_key: KeyText | None = means(
        "The key of per_key: a field of the JSON body, or CEL; by default the source's own.", None
    )
    retention: RetentionBlock = means(
        "How long and how much is kept.", default_factory=RetentionBlock
    )
    drain: DrainBlock = means("How kept messages are dispatched.", default_factory=DrainBlock)
    hybrid: HybridBlock | None = means("When hybrid begins to keep messages.", None)
