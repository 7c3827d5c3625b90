"""What a document says becomes rows: every key once, every default, and what is stored."""

import json

import orjson
import pytest

from tape.model.subscription_spec import (
    CircuitSpec,
    Control,
    DedupSpec,
    DirectiveSpec,
    DispatchSpec,
    DownstreamSpec,
    DrainSpec,
    HeaderSpec,
    HmacTemplate,
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
from tape.subscriptions.spec import read_document, spec_of_json
from tests.unit.subscriptions.documents import (
    FILES,
    PUBSUB,
    PULL,
    PUSH,
    WHOLE,
    WORKING,
    verified_by,
)


def spec(text: str) -> SubscriptionSpec:
    return read_document(text).spec


def with_spec(text: str, more: str) -> str:
    """With more keys at the end of `spec`."""
    return text + "".join(f"  {line}\n" for line in more.splitlines())


def test_every_key() -> None:
    assert spec(WHOLE) == SubscriptionSpec(
        name="readings",
        path="subscriptions/readings",
        mode="pull",
        source=SourceSpec(
            SourceKind.KAFKA, auth="kafka_main", topic="plant.readings", group="tape"
        ),
        activation="scheduled",
        cadence="0 6 * * MON-FRI",
        runtime=RuntimeSpec("local", "plant", 20, 4000, 300, "tapes://tape.example:7878", 8, 9),
        dispatch=DispatchSpec(
            "domain/keep_reading",
            PayloadFrom.ATTRIBUTES,
            "plant",
            batch_dispatch=True,
            batch_max=50,
        ),
        headers=HeaderSpec(
            normalize=False,
            directives=(
                DirectiveSpec(
                    "x-route", Control.PLAYBOOK, ("domain/keep_reading", "domain/raise_alarm")
                ),
                DirectiveSpec("x-pool", Control.EXECUTION_POOL, ("plant", "alarms")),
                DirectiveSpec(
                    "x-priority",
                    Control.PRIORITY,
                    pools=(("1", "plant"), ("high", "alarms"), ("yes", "plant")),
                ),
                DirectiveSpec("x-key", Control.IDEMPOTENCY_KEY),
                DirectiveSpec("x-key", Control.CONTENT_TYPE, ("application/json",)),
                DirectiveSpec("x-schema", Control.SCHEMA_HINT),
            ),
            propagates_trace=True,
            baggage_allowlist=("tenant", "off"),
        ),
        spool=SpoolSpec(
            "hybrid",
            "local_disk",
            "/var/spool/tape",
            circuit=CircuitSpec(7, 2000),
            downstreams=(
                DownstreamSpec("ledger-db", "tcp db.example:5432"),
                DownstreamSpec("mail", "http http://mail.internal:8080/health"),
                DownstreamSpec("bus", "nats nats://a:4222,b:4222"),
                DownstreamSpec("disk"),
            ),
            ordering="none",
            ordering_key='message.headers["x-device"]',
            retention=RetentionSpec(24, 512 * 2**20, "drop_to_dlq"),
            drain=DrainSpec("interleave", 0.5, 3),
            hybrid_after_ms=60_000,
        ),
        dedup=DedupSpec(3600, "payload.id"),
        max_in_flight=8,
        dispatch_per_sec=40.0,
        keda=KedaSpec("kafka", 2, 12, 100),
    )


def test_every_default() -> None:
    assert spec(PULL) == SubscriptionSpec(
        name="orders",
        path="subscriptions/orders",
        mode="pull",
        activation="continuous",
        source=SourceSpec(
            SourceKind.NATS, auth="nats_main", stream="ORDERS", consumer="orders-listener"
        ),
        dispatch=DispatchSpec("process_order"),
    )
    assert spec(PUSH) == SubscriptionSpec(
        name="payments",
        path="subscriptions/payments",
        mode="push",
        source=SourceSpec(SourceKind.WEBHOOK),
        dispatch=DispatchSpec("process_payment"),
        ingress=IngressSpec(
            "/ingress/payments",
            VerifySpec(VerifyType.HMAC_SHA256, "x-signature", "payments_secret"),
        ),
    )
    assert spec(with_spec(PULL, "headers: {}")).headers == HeaderSpec()


def test_other_sources() -> None:
    assert spec(PUBSUB).source == SourceSpec(
        SourceKind.PUBSUB, auth="nats_main", subscription="projects/acme/subscriptions/orders"
    )
    assert spec(FILES).source == SourceSpec(SourceKind.FILE, folder="/var/inbox", pattern="*.jsonl")
    assert spec(PUBSUB).runtime.timeout_ms == 10_000, "a pull of Pub/Sub takes long to answer"
    assert spec(PULL).runtime.timeout_ms == spec(FILES).runtime.timeout_ms == 2_000


def test_the_smallest_number_in_flight_holds() -> None:
    def most(runtime: str, limits: str) -> int:
        return spec(with_spec(PULL, f"runtime: {{{runtime}}}\nlimits: {{{limits}}}")).max_in_flight

    assert most("max_in_flight: 10", "max_in_flight: 20") == 10
    assert most("max_in_flight: 20", "max_in_flight: 10") == 10
    assert most("max_in_flight: 2000", "") == 2000
    assert most("", "max_in_flight: 5000") == 1000, "that of runtime has a default"
    assert most("concurrency: 5", "") == 5
    assert most("concurrency: 5, max_in_flight: 3", "max_in_flight: 4") == 3
    assert most("concurrency: 5000", "max_in_flight: 2000") == 1000


def test_a_spool_is_off_unless_it_is_there() -> None:
    assert spec(PULL).spool is None
    assert spec(PUSH).spool is None
    pulled = spec(with_spec(PULL, "spool: {}")).spool
    assert pulled == SpoolSpec("off", downstreams=(DownstreamSpec("process_order"),))
    pushed = spec(with_spec(PUSH, "spool: {backend: s3, bucket: 's3://acme/x'}")).spool
    assert pushed == SpoolSpec(
        "buffer_and_ack", "s3", "s3://acme/x", downstreams=(DownstreamSpec("process_payment"),)
    )
    off = spec(with_spec(PUSH, "spool: {mode: off}")).spool
    assert off is not None
    assert off.mode == "off", "a text, not a boolean"


@pytest.mark.parametrize(
    ("backend", "bucket", "auth"),
    [
        ("gcs", "gs://acme-spool", ""),
        ("gcs", "gs://acme-spool/a/b", "x"),
        ("s3", "s3://acme.spool/a", ""),
        ("nats_object", "SPOOL_1", "nats_main"),
        ("local_disk", "/var/spool/a b", ""),
    ],
)
def test_backends(backend: str, bucket: str, auth: str) -> None:
    login = f", auth: {auth}" if auth else ""
    block = f"spool: {{mode: hybrid, backend: {backend}, bucket: '{bucket}'{login}}}"
    found = spec(with_spec(PULL, block)).spool
    assert found is not None
    assert (found.backend, found.bucket, found.auth) == (backend, bucket, auth)


@pytest.mark.parametrize(
    ("said", "expected"),
    [("1", 1), ("1Ki", 1024), ("'50Gi'", 50 * 2**30), ("3Ti", 3 * 2**40), ("7Mi", 7 * 2**20)],
)
def test_sizes(said: str, expected: int) -> None:
    spool = spec(with_spec(PULL, f"spool: {{retention: {{max_bytes: {said}}}}}")).spool
    assert spool is not None
    assert spool.retention.max_bytes == expected


VERIFIED = {
    "hmac_sha256": VerifySpec(
        VerifyType.HMAC_SHA256, "x-signature", "s", SignatureScheme.GITHUB
    ),
    "bearer": VerifySpec(VerifyType.BEARER, secret="s"),
    "pubsub_oidc": VerifySpec(
        VerifyType.PUBSUB_OIDC, audience="https://gw.example/x", service_account="push@acme.example"
    ),
    "hmac": VerifySpec(
        VerifyType.HMAC, "x-signature", "s", tolerance_secs=60,
        template=HmacTemplate("{timestamp}.{body}", "sha512", "base64", "v1=", "base64", "x-time"),
    ),
    "twilio": VerifySpec(
        VerifyType.TWILIO, secret="s", public_url="https://gw.example/ingress/payments"
    ),
    "api_key": VerifySpec(VerifyType.API_KEY, "x-api-key", "s"),
    "basic": VerifySpec(VerifyType.BASIC, secret="s"),
    "jwt": VerifySpec(
        VerifyType.JWT, jwks_url="https://id.example/keys", issuer="https://id.example",
        audience="tape",
    ),
    "aws_sns": VerifySpec(
        VerifyType.AWS_SNS, topic_arns=("arn:aws:sns:eu-west-1:123456789012:orders",), confirm=True
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", VerifyType)
def test_verifiers(kind: str) -> None:
    ingress = spec(verified_by(kind)).ingress
    assert ingress is not None
    assert ingress.verify == VERIFIED[kind]


@pytest.mark.parametrize(
    ("header", "scheme"),
    [
        ("Stripe-Signature", "stripe"), ("X-Hub-Signature-256", "github"),
        ("X-Slack-Signature", "slack"), ("X-Shopify-Hmac-SHA256", "shopify"),
        ("webhook-signature", "standard"), ("svix-signature", "svix"),
        ("STRIPE-SIGNATURE", "stripe"), ("X-Signature", "raw"), ("X-Hub-Signature", "raw"),
    ],
)  # fmt: skip
def test_the_scheme_by_the_name_of_the_header(header: str, scheme: str) -> None:
    ingress = spec(verified_by("hmac_sha256", f"header: {header}\n      secret: s")).ingress
    assert ingress is not None
    assert ingress.verify.scheme == scheme
    said = spec(verified_by("hmac_sha256", f"header: {header}\n      secret: s\n      scheme: raw"))
    assert said.ingress is not None
    assert said.ingress.verify.scheme == "raw"


def test_where_deliveries_have_their_id_and_order() -> None:
    def ingress(more: str) -> IngressSpec:
        found = spec(PUSH.replace("    verify:", f"    {more}\n    verify:")).ingress
        assert found is not None
        return found

    assert ingress("message_id: X-Request-Id")[2:] == ("x-request-id", "", "")
    assert ingress("message_id: payload.event.id")[2:] == ("", "payload.event.id", "")
    assert ingress("ordering_key: account").ordering_key == "account"
    assert ingress("ordering_key: payload.account + '/'").ordering_key == "payload.account + '/'"


@pytest.mark.parametrize("key", ["idempotency_key", "order_id", "payload.id", "message.id"])
def test_keys(key: str) -> None:
    assert spec(with_spec(PULL, f"dedup: {{window_secs: 60, key: {key}}}")).dedup == (60, key)
    assert spec(with_spec(PULL, "dedup: {window_secs: 60}")).dedup == (60, "idempotency_key")


@pytest.mark.parametrize("version", ["noetl.io/v1", "tape/v1"])
def test_versions(version: str) -> None:
    assert spec(PULL.replace("tape/v1", version)) == spec(PULL)


@pytest.mark.parametrize(
    "url",
    ["https://api.example", "https://api.example:8443/tape", "tapes://tape.example:7878?ca=ca.pem",
     "tape://127.0.0.1:7878"],
)  # fmt: skip
def test_servers(url: str) -> None:
    assert spec(with_spec(PULL, f"runtime: {{server_url: '{url}'}}")).runtime.server_url == url


@pytest.mark.parametrize("name", WORKING)
def test_what_is_stored_says_the_same(name: str) -> None:
    read = read_document(WORKING[name])
    assert spec_of_json(read.canonical_json) == read.spec
    assert read_document(read.canonical_json) == read, "the JSON is a document, too"
    indented = json.dumps(json.loads(read.canonical_json), indent=3)
    assert read_document(indented) == read


@pytest.mark.parametrize("name", WORKING)
def test_what_is_stored_is_canonical(name: str) -> None:
    canonical = read_document(WORKING[name]).canonical_json
    assert orjson.dumps(orjson.loads(canonical), option=orjson.OPT_SORT_KEYS).decode() == canonical


def test_documents_that_say_the_same_are_stored_alike() -> None:
    flow = """{apiVersion: tape/v1, kind: Subscription,
      spec: {dispatch: {playbook: "process_order"}, consumer: orders-listener, stream: 'ORDERS',
             auth: nats_main, activation: continuous, mode: pull, source: nats},
      metadata: {path: subscriptions/orders, name: orders}}  # the same"""
    assert read_document(flow) == read_document(PULL)
    assert read_document(flow).canonical_json == (
        '{"apiVersion":"tape/v1","kind":"Subscription",'
        '"metadata":{"name":"orders","path":"subscriptions/orders"},'
        '"spec":{"activation":"continuous","auth":"nats_main","consumer":"orders-listener",'
        '"dispatch":{"playbook":"process_order"},"mode":"pull","source":"nats","stream":"ORDERS"}}'
    )
