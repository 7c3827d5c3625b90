"""What is wrong with a document is told by its field and line, one fault at a time.

Each row changes a document that works, and marks with ◄ the line that the refusal has to name. The
numbers are those of the checklist that the form follows.
"""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tape.errors import InvalidArgument, TooLarge
from tape.subscriptions.spec import read_document
from tests.unit.subscriptions.documents import (
    FILES,
    PUBSUB,
    PULL,
    PUSH,
    WHOLE,
    WORKING,
    verified_by,
)

MARK = " # ◄"


class Refused(NamedTuple):
    row: str
    base: str
    changes: tuple[tuple[str, str], ...]
    field: str
    says: str


def no(row: str, base: str, old: str, new: str, field: str, says: str) -> Refused:
    """One change, whose last line is marked."""
    return Refused(row, base, ((old, new.rstrip("\n") + MARK + "\n"),), field, says)


def without(row: str, base: str, line: str, field: str, says: str, *, at: str) -> Refused:
    """A line left out; `at` begins the block around it."""
    return Refused(row, base, ((line, ""), (f"{at}\n", f"{at}{MARK}\n")), field, says)


END = "    playbook: process_order\n"
PUSH_END = "    playbook: process_payment\n"
DIRECTIVE = "      - header: X-Schema\n        controls: schema_hint\n"

