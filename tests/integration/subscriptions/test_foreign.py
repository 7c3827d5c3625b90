"""Messages of programs that nobody here wrote become completed runs, whole.

NATS's own protocol over TCP, kcat, and Google's client with attributes and an ordering key.
"""

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from google.cloud.pubsub_v1 import PublisherClient  # type: ignore[import-untyped]  # no types
from google.cloud.pubsub_v1.types import PublisherOptions  # type: ignore[import-untyped]  # likewise

import tape
from tape.client import AsyncTapeClient
from tests.integration.docs.pages import ROOT
from tests.integration.sources.far_sides import KafkaSide, NatsSide, PubSubSide
from tests.integration.subscriptions.listened import (
    BOUND_S,
    ENVIRONMENT,
    activate,
    gave,
    given,
    inputs,
    settings_file,
    until_done,
)
from tests.servers.kafka import KafkaServer
from tests.servers.nats import NatsServer
from tests.servers.nats_raw import publish_raw
from tests.servers.pubsub import PubSubEmulator
from tests.servers.tape_server import ServerProcess
from tests.servers.tape_worker import WorkerProcess

ROUTED = {
    "directives": [
        {"header": "x-route", "controls": "dispatch.playbook", "allowed": ["keep", "alarm", "b"]}
    ]
}
pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def server(sqlite_url: str, tmp_path: Path) -> Iterator[ServerProcess]:
    """It listens, and a worker runs what becomes of the messages."""
    apps = "tests.integration.subscriptions.desk_apps"
    env = {"WORKS_IN": "default", "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    config = settings_file(tmp_path)
    with ServerProcess(sqlite_url, "--config", config, env=ENVIRONMENT) as process:
        command = ["-m", "tape.cli", "worker", "-m", apps, "--url", process.url]
        command += ["--pool", "subscription"]
        with WorkerProcess(*command, log=tmp_path / "log", folder=ROOT, env=env):
            yield process


@asynccontextmanager
async def listening(
    server: ServerProcess, side: Any, **spec: Any
) -> AsyncIterator[AsyncTapeClient]:
    async with tape.connect_async(server.url) as client:
        await activate(client, side, "foreign", **spec)
        yield client


async def test_nats_over_tcp(nats_server: NatsServer, server: ServerProcess) -> None:
    """A header that stands several times is a list in what the run is given; as a directive its
    last value counts, however it is spelled."""
    side = NatsSide(nats_server)
    await side.make(ack_wait=30)
    async with listening(server, side, headers=ROUTED) as client:
        headers = b"X-Route: keep\r\nX-Route: b\r\nx-route: alarm\r\nX-One: 1\r\n"
        body = b'{"n": [1, "\xc3\xa9"]}'
        subject = f"{side.stream}.desk"
        await asyncio.to_thread(publish_raw, nats_server.address, subject, headers, body)
        (run,) = await until_done(client, "foreign", 1)
        what = await given(client, run)
        message = what["message"]
        assert what["payload"] == {"n": [1, "é"]}
        assert message["headers"] == {"x-route": ["keep", "b", "alarm"], "x-one": "1"}
        assert message["attributes"] == {
            "X-Route": ["keep", "b"], "x-route": "alarm", "X-One": "1",
        }  # fmt: skip
        assert (message["source"], message["subject"]) == ("nats", subject)
        assert (run.app_name, gave(run)["app"]) == ("alarm", "alarm")


@pytest.mark.middle
@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
async def test_kcat(kafka_server: KafkaServer, server: ServerProcess) -> None:
    side = KafkaSide(kafka_server)
    await asyncio.to_thread(side.make)
    async with listening(server, side, headers=ROUTED) as client:
        command = ["kcat", "-P", "-b", kafka_server.address, "-t", side.topic, "-K", ":"]
        command += ["-H", "X-Route=b", "-H", "x-route=keep"]
        sent = b'k1:{"n": 1}\nk2:{"n": 2}\n'
        await asyncio.to_thread(subprocess.run, command, input=sent, check=True, timeout=BOUND_S)
        runs = await until_done(client, "foreign", 2)
        found = await inputs(client, "foreign")
        keyed = {each["message"]["key"]: each["payload"] for each in found}
        assert keyed == {"k1": {"n": 1}, "k2": {"n": 2}}
        assert [each["message"]["headers"] for each in found] == [{"x-route": ["b", "keep"]}] * 2
        assert {gave(run)["app"] for run in runs} == {"keep"}


@pytest.mark.middle
async def test_googles_client(emulator: PubSubEmulator, server: ServerProcess) -> None:
    side = PubSubSide(emulator)
    await side.make()
    async with listening(server, side, headers=ROUTED) as client:
        sent = await asyncio.to_thread(publish_in_order, side)
        runs = await until_done(client, "foreign", 3)
        found = await inputs(client, "foreign")
        assert [each["payload"]["n"] for each in found] == [1, 2, 3]
        assert [each["message"]["id"] for each in found] == sent
        assert {each["message"]["key"] for each in found} == {"desk-7"}
        assert [each["message"]["headers"] for each in found] == [
            {"x-route": "alarm", "n": str(n)} for n in (1, 2, 3)
        ]
        assert [each["message"]["attributes"]["X-Route"] for each in found] == ["alarm"] * 3
        assert {gave(run)["app"] for run in runs} == {"alarm"}


def publish_in_order(side: PubSubSide) -> list[str]:
    """With attributes and an ordering key; the ids that the service gave them."""
    options = PublisherOptions(enable_message_ordering=True)
    publisher = PublisherClient(publisher_options=options)
    sent = [
        publisher.publish(
            side.topic, b'{"n": %d}' % n, ordering_key="desk-7", **{"X-Route": "alarm", "n": str(n)}
        )
        for n in (1, 2, 3)
    ]
    ids = [str(each.result(BOUND_S)) for each in sent]
    publisher.stop()
    return ids
