"""Documents for the tests: the six of the design as printed, and some that have every key."""

from pathlib import Path

FOLDER = Path(__file__).parent / "documents"
PRINTED = {file.stem: file.read_text() for file in sorted(FOLDER.glob("*.yaml"))}

PULL = """\
apiVersion: tape/v1
kind: Subscription
metadata:
  name: orders
  path: subscriptions/orders
spec:
  source: nats
  mode: pull
  activation: continuous
  auth: nats_main
  stream: ORDERS
  consumer: orders-listener
  dispatch:
    playbook: process_order
"""

PUSH = """\
apiVersion: tape/v1
kind: Subscription
metadata:
  name: payments
  path: subscriptions/payments
spec:
  source: webhook
  mode: push
  ingress:
    gateway_path: /ingress/payments
    verify:
      type: hmac_sha256
      header: X-Signature
      secret: payments_secret
  dispatch:
    playbook: process_payment
"""

WHOLE = """\
apiVersion: tape/v1
kind: Subscription
metadata:
  name: readings
  path: subscriptions/readings
spec:
  source: kafka
  mode: pull
  activation: scheduled
  cadence: 0 6 * * MON-FRI
  auth: kafka_main
  topic: plant.readings
  group: tape
  runtime:
    target: local
    pool: plant
    batch: 20
    timeout_ms: 4000
    max_in_flight: 300
    server_url: tapes://tape.example:7878
    concurrency: 8
    max_instances: 9
  dispatch:
    playbook: domain/keep_reading
    payload_from: message.attributes
    execution_pool: plant
    batch_dispatch: true
    batch_max: 50
  headers:
    normalize: false
    directives:
      - header: X-Route
        controls: dispatch.playbook
        allowed: [domain/keep_reading, domain/raise_alarm]
      - header: X-Pool
        controls: dispatch.execution_pool
        allowed:
          - plant
          - alarms
      - header: X-Priority
        controls: priority
        map:
          high: alarms
          yes: plant
          1: plant
      - header: X-Key
        controls: idempotency_key
      - header: X-Key
        controls: content_type
        allowed: [application/json]
      - header: X-Schema
        controls: schema_hint
    trace:
      propagate: w3c
      baggage_allowlist: [tenant, off]
    passthrough: data
  spool:
    mode: hybrid
    backend: local_disk
    bucket: /var/spool/tape
    circuit:
      trip_after: 7
      probe_after_ms: 2000
    downstreams:
      - name: ledger-db
        probe:
          tcp: db.example:5432
      - name: mail
        probe:
          http: http://mail.internal:8080/health
      - name: bus
        probe:
          nats: nats://a:4222,b:4222
      - name: disk
    ordering: none
    ordering_key: message.headers["x-device"]
    retention:
      max_age_hours: 24
      max_bytes: 512Mi
      on_full: drop_to_dlq
    drain:
      on_recovery: interleave
      rate_per_sec: 0.5
      max_replay_attempts: 3
    hybrid:
      after_ms: 60000
  dedup:
    window_secs: 3600
    key: payload.id
  limits:
    max_in_flight: 200
    max_dispatch_per_sec: 40
  scaling:
    keda:
      trigger: kafka
      min: 2
      max: 12
      lag_threshold: 100
"""

PUBSUB = PULL.replace("nats\n", "pubsub\n").replace(
    "  stream: ORDERS\n  consumer: orders-listener\n",
    "  subscription: projects/acme/subscriptions/orders\n",
)
FILES = PULL.replace("nats\n", "file\n").replace(
    "  auth: nats_main\n  stream: ORDERS\n  consumer: orders-listener\n",
    "  folder: /var/inbox\n  pattern: '*.jsonl'\n",
)

VERIFIERS = {
    "hmac_sha256": "header: X-Signature\n      secret: s\n      scheme: github",
    "bearer": "secret: s",
    "pubsub_oidc": "audience: https://gw.example/x\n      service_account: push@acme.example",
    "hmac": 'header: X-Signature\n      secret: s\n      parts: "{timestamp}.{body}"\n'
    "      algorithm: sha512\n      encoding: base64\n      prefix: v1=\n"
    "      secret_encoding: base64\n      timestamp_header: X-Time\n      tolerance_secs: 60",
    "twilio": "secret: s\n      public_url: https://gw.example/ingress/payments",
    "api_key": "header: X-Api-Key\n      secret: s",
    "basic": "secret: s",
    "jwt": "jwks_url: https://id.example/keys\n      issuer: https://id.example\n"
    "      audience: tape",
    "aws_sns": "topic_arns: ['arn:aws:sns:eu-west-1:123456789012:orders']\n      confirm: true",
}
"""What each type of verification has, in the place of what `PUSH` has for it."""


def verified_by(kind: str, keys: str | None = None) -> str:
    head, _, rest = PUSH.partition("      type: ")
    dispatch = rest[rest.index("  dispatch:") :]
    return f"{head}      type: {kind}\n      {keys or VERIFIERS[kind]}\n{dispatch}"


WORKING = {
    "pull": PULL, "push": PUSH, "whole": WHOLE, "pubsub": PUBSUB, "files": FILES,
    **{f"verified by {kind}": verified_by(kind) for kind in VERIFIERS}, **PRINTED,
}  # fmt: skip
