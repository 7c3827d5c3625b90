"""With a listener at the url of a server: a message that no request can hold becomes a dead letter,
and those behind it go on."""

import asyncio
import hashlib
import json
from base64 import b64decode
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml
from nats.js.api import AckPolicy, ConsumerConfig

import tape
from tape.brokers.nats_connection import NatsConnection
from tape.client import AsyncTapeClient
from tape.model.subscription import SubscriptionDeadLetter
from tape.settings import KIB, MIB
from tape.sources.files_lines import LONGEST_LINE
from tests.integration.docs.pages import ROOT
from tests.integration.subscriptions.listened import BOUND_S, ENVIRONMENT, LOOK_S, until_view
from tests.servers.nats import NatsServer
from tests.servers.tape_server import ServerProcess
from tests.servers.tape_worker import WorkerProcess

LIMITS = {"request_bytes": 256 * KIB, "message_bytes": 64 * KIB, "payload_bytes": 64 * KIB}
"""gRPC itself then takes 4.5 MiB."""
pytestmark = pytest.mark.timeout(300)


def config(folder: Path) -> str:
    path = folder / "tape.yaml"
    listeners = {"lease_s": 2.0, "look_s": LOOK_S}
    told = {"sqlite": {"poll_s": 0.02}, "listeners": listeners, "limits": LIMITS}
    path.write_text(yaml.safe_dump({"tape": told}))
    return str(path)


@pytest.fixture
def server(sqlite_url: str, tmp_path: Path) -> Iterator[ServerProcess]:
    options = ["--no-listen", "--config", config(tmp_path)]
    with ServerProcess(sqlite_url, *options, env=ENVIRONMENT) as process:
        yield process


@asynccontextmanager
async def listened(
    server: ServerProcess, work: Path, **spec: str
) -> AsyncIterator[AsyncTapeClient]:
    """A worker at the server's url, for a subscription to this source."""
    said = {"mode": "pull", "activation": "continuous", "dispatch": {"playbook": "keep"}}
    runtime = {"pool": "edge", "timeout_ms": 200}
    metadata = {"name": "edge", "path": "subscriptions/edge"}
    kind = {"apiVersion": "tape/v1", "kind": "Subscription", "metadata": metadata}
    command = ["-m", "tape.cli", "worker", "--listen", "edge", "--url", server.url]
    env = {**ENVIRONMENT, "PYTHONPATH": str(ROOT / "src")}
    async with tape.connect_async(server.url) as client:
        text = yaml.safe_dump({**kind, "spec": {**said, **spec, "runtime": runtime}})
        await client.register_subscription(text)
        await client.move_subscription("edge", "activate")
        command += ["--config", str(work / "tape.yaml")]
        with WorkerProcess(*command, log=work / "worker.log", folder=work, env=env):
            yield client


async def letters_of(client: AsyncTapeClient, count: int) -> list[SubscriptionDeadLetter]:
    """The dead letters, once the message behind them was accepted."""
    await until_view(client, "edge", lambda view: view.listener.accepted == 1)
    letters = await client.subscription_dead_letters("edge")
    assert [letter.reason for letter in letters] == ["too_large"] * count
    return letters


async def test_lines_of_files(server: ServerProcess, tmp_path: Path) -> None:
    """One that the server refuses, one that gRPC refuses, one that the source cuts off, and one
    after which a run begins."""
    lines = [bytes([65 + n]) * size for n, size in enumerate((300 * KIB, 6 * MIB, 17 * MIB))]
    folder = tmp_path / "inbox"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(b"\n".join([*lines[:2], lines[2] + b"\r", b"7", b""]))
    assert len(lines[2]) > LONGEST_LINE
    async with listened(server, tmp_path, source="file", folder=str(folder)) as client:
        letters = await letters_of(client, 3)
        for letter, line in zip(letters, lines, strict=True):
            assert f"the body has {len(line)} bytes, which is too many to pass on" in letter.detail
            assert hashlib.sha256(line).hexdigest() in letter.detail
            assert line.startswith(b64decode(letter.body))
        view = await client.subscription("edge")
        assert (view.listener.dead_lettered, view.listener.last_error) == (3, "")


async def test_messages_of_nats(
    server: ServerProcess, nats_server: NatsServer, tmp_path: Path
) -> None:
    body = json.dumps("n" * 900_000).encode()
    async with tape.connect_async(server.url) as client:
        login = json.dumps({"servers": [f"nats://{nats_server.address}"]})
        await client.put_credential("edge", login)
    connection = await NatsConnection.open([nats_server.address], {}, "nats")
    await connection.jetstream.add_stream(name="large", subjects=["large"])
    durable = ConsumerConfig(durable_name="tape", ack_policy=AckPolicy.EXPLICIT)
    await connection.jetstream.add_consumer("large", durable)
    await connection.jetstream.publish("large", body)
    await connection.jetstream.publish("large", b"7")
    spec = {"source": "nats", "auth": "edge", "stream": "large", "consumer": "tape"}
    async with listened(server, tmp_path, **spec) as client:
        (letter,) = await letters_of(client, 1)
        assert f"the body has {len(body)} bytes" in letter.detail
        async with asyncio.timeout(BOUND_S):  # it acknowledges what is accepted
            while await last_acknowledged(connection) != 2:  # noqa: ASYNC110 - only asking tells
                await asyncio.sleep(LOOK_S)
    await connection.close()


async def last_acknowledged(connection: NatsConnection) -> int:
    """Of the stream `large`, the number of the message up to which all are acknowledged."""
    info = await connection.jetstream.consumer_info("large", "tape")
    return info.ack_floor.stream_seq if info.ack_floor else 0
