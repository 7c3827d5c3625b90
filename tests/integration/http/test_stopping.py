"""The HTTP door at its end, and while the store is away."""

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack
from typing import Any

import grpc
import httpx
import psycopg
import pytest

import tape
from tape.api.auth import Tokens
from tape.api.embedded_server import DRAIN_S
from tape.api.grpc.server import GrpcServer
from tape.api.http.door import Door
from tape.api.http_server import HttpServer, server_app
from tape.model.event_subscription import NewEventSubscription
from tape.programs.connect import open_bus
from tape.programs.store_gauges import refresh_metrics
from tape.settings import Limits
from tape.wire.v1 import tape_pb2 as pb
from tape.wire.v1.tape_pb2_grpc import TapeStub
from tests.servers.postgres import PostgresServer
from tests.servers.tape_server import ServerProcess


@pytest.fixture
def own_postgres(postgres_server: PostgresServer) -> Iterator[PostgresServer]:
    """A server that this test may stop; where none can be had, the shared one has said so."""
    with PostgresServer() as server:
        yield server


def test_ready_says_when_the_store_is_away(own_postgres: PostgresServer) -> None:
    url = own_postgres.create_database("tape_http")
    with (
        ServerProcess(url) as server,
        httpx.Client(base_url=f"http://{server.http}", timeout=60) as client,
    ):
        _until_ready(client)
        own_postgres.kill()
        away = client.get("/readyz")
        assert away.status_code == 503
        error = away.json()["error"]
        assert error["reason"] == "STORE_UNAVAILABLE"
        assert str(own_postgres.port) not in error["message"]
        refused = client.get("/api/events/recent")
        assert refused.status_code == 503
        assert str(own_postgres.port) not in refused.text
        assert client.get("/healthz").status_code == 200
        scraped = client.get("/metrics")
        assert scraped.status_code == 200
        assert "\ntape_store_up 0.0\n" in scraped.text
        own_postgres.start()
        _until_ready(client)
        assert "\ntape_store_up 1.0\n" in client.get("/metrics").text


def test_ready_does_not_wait_for_a_store_that_hangs(own_postgres: PostgresServer) -> None:
    url = own_postgres.create_database("tape_http")
    with (
        ServerProcess(url) as server,
        httpx.Client(base_url=f"http://{server.http}", timeout=60) as client,
    ):
        with psycopg.connect(url) as holder:
            holder.execute("LOCK TABLE tape_journal IN ACCESS EXCLUSIVE MODE")
            away = client.get("/readyz", timeout=10)
        assert away.status_code == 503
        assert "did not answer within 2 s" in away.json()["error"]["message"]
        _until_ready(client)


def _until_ready(client: httpx.Client) -> None:
    """Each answer takes two seconds at most, and busy cores may take that long to connect."""
    give_up = time.monotonic() + 60
    while (answer := client.get("/readyz")).status_code != 200:
        assert time.monotonic() < give_up, answer.text


def test_open_connections_do_not_keep_a_server_from_ending(sqlite_url: str) -> None:
    with ServerProcess(sqlite_url) as server:
        host, port = server.http.split(":")
        with (
            httpx.Client(base_url=f"http://{server.http}", timeout=60) as idle,
            socket.create_connection((host, int(port))) as half,
        ):
            assert idle.get("/healthz").status_code == 200
            half.sendall(b"GET /healthz HTTP/1.1\r\nHo")
            assert server.stop() == 0


def test_answers_that_nobody_reads_do_not_keep_a_server_from_ending(sqlite_url: str) -> None:
    """A second request on the connection waits until the first answer is taken."""
    with ServerProcess(sqlite_url) as server:
        with tape.connect(server.url) as client:
            for _ in range(10):
                client.record("a", "x" * 900_000)
        host, port = server.http.split(":")
        with socket.socket() as unread:
            unread.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            unread.connect((host, int(port)))
            unread.sendall(b"GET /api/events/recent HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2)
            unread.recv(1)  # the first has begun to be answered
            began = time.monotonic()
            assert server.stop() == 0
            assert time.monotonic() - began < DRAIN_S / 2


@pytest.mark.parametrize("door", ["grpc", "http"])
async def test_a_pass_that_waits_for_a_run_does_not_keep_a_server_from_ending(
    sqlite_url: str, door: str
) -> None:
    bus = await open_bus(sqlite_url)
    await bus.ledger.put_event_subscription(NewEventSubscription("s", "a", "nobody's"))
    await bus.record_events([tape.NewEvent("a")])
    async with AsyncExitStack() as stack:
        server: GrpcServer | HttpServer
        if door == "grpc":
            server = GrpcServer(bus, Limits(), Tokens())
            address = await server.start("127.0.0.1:0")
            channel = await stack.enter_async_context(grpc.aio.insecure_channel(address))
            stub: Any = TapeStub(channel)
            asking = asyncio.ensure_future(stub.DrainEvents(pb.DrainEventsRequest(await_s=60)))
        else:
            entrance = Door(bus, Tokens(), lambda: refresh_metrics(bus))
            server = HttpServer(lambda: server_app(entrance, {}), entrance)
            base = f"http://{await server.start('127.0.0.1:0')}"
            client = await stack.enter_async_context(httpx.AsyncClient(base_url=base, timeout=60))
            asking = asyncio.ensure_future(client.post("/api/events/drain", json={"await_s": 60}))
        async with asyncio.timeout(20):
            while not (await bus.info()).head_global_seq > 2:  # the run has begun
                assert not asking.done()
        began = time.monotonic()
        await server.stop()
        assert time.monotonic() - began < DRAIN_S / 2
        answer: Any = (await asyncio.gather(asking, return_exceptions=True))[0]
        if door == "grpc":
            assert answer.code() is grpc.StatusCode.UNAVAILABLE
        else:
            assert answer.status_code == 503
        (state,) = await bus.ledger.list_drainers()
        assert not state.drainer.lease_owner
    await bus.close()


def test_streams_that_nobody_reads_do_not_keep_a_server_from_ending(sqlite_url: str) -> None:
    with ServerProcess(sqlite_url) as server, ExitStack() as stack:
        with tape.connect(server.url) as client:
            for _ in range(10):
                client.record("a", "x" * 900_000)
        own = [("grpc.use_local_subchannel_pool", 1)]
        calls = []
        for _ in range(10):
            address = server.url.removeprefix("tape://")
            channel = stack.enter_context(grpc.insecure_channel(address, options=own))
            stub: Any = TapeStub(channel)
            calls.append(stub.FollowEntries(pb.FollowEntriesRequest(subject_pattern="/**")))
        for call in calls:
            next(call)
        began = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - began < DRAIN_S / 2
