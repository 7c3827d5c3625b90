"""Clients that do not finish what they begin, or do not read what they asked for."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx
import pytest

from tape.programs.serve import Addresses
from tape.settings import KIB, DoorSettings, Settings
from tests.integration.http.conftest import Serving

HEAD = b"GET /api/events/recent HTTP/1.1\r\nHost: localhost\r\nX-A: "
BODY = (
    b"POST /api/events/record HTTP/1.1\r\nHost: localhost\r\ncontent-type: application/json\r\n"
    b"content-length: 1000\r\n\r\n{"
)
Opening = Callable[[bytes], Any]


@asynccontextmanager
async def connected(http: str) -> AsyncIterator[Opening]:
    """Opens connections that send something and no more, and closes them all at the end."""
    host, port = http.split(":")
    async with AsyncExitStack() as stack:

        async def open_one(text: bytes) -> asyncio.StreamReader:
            reader, writer = await asyncio.open_connection(host, int(port), limit=KIB)
            stack.callback(writer.close)
            writer.write(text)
            await writer.drain()
            return reader

        yield open_one


def quick(**fields: Any) -> Settings:
    return Settings(doors=DoorSettings(**fields))


async def ended(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(10):
        try:
            return await reader.read()
        except ConnectionError:
            return b""


async def metric(client: httpx.AsyncClient, name: str) -> float:
    lines = (await client.get("/metrics")).text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


@pytest.mark.parametrize(("text", "why"), [(HEAD, "head"), (b"", "head"), (BODY, "body")])
async def test_a_part_that_is_late_ends_the_connection(
    sqlite_url: str, serving: Serving, text: bytes, why: str
) -> None:
    # Long enough for the requests of whoever counts, also on busy cores.
    http = await http_of(serving, sqlite_url, header_s=1.0, body_s=1.0)
    async with (
        connected(http) as opening,
        httpx.AsyncClient(base_url=f"http://{http}", timeout=60) as client,
    ):
        name = f'tape_cut_off_total{{why="{why}"}}'
        before = await metric(client, name)
        answer = await ended(await opening(text))
        assert answer.startswith(b"HTTP/1.1 408") if why == "head" else answer == b""
        assert await metric(client, name) == before + 1


async def test_a_byte_now_and_then_gains_no_time(sqlite_url: str, serving: Serving) -> None:
    http = await http_of(serving, sqlite_url, header_s=0.5)
    host, port = http.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    began = time.monotonic()
    writer.write(HEAD)
    while not reader.at_eof():
        writer.write(b"a")
        try:
            async with asyncio.timeout(0.05):
                await reader.read(KIB)
        except TimeoutError:
            continue
        except ConnectionError:
            break
    writer.close()
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("text", [HEAD, BODY, b""])
async def test_half_requests_drive_out_each_other_and_nobody_else(
    sqlite_url: str, serving: Serving, text: bytes
) -> None:
    http = await http_of(serving, sqlite_url, connections=20, requests=5)
    async with (
        connected(http) as opening,
        httpx.AsyncClient(base_url=f"http://{http}", timeout=60) as client,
    ):
        stream = await opening(
            b"GET /api/events/stream HTTP/1.1\r\nHost: localhost\r\n\r\n"
        )  # one with a whole request, older than all
        await stream.readuntil(b"retry")
        halves = [await opening(text) for _ in range(60)]
        for path in ("/healthz", "/readyz", "/api/events/recent"):
            assert (await client.get(path)).status_code == 200
        body = {"event_type": "a"}
        assert (await client.post("/api/events/record", json=body)).status_code == 200
        assert b"id: 1" in await stream.readuntil(b"id: 1")
        assert await ended(halves[0]) == b""


async def test_health_is_told_when_the_door_is_full(sqlite_url: str, serving: Serving) -> None:
    http = await http_of(serving, sqlite_url, requests=1)
    async with httpx.AsyncClient(base_url=f"http://{http}", timeout=60) as client:
        app = {"workflow_type": "nobody's", "wait_s": 30}

        async def execute() -> None:
            while (await client.post("/api/execute", json=app)).status_code == 429:
                pass

        waiting = asyncio.create_task(execute())
        while (refused := await client.get("/api/events/recent")).status_code == 200:
            pass
        assert refused.status_code == 429
        assert refused.headers["retry-after"] == "1"
        for path in ("/healthz", "/readyz"):
            assert (await client.get(path)).status_code == 200
        waiting.cancel()


async def test_bodies_together_are_bounded(sqlite_url: str, serving: Serving) -> None:
    http = await http_of(serving, sqlite_url, body_bytes=1_500)
    async with httpx.AsyncClient(base_url=f"http://{http}", timeout=60) as client:
        refused = await client.post(
            "/api/events/record", json={"event_type": "a", "payload": "x" * 2_000}
        )
        assert refused.status_code == 429
        fine = await client.post("/api/events/record", json={"event_type": "a"})
        assert fine.status_code == 200


async def test_a_body_counts_until_its_request_is_answered(
    sqlite_url: str, serving: Serving
) -> None:
    http = await http_of(serving, sqlite_url, body_bytes=1_500)
    async with httpx.AsyncClient(base_url=f"http://{http}", timeout=60) as client:
        work = {"workflow_type": "nobody's", "wait_s": 30, "input": "x" * 1_000}

        async def execute() -> None:
            while (await client.post("/api/execute", json=work)).status_code == 429:
                pass

        waiting = asyncio.create_task(execute())
        large = {"event_type": "a", "payload": "x" * 1_000}
        async with asyncio.timeout(20):
            while not (await client.get("/api/runs")).json()["runs"]:
                pass
        refused = await client.post("/api/events/record", json=large)
        assert refused.status_code == 429
        assert "large requests" in refused.text
        assert not waiting.done()
        waiting.cancel()


async def test_a_reader_that_takes_nothing_is_cut_off(
    sqlite_url: str, serving: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    http = await http_of(serving, sqlite_url, write_s=0.3)
    host, port = http.split(":")
    async with httpx.AsyncClient(base_url=f"http://{http}", timeout=30) as client:
        large = {"event_type": "a", "payload": "x" * 900_000}
        for _ in range(10):
            await client.post("/api/events/record", json=large)
        name = 'tape_cut_off_total{why="unread"}'
        before = await metric(client, name)
        with socket.create_connection((host, int(port))) as unread:
            unread.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * KIB)
            unread.sendall(b"GET /api/events/stream?after=0 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            async with asyncio.timeout(20):
                while await metric(client, name) == before:
                    pass
                while await metric(client, "tape_streams_open"):
                    pass
    assert "the client did not read the answer" in caplog.text


async def test_streams_of_a_client_are_bounded(sqlite_url: str, serving: Serving) -> None:
    tokens = "read:one,read:two"
    http = await http_of(serving, sqlite_url, tokens=tokens, streams_per_client=2, streams=3)
    async with connected(http) as opening:

        async def first_line(token: str) -> bytes:
            reader = await opening(
                b"GET /api/events/stream HTTP/1.1\r\nHost: localhost\r\n"
                b"authorization: Bearer %b\r\n\r\n" % token.encode()
            )
            line: bytes = await reader.readline()
            return line.split()[1]

        assert [await first_line("one") for _ in range(3)] == [b"200", b"200", b"429"]
        assert [await first_line("two") for _ in range(2)] == [b"200", b"429"]


async def http_of(serving: Serving, url: str, *, tokens: str | None = None, **fields: Any) -> str:
    addresses: Addresses = await serving(url, settings=quick(**fields), tokens=tokens)
    assert addresses.http is not None
    return addresses.http