REFUSED = [
    without("B-1", PULL, "apiVersion: tape/v1\n", "apiVersion",
            "is required: the version of this form", at="kind: Subscription"),
    no("B-1", PULL, "tape/v1\n", "tape/v2\n", "apiVersion",
       "tape/v2 is not known here; did you mean tape/v1? use one of noetl.io/v1, tape/v1"),
    no("B-2", PULL, "Subscription\n", "Playbook\n", "kind", "use one of Subscription"),
    no("B-3", PULL, "name: orders\n", "name: Orders\n", "metadata.name",
       "Orders is not a name: 1 to 128 of a-z, 0-9, ., _ and -, the first a letter or digit"),
    no("B-3", PULL, "name: orders\n", f"name: {'o' * 129}\n", "metadata.name", "is not a name"),
    no("B-3", PULL, "name: orders\n", "name: 7\n", "metadata.name",
       "7 is not a text; write it in quotes"),
    no("B-3", PULL, "name: orders\n", "name: -orders\n", "metadata.name", "is not a name"),
    no("B-4", PULL, "path: subscriptions/orders\n", "path: subscriptions/order\n", "metadata.path",
       "must be subscriptions/orders, after metadata.name"),
    no("B-4", PULL, "path: subscriptions/orders\n", "path: orders\n", "metadata.path",
       "orders is not subscriptions/ and the name of the subscription"),
    without("B-4", PULL, "  path: subscriptions/orders\n", "metadata.path", "is required",
            at="metadata:"),
    no("B-5", PULL, "source: nats\n", "source: natz\n", "spec.source",
       "natz is not known here; did you mean nats? use one of nats, kafka, pubsub, file, webhook"),
    without("B-5", PULL, "  source: nats\n", "spec.source", "is required", at="spec:"),
    no("B-6", PULL, "mode: pull\n", "mode: push\n", "spec.mode",
       "source nats has no mode push; write pull"),
    no("B-6", PUSH, "mode: push\n", "mode: pull\n", "spec.mode",
       "source webhook has no mode pull; write push"),
    no("B-6", FILES, "mode: pull\n", "mode: push\n", "spec.mode", "write pull"),
    no("B-6", WHOLE, "mode: pull\n", "mode: push\n", "spec.mode", "source kafka has no mode push"),
    no("B-6", PULL, "mode: pull\n", "mode: poll\n", "spec.mode", "did you mean pull?"),
    without("B-7", PULL, "  activation: continuous\n", "spec.activation",
            "is required for mode pull", at="spec:"),
    no("B-7", PUSH, "mode: push\n", "mode: push\n  activation: continuous\n", "spec.activation",
       "belongs to pull, and this is mode push; remove it"),
    no("B-7", PULL, "continuous\n", "continuos\n", "spec.activation", "did you mean continuous?"),
    Refused("B-8", PULL, (("continuous\n", "scheduled\n"), ("spec:\n", f"spec:{MARK}\n")),
            "spec.cadence", "is required for activation scheduled"),
    no("B-8", PULL, "continuous\n", "continuous\n  cadence: 0 6 * * *\n", "spec.cadence",
       "belongs to scheduled, and this is activation continuous; remove it"),
    no("B-8", WHOLE, "0 6 * * MON-FRI\n", "0 6 * *\n", "spec.cadence",
       "0 6 * * has 4 fields, and a cadence has five fields: minute, hour, day of month, month"),
    no("B-8", WHOLE, "0 6 * * MON-FRI\n", "0 0 6 * * MON\n", "spec.cadence", "has 6 fields"),
    no("B-8", WHOLE, "0 6 * * MON-FRI\n", "0 25 * * *\n", "spec.cadence",
       "0 25 * * * is not a cadence: its hour is not possible"),
    no("B-8", WHOLE, "0 6 * * MON-FRI\n", "0 6 30 2 *\n", "spec.cadence", "its day of month is"),
    no("B-8", WHOLE, "0 6 * * MON-FRI\n", "'@daily'\n", "spec.cadence", "five fields"),
    no("B-8", WHOLE, "0 6 * * MON-FRI\n", f"0 6 * * {'1,' * 200}1\n", "spec.cadence",
       "is longer than 200 characters"),
    without("B-9", PULL, "  auth: nats_main\n", "spec.auth", "is required for source nats",
            at="spec:"),
    without("B-9", PUBSUB, "  auth: nats_main\n", "spec.auth", "is required for source pubsub",
            at="spec:"),
    no("B-9", FILES, "mode: pull\n", "mode: pull\n  auth: x\n", "spec.auth",
       "belongs to nats or kafka or pubsub, and this is source file; remove it"),
    no("B-9", PUSH, "mode: push\n", "mode: push\n  auth: x\n", "spec.auth",
       "and this is source webhook; remove it"),
    no("B-9", PULL, "auth: nats_main\n", "auth:\n", "spec.auth",
       "is empty; give it a value, or remove the key"),
    no("B-9", PULL, "auth: nats_main\n", "auth: {user: a}\n", "spec.auth",
       "the value is not a text"),
    without("B-10", PUBSUB, "  subscription: projects/acme/subscriptions/orders\n",
            "spec.subscription", "is required for source pubsub", at="spec:"),
    no("B-10", PUBSUB, "projects/acme/subscriptions/orders\n", "orders\n", "spec.subscription",
       "orders is not projects/PROJECT/subscriptions/SUBSCRIPTION"),
    no("B-10", PULL, "mode: pull\n", "mode: pull\n  subscription: projects/a/subscriptions/abc\n",
       "spec.subscription", "belongs to pubsub, and this is source nats"),
    without("B-11", PULL, "  stream: ORDERS\n", "spec.stream", "is required for source nats",
            at="spec:"),
    no("B-11", PULL, "ORDERS\n", "ORDERS.*\n", "spec.stream", "ORDERS.* is not a name in NATS"),
    without("B-12", PULL, "  consumer: orders-listener\n", "spec.consumer",
            "is required for source nats", at="spec:"),
    no("B-12", PULL, "orders-listener\n", "two words\n", "spec.consumer", "is not a name in NATS"),
    without("B-13", WHOLE, "  topic: plant.readings\n", "spec.topic",
            "is required for source kafka", at="spec:"),
    no("B-13", PULL, "stream: ORDERS\n", "stream: ORDERS\n  topic: orders\n", "spec.topic",
       "belongs to kafka, and this is source nats; remove it"),
    no("B-13", WHOLE, "plant.readings\n", "plant/readings\n", "spec.topic", "is not a Kafka topic"),
    without("B-14", WHOLE, "  group: tape\n", "spec.group", "is required for source kafka",
            at="spec:"),
    no("B-14", PULL, "stream: ORDERS\n", "stream: ORDERS\n  group: g\n", "spec.group",
       "belongs to kafka"),
    no("B-15", PULL, "auth: nats_main\n", "auth: nats_main\n  password: hunter2\n", "spec.password",
       "there is no such key"),
    no("B-16", WHOLE, "target: local\n", "target: cloudrun\n", "spec.runtime.target",
       "cloudrun is not known here; did you mean cloud-run?"),
    no("B-17", WHOLE, "    pool: plant\n", "    pool: ''\n", "spec.runtime.pool",
       "must not be empty"),
    no("B-17", WHOLE, "    pool: plant\n", '    pool: "a\\nb"\n', "spec.runtime.pool",
       "contains a control character or a line break; remove it"),
    no("B-17", WHOLE, "    pool: plant\n", '    pool: "a\\0b"\n', "spec.runtime.pool",
       "contains a control character"),
    no("B-17", WHOLE, "    pool: plant\n", f"    pool: {'p' * 513}\n", "spec.runtime.pool",
       "is longer than 512 bytes"),
    no("B-18", WHOLE, "batch: 20\n", "batch: 0\n", "spec.runtime.batch",
       "0 is out of range; from 1 to 10000 is allowed"),
    no("B-18", WHOLE, "batch: 20\n", "batch: 2.5\n", "spec.runtime.batch",
       "2.5 is not a whole number"),
    no("B-18", WHOLE, "batch: 20\n", "batch: '20'\n", "spec.runtime.batch",
       "20 is not a whole number; leave out the quotes"),
    no("B-18", WHOLE, "batch: 20\n", "batch: true\n", "spec.runtime.batch",
       "true is not a whole number"),
    no("B-19", WHOLE, "timeout_ms: 4000\n", "timeout_ms: 5001\n", "spec.runtime.timeout_ms",
       "5001 is out of range; from 1 to 5000 is allowed for source kafka"),
    no("B-19", PUBSUB, "mode: pull\n", "mode: pull\n  runtime: {timeout_ms: 60001}\n",
       "spec.runtime.timeout_ms", "60001 is out of range; from 1 to 60000"),
    no("B-19", PUSH, "mode: push\n", "mode: push\n  runtime: {timeout_ms: 1}\n",
       "spec.runtime.timeout_ms", "belongs to pull, and this is mode push"),
    no("B-20", WHOLE, "    max_in_flight: 300\n", "    max_in_flight: -1\n",
       "spec.runtime.max_in_flight", "-1 is out of range; from 1 to 100000"),
    no("B-21", WHOLE, "tapes://tape.example:7878\n", "http://tape.example\n",
       "spec.runtime.server_url", "is not https://HOST or tapes://HOST:PORT"),
    no("B-21", WHOLE, "tapes://tape.example:7878\n", "tape://tape.example:7878\n",
       "spec.runtime.server_url", "tape:// is for this machine alone; write https://HOST"),
    no("B-21", WHOLE, "tapes://tape.example:7878\n", "https://a:b@tape.example\n",
       "spec.runtime.server_url", "contains a login"),
    no("B-22", WHOLE, "concurrency: 8\n", "concurrency: 0\n", "spec.runtime.concurrency",
       "from 1 to 10000"),
    no("B-23", WHOLE, "max_instances: 9\n", "max_instances: many\n", "spec.runtime.max_instances",
       "many is not a whole number"),
    Refused("B-24", PULL, (("  dispatch:\n    playbook: process_order\n",
                            f"  dispatch: {{}}{MARK}\n"),), "spec.dispatch.playbook",
            "is required: the app that runs for each message"),
    no("B-24", PULL, "playbook: process_order\n", "playbook: ''\n", "spec.dispatch.playbook",
       "must not be empty"),
    no("B-25", WHOLE, "message.attributes\n", "message.jsn\n", "spec.dispatch.payload_from",
       "did you mean message.json? use one of message.body, message.json, message.attributes"),
    no("B-26", WHOLE, "execution_pool: plant\n", "execution_pool: [a]\n",
       "spec.dispatch.execution_pool", "a list is not a text"),
    no("B-27", WHOLE, "batch_dispatch: true\n", "batch_dispatch: yes\n",
       "spec.dispatch.batch_dispatch", "yes is not true or false"),
    no("B-28", WHOLE, "batch_max: 50\n", "batch_max: 1001\n", "spec.dispatch.batch_max",
       "1001 is out of range; from 1 to 1000"),
    no("B-29", PULL, END, f"{END}  headers: on\n", "spec.headers", "on is not a block of keys"),
    no("B-29", PULL, END, f"{END}  headers:\n", "spec.headers", "is empty; give it a value"),
    no("B-30", WHOLE, "normalize: false\n", "normalize: no\n", "spec.headers.normalize",
       "no is not true or false"),
    no("B-31", PULL, END, f"{END}  headers: {{directives: {{}}}}\n", "spec.headers.directives",
       "a mapping is not a list"),
    no("B-32", WHOLE, "header: X-Schema\n", "header: X Schema\n",
       "spec.headers.directives[5].header", "X Schema is not a header's name"),
    no("B-32", WHOLE, "header: X-Schema\n", "header: Authorization\n",
       "spec.headers.directives[5].header", "authorization holds a secret"),
    Refused("B-32", WHOLE, ((DIRECTIVE, f"      - controls: schema_hint{MARK}\n"),),
            "spec.headers.directives[5].header", "is required: the name of the header"),
    no("B-33", WHOLE, "controls: schema_hint\n", "controls: schema\n",
       "spec.headers.directives[5].controls", "did you mean schema_hint?"),
    no("B-33", WHOLE, "controls: schema_hint\n", "controls: content_type\n",
       "spec.headers.directives[5].controls",
       "content_type is controlled by directives[4] already; one header may decide it"),
    Refused("B-33", WHOLE, (("        controls: schema_hint\n",
            f"        controls: priority{MARK}\n        map: {{a: b}}\n"),),
       "spec.headers.directives[5].controls",
       "priority is controlled by directives[2] already; one header may decide it"),
    no("B-34", WHOLE, "        allowed: [domain/keep_reading, domain/raise_alarm]\n",
       "        allowed: []\n", "spec.headers.directives[0].allowed", "must not be empty"),
    Refused("B-34", WHOLE, (
        ("        allowed: [domain/keep_reading, domain/raise_alarm]\n", ""),
        ("      - header: X-Route\n", f"      - header: X-Route{MARK}\n")),
        "spec.headers.directives[0].allowed", "is required for controls dispatch.playbook"),
    Refused("B-34", WHOLE, (
        ("        allowed:\n          - plant\n          - alarms\n", ""),
        ("      - header: X-Pool\n", f"      - header: X-Pool{MARK}\n")),
        "spec.headers.directives[1].allowed", "is required for controls dispatch.execution_pool"),
    no("B-34", WHOLE, "          - alarms\n", "          - 7\n",
       "spec.headers.directives[1].allowed[1]", "7 is not a text; write it in quotes"),
    no("B-34", WHOLE, "          - alarms\n", "          - true\n",
       "spec.headers.directives[1].allowed[1]", "true is not a text; write it in quotes"),
    Refused("B-35", WHOLE, (
        ("        map:\n          high: alarms\n          yes: plant\n          1: plant\n", ""),
        ("      - header: X-Priority\n", f"      - header: X-Priority{MARK}\n")),
        "spec.headers.directives[2].map", "is required for controls priority"),
    no("B-35", WHOLE, "          yes: plant\n", "          yes: off\n          yes: on\n",
       "spec.headers.directives[2].map.yes", "is listed twice; remove one"),
    no("B-35", WHOLE, "          yes: plant\n", "          yes: 5\n",
       "spec.headers.directives[2].map.yes", "5 is not a text"),
    no("B-35", WHOLE, "          yes: plant\n", "          '': plant\n",
       "spec.headers.directives[2].map.", "must not be empty"),
    no("B-35", WHOLE, "controls: schema_hint\n", "controls: schema_hint\n        map: {a: b}\n",
       "spec.headers.directives[5].map", "belongs to priority, and this is controls schema_hint"),
    no("B-35", WHOLE, "        map:\n", "        allowed: [high]\n        map:\n",
       "spec.headers.directives[2].allowed", "and this is controls priority; remove it")._replace(
           changes=(("        map:\n", f"        allowed: [high]{MARK}\n        map:\n"),)),
    no("B-36", WHOLE, "propagate: w3c\n", "propagate: b3\n", "spec.headers.trace.propagate",
       "b3 is not known here; use one of w3c"),
    without("B-36", WHOLE, "      propagate: w3c\n", "spec.headers.trace.propagate", "is required",
            at="    trace:"),
    no("B-37", WHOLE, "[tenant, off]\n", "[tenant, a b]\n",
       "spec.headers.trace.baggage_allowlist[1]", "a b is not a key of baggage"),
    no("B-38", WHOLE, "passthrough: data\n", "passthrough: none\n", "spec.headers.passthrough",
       "use one of data"),
    no("B-39", PUSH, "/ingress/payments\n", "/ingress/pay/ments\n", "spec.ingress.gateway_path",
       "/ingress/pay/ments is not /ingress/ and one segment"),
    no("B-39", PUSH, "/ingress/payments\n", "/webhooks/payments\n", "spec.ingress.gateway_path",
       "is not /ingress/ and one segment"),
    no("B-39", PUSH, "/ingress/payments\n", "/ingress/..\n", "spec.ingress.gateway_path",
       "is not /ingress/ and one segment"),
    without("B-39", PUSH, "    gateway_path: /ingress/payments\n", "spec.ingress.gateway_path",
            "is required", at="  ingress:"),
    no("B-39", PULL, END,
       f"{END}  ingress: {{gateway_path: /ingress/a, verify: {{type: basic}}}}\n",
       "spec.ingress", "belongs to push, and this is mode pull; remove it"),
    no("B-40", PUSH, "type: hmac_sha256\n", "type: none\n", "spec.ingress.verify.type",
       "none is refused: every push is verified. Use one of hmac_sha256, bearer, pubsub_oidc"),
    no("B-40", PUSH, "type: hmac_sha256\n", "type: hmac_sha25\n", "spec.ingress.verify.type",
       "did you mean hmac_sha256?"),
    no("B-40", PUSH, "type: hmac_sha256\n", "type:\n", "spec.ingress.verify.type",
       "an empty value is not known here"),
    Refused("B-40", PUSH, (
        (PUSH[PUSH.index("    verify:") : PUSH.index("  dispatch:")], ""),
        ("  ingress:\n", f"  ingress:{MARK}\n")), "spec.ingress.verify",
        "is required: how a delivery proves who sent it. Every push is verified"),
    Refused("B-40", PUSH, (
        (PUSH[PUSH.index("  ingress:") : PUSH.index("  dispatch:")], ""),
        ("spec:\n", f"spec:{MARK}\n")), "spec.ingress", "is required for mode push"),
    without("B-41", PUSH, "      header: X-Signature\n", "spec.ingress.verify.header",
            "is required for type hmac_sha256", at="    verify:"),
    no("B-41", verified_by("bearer"), "secret: s\n", "secret: s\n      header: X\n",
       "spec.ingress.verify.header",
       "belongs to hmac_sha256 or hmac or api_key, and this is type bearer; remove it"),
    without("B-42", PUSH, "      secret: payments_secret\n", "spec.ingress.verify.secret",
            "is required for type hmac_sha256", at="    verify:"),
    no("B-42", PUSH, "secret: payments_secret\n", "secret: 12345\n", "spec.ingress.verify.secret",
       "the value is not a text; write it in quotes"),
    without("B-43", verified_by("pubsub_oidc"), "      audience: https://gw.example/x\n",
            "spec.ingress.verify.audience", "is required for type pubsub_oidc", at="    verify:"),
    without("B-44", verified_by("pubsub_oidc"), "      service_account: push@acme.example\n",
            "spec.ingress.verify.service_account", "is required for type pubsub_oidc",
            at="    verify:"),
    no("B-44", verified_by("pubsub_oidc"), "push@acme.example\n", "push\n",
       "spec.ingress.verify.service_account", "push is not the e-mail address"),
    no("B-45", WHOLE, "mode: hybrid\n", "mode: of\n", "spec.spool.mode",
       "of is not known here; did you mean off? use one of off, buffer_and_ack, hybrid"),
    without("B-46", WHOLE, "    backend: local_disk\n", "spec.spool.backend",
            "is required for mode hybrid", at="  spool:"),
    no("B-46", PUSH, PUSH_END, f"{PUSH_END}  spool: {{}}\n", "spec.spool.backend",
       "is required for mode buffer_and_ack, the default of push"),
    no("B-46", WHOLE, "backend: local_disk\n", "backend: disk\n", "spec.spool.backend",
       "use one of gcs, s3, nats_object, local_disk"),
    without("B-47", WHOLE, "    bucket: /var/spool/tape\n", "spec.spool.bucket",
            "is required for mode hybrid", at="  spool:"),
    no("B-47", WHOLE, "/var/spool/tape\n", "spool/tape\n", "spec.spool.bucket",
       "is not an absolute folder, as local_disk has it"),
    no("B-47", WHOLE, "/var/spool/tape\n", "/var/../etc\n", "spec.spool.bucket",
       "is not an absolute folder"),
    *(
        Refused("B-47", WHOLE, (("local_disk", backend), ("/var/spool/tape\n", f"/x{MARK}\n")),
                "spec.spool.bucket", f"is not {form}")
        for backend, form in (("gcs", "gs://BUCKET/PREFIX"), ("s3", "s3://BUCKET/PREFIX"),
                              ("nats_object", "the name of an object store"))
    ),
    no("B-48", WHOLE, "/var/spool/tape\n", "/var/spool/tape\n    auth: x\n", "spec.spool.auth",
       "a folder needs no credential; remove it"),
    Refused("B-48", WHOLE, (("local_disk", "nats_object"), ("/var/spool/tape", "SPOOL"),
                            ("  spool:\n", f"  spool:{MARK}\n")), "spec.spool.auth",
            "is required for backend nats_object"),
    no("B-49", WHOLE, "trip_after: 7\n", "trip_after: 0\n", "spec.spool.circuit.trip_after",
       "from 1 to 1000"),
    no("B-50", WHOLE, "probe_after_ms: 2000\n", "probe_after_ms: 1\n",
       "spec.spool.circuit.probe_after_ms", "from 100 to 86400000"),
    no("B-51", WHOLE, "ordering: none\n", "ordering: strict\n", "spec.spool.ordering",
       "use one of global, per_key, none"),
    no("B-52", WHOLE, 'message.headers["x-device"]\n', 'message.headers["x-device"\n',
       "spec.spool.ordering_key", "Syntax error"),
    no("B-52", WHOLE, 'message.headers["x-device"]\n', "device-id\n",
       "spec.spool.ordering_key", "undeclared reference to 'device'"),
    no("B-53", WHOLE, "max_age_hours: 24\n", "max_age_hours: 0\n",
       "spec.spool.retention.max_age_hours", "from 1 to 8784"),
    no("B-54", WHOLE, "max_bytes: 512Mi\n", "max_bytes: 512MB\n", "spec.spool.retention.max_bytes",
       "must be a whole number of bytes, or a text such as 512Mi or 50Gi"),
    no("B-54", WHOLE, "max_bytes: 512Mi\n", "max_bytes: 0\n", "spec.spool.retention.max_bytes",
       "0 is out of range; from 1 to 1024Ti"),
    no("B-54", WHOLE, "max_bytes: 512Mi\n", "max_bytes: 2048Ti\n", "spec.spool.retention.max_bytes",
       "2048Ti is out of range"),
    no("B-54", WHOLE, "max_bytes: 512Mi\n", "max_bytes: 1.5Gi\n", "spec.spool.retention.max_bytes",
       "must be a whole number of bytes"),
    no("B-54", WHOLE, "max_bytes: 512Mi\n", "max_bytes: true\n", "spec.spool.retention.max_bytes",
       "must be a whole number of bytes"),
    no("B-55", WHOLE, "drop_to_dlq\n", "drop\n", "spec.spool.retention.on_full",
       "use one of stop_acking, drop_to_dlq, alert_only"),
    Refused("B-56", WHOLE, (("ordering: none", "ordering: global"),
                            ("interleave\n", f"interleave{MARK}\n")),
            "spec.spool.drain.on_recovery",
            "interleave cannot keep a global order; write ordered_then_live, or another ordering"),
    no("B-56", WHOLE, "interleave\n", "live\n", "spec.spool.drain.on_recovery",
       "use one of ordered_then_live, interleave"),
    no("B-57", WHOLE, "rate_per_sec: 0.5\n", "rate_per_sec: 0\n", "spec.spool.drain.rate_per_sec",
       "from 0.001 to 100000 is allowed"),
    no("B-57", WHOLE, "rate_per_sec: 0.5\n", "rate_per_sec: .inf\n",
       "spec.spool.drain.rate_per_sec", "inf is out of range"),
    no("B-57", WHOLE, "rate_per_sec: 0.5\n", "rate_per_sec: .nan\n",
       "spec.spool.drain.rate_per_sec", "nan is out of range"),
    no("B-58", WHOLE, "max_replay_attempts: 3\n", "max_replay_attempts: 0\n",
       "spec.spool.drain.max_replay_attempts", "from 1 to 1000"),
    no("B-59", PULL, END, f"{END}  dedup: {{}}\n", "spec.dedup.window_secs",
       "is required: for how long a key counts"),
    no("B-59", WHOLE, "key: payload.id\n", "key: payload.id ==\n", "spec.dedup.key",
       "at position 13: Syntax error"),
    no("B-59", WHOLE, "key: payload.id\n", "key: '{payload.id: 1}'\n", "spec.dedup.key",
       "must be a text, or what has one, this is map"),
    no("B-59", WHOLE, "key: payload.id\n", "key: \"payload.id.matches('(') ? 'a' : 'b'\"\n",
       "spec.dedup.key", "at position 18: "),
    no("B-59", WHOLE, "key: payload.id\n", "key: \"'payload' + 'message'\"\n", "spec.dedup.key",
       "is the same for every message: it reads neither payload nor message"),
    no("B-59", WHOLE, "key: payload.id\n", "key: \"'always'\"\n", "spec.dedup.key",
       "is the same for every message: it reads neither payload nor message"),
    no("B-59", WHOLE, "key: payload.id\n", "key: event_id + 'a'\n", "spec.dedup.key",
       "undeclared reference to 'event_id'"),
    no("B-59", WHOLE, "key: payload.id\n", f"key: {'a' * 4097}\n", "spec.dedup.key",
       "is longer than 4096 bytes"),
    no("B-60", WHOLE, "max_dispatch_per_sec: 40\n", "max_dispatch_per_sec: 0\n",
       "spec.limits.max_dispatch_per_sec", "from 0.001 to 100000"),
    no("B-60", WHOLE, "    max_in_flight: 200\n", "    max_in_flight: 0\n",
       "spec.limits.max_in_flight", "from 1 to 100000"),
    no("B-61", PUSH, "type: hmac_sha256\n", "type: hmac_sha256\n      scheme: strip\n",
       "spec.ingress.verify.scheme", "did you mean stripe?"),
    no("B-61", verified_by("bearer"), "secret: s\n", "secret: s\n      scheme: raw\n",
       "spec.ingress.verify.scheme", "belongs to hmac_sha256, and this is type bearer"),
    no("B-62", WHOLE, "min: 2\n", "min: 13\n", "spec.scaling.keda.min",
       "13 is more than max, which is 12"),
    no("B-62", WHOLE, "trigger: kafka\n", "triger: kafka\n", "spec.scaling.keda.triger",
       "did you mean trigger? known here: trigger, min, max, lag_threshold"),
    without("B-62", WHOLE, "      trigger: kafka\n", "spec.scaling.keda.trigger", "is required",
            at="    keda:"),
    no("B-64", PULL, "  stream: ORDERS\n", "  straem: ORDERS\n", "spec.straem",
       "there is no such key; did you mean stream? known here: source, mode, activation"),
    no("B-64", PULL, "  dispatch:\n", "  workflow: {}\n  dispatch:\n", "spec.workflow",
       "there is no such key")._replace(
           changes=(("  dispatch:\n", f"  workflow: {{}}{MARK}\n  dispatch:\n"),)),
    no("B-64", PULL, END, f"{END}metadta: {{}}\n", "metadta", "did you mean metadata?"),
    no("B-64", WHOLE, "header: X-Schema\n", "header: X-Schema\n        alowed: [a]\n",
       "spec.headers.directives[5].alowed", "did you mean allowed?"),
]  # fmt: skip

