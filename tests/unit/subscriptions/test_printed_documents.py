"""The six documents of the design load as they are printed, and say what they say."""

import pytest

from tape.model.subscription_spec import (
    CircuitSpec,
    Control,
    DirectiveSpec,
    DispatchSpec,
    DownstreamSpec,
    DrainSpec,
    HeaderSpec,
    IngressSpec,
    KedaSpec,
    PayloadFrom,
    RetentionSpec,
    RuntimeSpec,
    SignatureScheme,
    SourceKind,
    SourceSpec,
    SpoolSpec,
    SubscriptionSpec,
    VerifySpec,
    VerifyType,
)
from tape.subscriptions.spec import read_document
from tests.unit.subscriptions.documents import PRINTED

SPECS = [
    SubscriptionSpec(
        name="iot-sensor-stream",
        path="subscriptions/iot-sensor-stream",
        mode="pull",
        activation="continuous",
        source=SourceSpec(
            SourceKind.PUBSUB,
            auth="pubsub_iot",
            subscription="projects/acme/subscriptions/sensors",
        ),
        runtime=RuntimeSpec(
            "dedicated-pool", pool="iot", batch=500, timeout_ms=10_000, max_in_flight=1000
        ),
        dispatch=DispatchSpec("domain/ingest_sensor_reading", PayloadFrom.JSON, "iot"),
        headers=HeaderSpec(
            normalize=True,
            directives=(
                DirectiveSpec("x-noetl-pool", Control.EXECUTION_POOL, ("iot", "priority")),
                DirectiveSpec("x-idempotency-key", Control.IDEMPOTENCY_KEY),
            ),
            propagates_trace=True,
            baggage_allowlist=("tenant",),
        ),
        spool=SpoolSpec(
            "hybrid",
            backend="gcs",
            bucket="gs://acme-noetl-spool/iot",
            auth="gcs_spool",
            circuit=CircuitSpec(trip_after=5, probe_after_ms=30_000),
            downstreams=(DownstreamSpec("domain/ingest_sensor_reading"),),
            ordering="per_key",
            ordering_key="device_id",
            retention=RetentionSpec(72, 50 * 2**30, "stop_acking"),
            drain=DrainSpec("ordered_then_live", 200.0, 10),
        ),
        keda=KedaSpec("pubsub", 1, 20, 500),
    ),
    SubscriptionSpec(
        name="orders-drain",
        path="subscriptions/orders-drain",
        mode="pull",
        activation="scheduled",
        cadence="*/1 * * * *",
        source=SourceSpec(
            SourceKind.NATS, auth="nats_main", stream="ORDERS", consumer="orders-drain"
        ),
        runtime=RuntimeSpec("dedicated-pool", pool="subscription", batch=50, timeout_ms=3000),
        dispatch=DispatchSpec("domain/process_order", PayloadFrom.JSON),
    ),
    SubscriptionSpec(
        name="billing-events",
        path="subscriptions/billing-events",
        mode="push",
        source=SourceSpec(SourceKind.PUBSUB),
        runtime=RuntimeSpec(timeout_ms=10_000),
        ingress=IngressSpec(
            "/ingress/billing-events",
            VerifySpec(
                VerifyType.PUBSUB_OIDC,
                audience="https://gw.noetl.acme/ingress/billing-events",
                service_account="pubsub-push@acme.iam.gserviceaccount.com",
            ),
        ),
        dispatch=DispatchSpec("domain/handle_billing_event", PayloadFrom.JSON, "subscription"),
        spool=SpoolSpec(
            "buffer_and_ack",
            backend="gcs",
            bucket="gs://acme-noetl-spool/billing",
            auth="gcs_spool",
            downstreams=(DownstreamSpec("domain/handle_billing_event"),),
        ),
    ),
    SubscriptionSpec(
        name="stripe-webhook",
        path="subscriptions/stripe-webhook",
        mode="push",
        source=SourceSpec(SourceKind.WEBHOOK),
        ingress=IngressSpec(
            "/ingress/stripe",
            VerifySpec(
                VerifyType.HMAC_SHA256,
                header="stripe-signature",
                secret="stripe_webhook_secret",
                scheme=SignatureScheme.STRIPE,
            ),
        ),
        dispatch=DispatchSpec("domain/handle_stripe_event", PayloadFrom.BODY),
        spool=SpoolSpec(
            "buffer_and_ack",
            backend="gcs",
            bucket="gs://acme-noetl-spool/stripe",
            auth="gcs_spool",
            downstreams=(DownstreamSpec("domain/handle_stripe_event"),),
        ),
    ),
    SubscriptionSpec(
        name="edge-clickstream",
        path="subscriptions/edge-clickstream",
        mode="pull",
        activation="continuous",
        source=SourceSpec(
            SourceKind.KAFKA, auth="kafka_edge", topic="edge.clicks", group="noetl-edge"
        ),
        runtime=RuntimeSpec(
            "cloud-run", server_url="https://api.noetl.acme", concurrency=80, max_instances=50
        ),
        dispatch=DispatchSpec("domain/ingest_click", PayloadFrom.JSON, "shared"),
        max_in_flight=80,
        spool=SpoolSpec(
            "hybrid",
            backend="gcs",
            bucket="gs://acme-noetl-spool/clicks",
            auth="gcs_spool",
            downstreams=(DownstreamSpec("domain/ingest_click"),),
        ),
    ),
    SubscriptionSpec(
        name="events",
        path="subscriptions/events",
        mode="push",
        source=SourceSpec(SourceKind.PUBSUB),
        runtime=RuntimeSpec(timeout_ms=10_000),
        ingress=IngressSpec(
            "/ingress/events",
            VerifySpec(
                VerifyType.PUBSUB_OIDC,
                audience="https://gw.noetl.acme/ingress/events",
                service_account="pubsub-push@acme.iam.gserviceaccount.com",
            ),
        ),
        dispatch=DispatchSpec("domain/handle_event", PayloadFrom.JSON, "shared"),
        headers=HeaderSpec(
            directives=(
                DirectiveSpec(
                    "x-noetl-route",
                    Control.PLAYBOOK,
                    ("domain/handle_billing", "domain/handle_fraud", "domain/handle_event"),
                ),
                DirectiveSpec("x-noetl-pool", Control.EXECUTION_POOL, ("priority", "shared")),
            ),
            propagates_trace=True,
        ),
    ),
]


def test_there_are_six() -> None:
    assert PRINTED.keys() == {spec.name for spec in SPECS}
    assert all("#" in text for text in PRINTED.values()), "their comments are there, too"


@pytest.mark.parametrize("expected", SPECS, ids=[spec.name for spec in SPECS])
def test_a_printed_document(expected: SubscriptionSpec) -> None:
    assert read_document(PRINTED[expected.name]).spec == expected


def test_defaults_that_nothing_printed_relies_on_by_accident() -> None:
    """Those of the rows are those of the rulings."""
    spec = SPECS[1]
    assert (spec.runtime.max_in_flight, spec.max_in_flight, spec.dispatch_per_sec) == (
        1000, 1000, 0,
    )  # fmt: skip
    assert (spec.dispatch.execution_pool, spec.dispatch.batch_max) == ("subscription", 100)
    assert RuntimeSpec().batch == 100
    assert RuntimeSpec().timeout_ms == 2000
    assert CircuitSpec() == (5, 30_000)
    assert RetentionSpec() == (72, 10 * 2**30, "stop_acking")
    assert DrainSpec() == ("ordered_then_live", 200.0, 10)
