"""Kafka into the journal by Spark's own connector, from the command line.

A session takes its connector along when it starts, so this one is a process of its own.
"""

import json
import subprocess
import sys
from base64 import b64encode
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import tape

pytest.importorskip("confluent_kafka", reason="Kafka tests need the extra kafka")

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.pipeline.ingest.subscribed import became, document, listen, put_credential, register
from tests.servers.kafka import KafkaServer, KafkaUnavailable
from tests.servers.maven import JarsUnavailable
from tests.servers.spark_kafka import spark_kafka_jars


@pytest.mark.middle
@pytest.mark.timeout(600)
def test_a_topic_by_partition_and_offset(sqlite_url: str, tmp_path: Path) -> None:
    try:
        server = KafkaServer()
        connector = spark_kafka_jars()
    except (KafkaUnavailable, JarsUnavailable) as reason:
        pytest.skip(f"a real Kafka or Spark's connector for it is out of reach: {reason}")
    with tape.connect(sqlite_url):
        """Makes the store, which no job does."""
    with server:
        _fill(server.address)
        command = [
            sys.executable, "-m", "tape.cli", "pipeline", "ingest", "kafka", "--store", sqlite_url,
            "--server", server.address, "--topic", "orders", "--event-type-from", "kind",
            "--checkpoint", str(tmp_path / "point"), "--quarantine", str(tmp_path / "bad"),
            "--master", "local[2]", "--conf", "spark.sql.shuffle.partitions=2",
            "--conf", f"spark.jars={connector}", "--json",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)
        assert done.returncode == 0, done.stderr[-3000:]
    summary = json.loads(done.stdout.splitlines()[-1])
    assert {name: summary[name] for name in ("read", "written", "duplicates", "quarantined")} == {
        "read": 6, "written": 3, "duplicates": 0, "quarantined": 3,
    }  # fmt: skip
    with tape.connect(sqlite_url) as client:
        found = list(client.follow(live=False))
    assert sorted((e.idempotency_key, e.event_type, e.payload_json) for e in found) == [
        ("kafka/orders/0/0", "placed", '{"n":1}'),
        ("kafka/orders/0/1", "placed", '{"n":1}'),
        ("kafka/orders/1/0", "paid", '{"kind":"paid"}'),
    ]
    bad = [
        row
        for file in (tmp_path / "bad").rglob("*.parquet")
        for row in pq.ParquetFile(file).read().to_pylist()
    ]
    bad.sort(key=lambda row: row["position"])
    assert [(row["position"], row["key"], row["raw"]) for row in bad] == [
        ("kafka/orders/0/2", "k", "{"),
        ("kafka/orders/1/1", "k\ufffd", "\ufffd"),
        ("kafka/orders/1/2", "k", "1"),
    ]
    assert bad[2]["reason"] == "header kind: is not UTF-8"
    assert [(row["raw_bytes"], row["key_bytes"]) for row in bad] == [
        (None, None), (b"\xff", b"k\xfe"), (None, None),
    ]  # fmt: skip
    assert [row["headers"] for row in bad[1:]] == [
        [{"name": "Kind", "value": b"placed"}], [{"name": "Kind", "value": b"\xfd"}],
    ]  # fmt: skip


@pytest.mark.middle
@pytest.mark.timeout(600)
def test_a_topic_of_a_subscription_that_its_listener_meets_afterwards(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        server = KafkaServer()
        connector = spark_kafka_jars()
    except (KafkaUnavailable, JarsUnavailable) as reason:
        pytest.skip(f"a real Kafka or Spark's connector for it is out of reach: {reason}")
    monkeypatch.setenv("TAPE_WALLET_KEY", b64encode(bytes(range(32))).decode())
    changes = {"source": "kafka", "auth": "kafka_main", "topic": "orders", "group": "g"}
    register(sqlite_url, document("", **changes, stream=None, consumer=None), "activate")
    with server:
        credential = {"bootstrap.servers": server.address}
        put_credential(sqlite_url, credential, "kafka_main")
        _fill(server.address)
        command = [
            sys.executable, "-m", "tape.cli", "pipeline", "ingest", "--subscription", "events",
            "--store", sqlite_url, "--checkpoint", str(tmp_path / "point"), "--master", "local[2]",
            "--conf", f"spark.jars={connector}", "--json",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)
        assert done.returncode == 0, done.stderr[-3000:]
        loaded = became(sqlite_url)
        row = listen(sqlite_url, credential, 12)
    summary = json.loads(done.stdout.splitlines()[-1])
    assert {name: summary[name] for name in ("read", "accepted", "dead_lettered")} == {
        "read": 6, "accepted": 4, "dead_lettered": 2,
    }  # fmt: skip
    assert (row.accepted, row.dead_lettered, row.redelivered) == (4, 2, 6)
    assert became(sqlite_url) == loaded
    assert {run[3].partition("@")[0] for run in loaded.runs} == {"kafka/orders"}


def _fill(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    for made in admin.create_topics([NewTopic("orders", 2, 1)]).values():
        made.result(30)
    producer = Producer({"bootstrap.servers": address})
    for partition, key, body, headers in (
        (0, b"k", b'{"n":1}', {"Kind": b"placed"}),
        (0, b"k", b'{"n":1}', {"Kind": b"placed"}),
        (0, b"k", b"{", {"Kind": b"placed"}),
        (1, b"k", b'{"kind":"paid"}', {}),
        (1, b"k\xfe", b"\xff", {"Kind": b"placed"}),
        (1, b"k", b"1", {"Kind": b"\xfd"}),
    ):
        producer.produce("orders", body, key=key, partition=partition, headers=[*headers.items()])
    assert producer.flush(30) == 0