VERIFIERS = [
    no("twilio", verified_by("twilio"), "https://gw.example/ingress/payments\n", "gw.example\n",
       "spec.ingress.verify.public_url", "is not http://HOST or https://HOST"),
    without("twilio", verified_by("twilio"),
            "      public_url: https://gw.example/ingress/payments\n",
            "spec.ingress.verify.public_url", "is required for type twilio", at="    verify:"),
    without("api_key", verified_by("api_key"), "      header: X-Api-Key\n",
            "spec.ingress.verify.header", "is required for type api_key", at="    verify:"),
    without("basic", verified_by("basic"), "      secret: s\n", "spec.ingress.verify.secret",
            "is required for type basic", at="    verify:"),
    no("jwt", verified_by("jwt"), "https://id.example/keys\n", "http://id.example/keys\n",
       "spec.ingress.verify.jwks_url", "http:// is for this machine alone"),
    without("jwt", verified_by("jwt"), "      issuer: https://id.example\n",
            "spec.ingress.verify.issuer", "is required for type jwt", at="    verify:"),
    no("aws_sns", verified_by("aws_sns"), "['arn:aws:sns:eu-west-1:123456789012:orders']\n", "[]\n",
       "spec.ingress.verify.topic_arns", "must not be empty"),
    no("aws_sns", verified_by("aws_sns"), "['arn:aws:sns:eu-west-1:123456789012:orders']\n",
       "[orders]\n", "spec.ingress.verify.topic_arns[0]", "orders is not the ARN of an SNS topic"),
    no("hmac", verified_by("hmac"), 'parts: "{timestamp}.{body}"\n', 'parts: "{time}.{body}"\n',
       "spec.ingress.verify.parts", "is not a text with {body} in it once"),
    no("hmac", verified_by("hmac"), 'parts: "{timestamp}.{body}"\n', 'parts: "{timestamp}"\n',
       "spec.ingress.verify.parts", "is not a text with {body} in it once"),
    without("hmac", verified_by("hmac"), "      timestamp_header: X-Time\n",
            "spec.ingress.verify.timestamp_header", "is required, as parts has {timestamp}",
            at="    verify:"),
    no("hmac", verified_by("hmac"), 'parts: "{timestamp}.{body}"\n', 'parts: "{id}.{body}"\n',
       "spec.ingress.verify.parts", "ingress.message_id must name the header with the id"),
    Refused("hmac", verified_by("hmac"), (('"{timestamp}.{body}"', '"{url}{body}"'),
            ("    verify:\n", f"    verify:{MARK}\n")), "spec.ingress.verify.public_url",
            "is required, as parts has {url}"),
    no("hmac", verified_by("hmac"), "algorithm: sha512\n", "algorithm: md5\n",
       "spec.ingress.verify.algorithm", "use one of sha1, sha256, sha512"),
    no("hmac", verified_by("hmac"), "tolerance_secs: 60\n", "tolerance_secs: 0\n",
       "spec.ingress.verify.tolerance_secs", "from 1 to 86400"),
    no("message_id", PUSH, "/ingress/payments\n", "/ingress/payments\n    message_id: payload.\n",
       "spec.ingress.message_id", "Syntax error"),
    no("ordering_key", PUSH, "/ingress/payments\n",
       "/ingress/payments\n    ordering_key: '[payload.a]'\n", "spec.ingress.ordering_key",
       "must be a text, or what has one, this is list"),
    no("key", PULL, END, f"{END}  '[key]': 1\n", "spec.[key]", "there is no such key"),
    no("key", PULL, "kind: Subscription\n", "kind: Subscription\n'[key]': 1\n",
       "[key]", "there is no such key"),
    no("key", WHOLE, "1: plant\n", "'[key]': 1\n", "spec.headers.directives[2].map.[key]",
       "1 is not a text"),
    no("key", WHOLE, "1: plant\n", "'': plant\n", "spec.headers.directives[2].map.",
       "must not be empty"),
    *(no("pattern", FILES, "'*.jsonl'\n", f"{pattern}\n", "spec.pattern",
         "is not a pattern of files in the folder, such as *.jsonl or orders/**/*.txt: with neither"
         " .. nor a leading /, and ** only as a whole folder")
      for pattern in ("'**.jsonl'", "a**/b", "x/***", "../x", "a/../b", "..", ".", "./x", "/x", "/",
                      "a//b", "a/")),
    no("downstream", WHOLE, "name: mail\n", "name: ledger-db\n", "spec.spool.downstreams[1].name",
       "another downstream has this name already"),
    no("downstream", WHOLE, "tcp: db.example:5432\n", "tcp: db.example\n",
       "spec.spool.downstreams[0].probe.tcp", "db.example is not HOST:PORT"),
    no("downstream", WHOLE, "http://mail.internal:8080/health\n", "http://u:p@mail/health\n",
       "spec.spool.downstreams[1].probe.http", "contains a login"),
    no("downstream", WHOLE, "nats://a:4222,b:4222\n", "nats://u:p@a:4222\n",
       "spec.spool.downstreams[2].probe.nats",
       "contains a login, which a document must not; write nats://HOST:PORT[,HOST:PORT]"),
    no("downstream", WHOLE, "tcp: db.example:5432\n", "tcp: u:p@db.example:5432\n",
       "spec.spool.downstreams[0].probe.tcp",
       "contains a login, which a document must not; write HOST:PORT"),
    Refused("downstream", WHOLE, (("        probe:\n          tcp: db.example:5432\n",
            f"        probe: {{}}{MARK}\n"),), "spec.spool.downstreams[0].probe",
            "must be one of http, tcp and nats"),
    Refused("downstream", WHOLE, (("        probe:\n          tcp: db.example:5432\n",
            f"        probe:{MARK}\n          tcp: a:1\n          http: http://a\n"),),
            "spec.spool.downstreams[0].probe", "must be one of http, tcp and nats"),
    no("downstream", PULL, END, f"{END}  spool: {{downstreams: []}}\n", "spec.spool.downstreams",
       "must not be empty"),
    no("hybrid", WHOLE, "after_ms: 60000\n", "after_ms: 0\n", "spec.spool.hybrid.after_ms",
       "from 1 to"),
    without("file", FILES, "  folder: /var/inbox\n", "spec.folder", "is required for source file",
            at="spec:"),
    no("pubsub push", PUSH.replace("webhook", "pubsub"), "mode: push\n",
       "mode: push\n  subscription: projects/a/subscriptions/abc\n", "spec.subscription",
       "belongs to pull, and this is source pubsub; remove it"),
]  # fmt: skip


def document(refused: Refused) -> tuple[str, int]:
    """The document of a row, and the line that is marked in it."""
    text = refused.base
    for old, new in refused.changes:
        assert text.count(old) == 1, f"{old!r} is there {text.count(old)} times"
        text = text.replace(old, new)
    (line,) = (n for n, line in enumerate(text.splitlines(), 1) if line.endswith(MARK))
    return text, line


EACH = [*REFUSED, *VERIFIERS]


@pytest.mark.parametrize("refused", EACH, ids=[f"{r.row} {r.field} {r.says[:24]}" for r in EACH])
def test_what_is_refused(refused: Refused) -> None:
    text, line = document(refused)
    with pytest.raises(InvalidArgument) as caught:
        read_document(text)
    fault = caught.value
    assert (fault.field, fault.line) == (refused.field, line), str(fault)
    assert refused.says in str(fault)
    assert str(fault).endswith(f"(line {line})")
    assert "\n" not in str(fault)


def test_there_is_one_for_each_row_of_the_form() -> None:
    """Not for those that are about the whole: B-63 is this file, B-65 the schema, B-66 a table."""
    rows = {int(refused.row.removeprefix("B-")) for refused in REFUSED}
    assert rows == set(range(1, 65)) - {63}


@pytest.mark.parametrize(
    ("text", "field", "line", "says"),
    [
        ("", "document", None, "must be a document of kind: Subscription"),
        ("# nothing\n\n- a\n", "document", 3, "must be a document of kind: Subscription"),
        ("just a text", "document", 1, "must be a document"),
        ("spec: [", "document", 1, "is not YAML: line 1, column 8"),
        ("{}", "apiVersion", 1, "is required"),
        ("kind: Playbook\nworkflow: []\n", "kind", 1, "use one of Subscription"),
        (PULL + "---\n" + PULL, "document", 15, "but found another document"),
        (PULL.replace("nats_main", "&a nats_main"), "document", 10, "anchors are not allowed"),
        (PULL.replace("nats_main", "!secret nats_main"), "document", 10, "tags are not allowed"),
        (PULL + "  stream: ORDERS\n", "spec.stream", 15, "is listed twice; remove one"),
        (PULL + "  dedup:\n    window_secs: " + "9" * 30, "spec.dedup.window_secs", 16, "64 bits"),
        (PULL + "  a:" + " {a:" * 20, "document", 15, "it is nested too deeply"),
        ('{"apiVersion": "tape/v1",\n "kind": Subscription}', "metadata", 1, "is required"),
        ('{"apiVersion": "tape/v1",\n "kind": [\n}', "document", 3, "is not JSON: line 3"),
        ("apiVersion: tape/v1\nkind: Subscription\nmetadata:\nspec:\n", "metadata", 3,
         "an empty value is not a block of keys"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_the_whole(text: str, field: str, line: int | None, says: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        read_document(text)
    assert (caught.value.field, caught.value.line) == (field, line)
    assert says in str(caught.value)


@pytest.mark.parametrize("url", ["'https://[::1'", "https://", "https://a:b", "'https://a b'"])
def test_urls_of_servers_that_are_none(url: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        read_document(WHOLE.replace("tapes://tape.example:7878", url))
    assert caught.value.field == "spec.runtime.server_url"
    assert "is not https://HOST or tapes://HOST:PORT" in str(caught.value)


LOGINS = (
    "nats://ann:hunter2@broker:4222", "ann:hunter2@broker:4222",
    "a" * 60 + "://ann:hunter2@broker", "nats://ann:x/y@hunter2 @broker",
)  # fmt: skip


@pytest.mark.parametrize("login", LOGINS)
@pytest.mark.parametrize("name", WORKING)
def test_no_refusal_repeats_a_login(name: str, login: str) -> None:
    """Wherever in a document somebody writes the address of a broker with its password."""
    whole = json.loads(read_document(WORKING[name]).canonical_json)
    for holder, key in _places(whole):
        kept = holder[key]
        for value in (login, [login], {login: 1}):
            holder[key] = value
            assert "hunter2" not in _refusal(json.dumps(whole))
        holder[key] = kept


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Whatever has a value, and where in it."""
    if isinstance(value, dict | list):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from _places(value[key])


def _refusal(text: str) -> str:
    try:
        read_document(text)
    except InvalidArgument as fault:
        return f"{fault} {fault.field}"
    return ""


def test_size() -> None:
    at_limit = PULL + "#" * (64 * 1024 - len(PULL))
    assert read_document(at_limit) == read_document(PULL)
    with pytest.raises(TooLarge, match="65537 bytes, the limit is 65536"):
        read_document(at_limit + "#")


def test_texts_that_look_like_booleans() -> None:
    """`off`, `yes`, `on` and `no` are words."""
    text = WHOLE.replace("          yes: plant\n", "          yes: off\n          on: no\n")
    headers = read_document(text).spec.headers
    assert headers is not None
    assert dict(headers.directives[2].pools) == {
        "high": "alarms", "yes": "off", "on": "no", "1": "plant",
    }  # fmt: skip


def test_the_first_fault_only() -> None:
    text = PULL.replace("stream: ORDERS", "stream: a b").replace("pull", "poll")
    with pytest.raises(InvalidArgument) as caught:
        read_document(text)
    assert (caught.value.field, caught.value.line) == ("spec.mode", 8)


def test_an_unknown_key_is_told_before_the_missing_one() -> None:
    with pytest.raises(InvalidArgument) as caught:
        read_document(PULL.replace("mode: pull", "mod: pull"))
    assert caught.value.field == "spec.mod"


def test_json_is_refused_by_line_as_well() -> None:
    text = (
        '{\n "apiVersion": "tape/v1",\n "kind": "Subscription",\n "metadata": {\n  "name": 5\n }\n}'
    )
    with pytest.raises(InvalidArgument) as caught:
        read_document(text)
    assert (caught.value.field, caught.value.line) == ("spec", 1)
    with pytest.raises(InvalidArgument) as caught:
        read_document(text.replace("}\n}", '},\n "spec": {}\n}'))
    assert (caught.value.field, caught.value.line) == ("metadata.path", 4)


def test_a_secret_that_stands_in_the_place_of_an_alias_is_not_repeated() -> None:
    secret = "whsec_" + "x" * 600
    with pytest.raises(InvalidArgument) as caught:
        read_document(PUSH.replace("payments_secret", secret))
    assert "whsec" not in str(caught.value)
    with pytest.raises(InvalidArgument) as caught:
        read_document(WHOLE.replace("tapes://tape", "tapes://user:hunter2@tape"))
    assert "hunter2" not in str(caught.value)
