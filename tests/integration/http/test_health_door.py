"""The door of health: open to anybody, and with nothing behind it but two answers."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, cast

import httpx
import pytest

import tape
from tape.api.health_server import HealthServer
from tape.api.http.health_only import SharedReadiness
from tape.bus import Operations
from tape.errors import StoreUnavailable, TapeError, Unauthenticated
from tape.model.reaction import HandlerKind, NewReaction
from tape.settings import DoorSettings
from tests.integration.http.conftest import TLS, TOKENS, Serving

HALF = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-A: "
CHUNKED = b"GET /readyz HTTP/1.1\r\nHost: h\r\ntransfer-encoding: chunked\r\n\r\n"
Opening = Callable[[bytes], Any]


class Asked:
    """Operations that are asked whether they are there."""

    def __init__(self, refusal: TapeError | None = None) -> None:
        self.times = 0
        self.begun = asyncio.Event()
        self.may_answer = asyncio.Event()
        self._refusal = refusal

    async def info(self) -> None:
        self.times += 1
        self.begun.set()
        await self.may_answer.wait()
        if self._refusal is not None:
            raise self._refusal


@asynccontextmanager
async def asking(asked: Asked, **settings: Any) -> AsyncIterator[tuple[httpx.AsyncClient, Opening]]:
    """A client of the door of health, and how to open a connection that sends a text."""
    server = HealthServer(cast("Operations", asked), DoorSettings(**settings))
    address = await server.start("127.0.0.1:0")
    host, port = address.split(":")
    async with AsyncExitStack() as stack:
        stack.push_async_callback(server.stop)
        client = httpx.AsyncClient(base_url=f"http://{address}", timeout=30)
        await stack.enter_async_context(client)

        async def open_one(text: bytes) -> asyncio.StreamReader:
            reader, writer = await asyncio.open_connection(host, int(port))
            stack.callback(writer.close)
            writer.write(text)
            await writer.drain()
            return reader

        yield client, open_one


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", ":0"])
async def test_it_listens_anywhere_without_a_token(
    store_url: str, serving: Serving, address: str
) -> None:
    addresses = await serving(store_url, health_address=address)
    assert addresses.health is not None
    host, _, port = addresses.health.rpartition(":")
    assert f"{host}:0" == address
    base = f"http://{'[::1]' if host == '[::]' else '127.0.0.1'}:{port}"
    async with httpx.AsyncClient(base_url=base, timeout=60) as client:
        for path in ("/healthz", "/readyz", "/healthz?x=1"):
            answer = await client.get(path, headers={"host": "tape-worker-1.run.app"})
            there = await client.get(f"http://{addresses.http}{path}")
            assert (answer.status_code, answer.content) == (200, there.content)
            assert answer.headers.keys() == there.headers.keys()
            probed = await client.head(path)
            assert (probed.status_code, probed.content) == (200, b"")


async def test_with_tls_and_tokens_it_needs_neither(sqlite_url: str, serving: Serving) -> None:
    addresses = await serving(sqlite_url, health_address="127.0.0.1:0", tokens=TOKENS, **TLS)
    async with httpx.AsyncClient(timeout=60) as client:
        answer = await client.get(f"http://{addresses.health}/readyz")
    assert answer.json() == {"status": "ready"}


async def test_it_is_not_open_unless_asked_for(
    sqlite_url: str, serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PORT", "1")
    monkeypatch.setenv("K_SERVICE", "tape")
    assert (await serving(sqlite_url)).health is None


async def test_nothing_else_is_behind_it() -> None:
    async with asking(Asked()) as (client, _):
        for path in (
            "/", "/metrics", "/openapi.json", "/api/events/recent", "/docs", "/healthz/", "//",
            "/HEALTHZ", "/readyz/x", "/%00",
        ):  # fmt: skip
            for method in ("GET", "HEAD", "POST"):
                answer = await client.request(method, path)
                assert answer.status_code == 404, (method, path)
        assert (await client.get("/metrics")).json() == {
            "error": {"reason": "NOT_FOUND", "message": "Not Found"}
        }
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"):
            for path in ("/healthz", "/readyz"):
                answer = await client.request(method, path)
                assert answer.status_code == 405, (method, path)
                assert answer.json()["error"]["reason"] == "METHOD_NOT_ALLOWED"
                assert answer.headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_no_body_is_read(method: str) -> None:
    async with asking(Asked(), body_s=600) as (client, opening):
        answer = await client.request(method, "/healthz", content=b"x")
        assert answer.status_code == {"GET": 413, "POST": 405}[method]
        assert answer.headers["connection"] == "close"
        endless = await opening(CHUNKED.replace(b"GET", method.encode()))
        async with asyncio.timeout(10):
            assert (await endless.read()).startswith(b"HTTP/1.1 4")
        bare = await client.get("/healthz", headers={"content-length": "0"})
        assert bare.status_code == 200


async def test_the_store_is_asked_once_however_many_ask() -> None:
    asked = Asked()
    readiness = SharedReadiness(cast("Operations", asked))
    waiting = [asyncio.create_task(readiness.why_not()) for _ in range(20)]
    await asked.begun.wait()
    waiting[0].cancel()
    asked.may_answer.set()
    answers = await asyncio.gather(*waiting[1:])
    assert (set(answers), asked.times) == ({""}, 1)
    assert await readiness.why_not() == ""
    assert asked.times == 2, "whoever asks later gets no old answer"


@pytest.mark.parametrize(
    ("refusal", "message"),
    [
        (StoreUnavailable("db.internal:5432 is away"), "the store cannot be reached"),
        (Unauthenticated(), "the store cannot be used; the log of this process says why"),
    ],
)
async def test_it_tells_that_the_store_is_away_and_no_more(
    refusal: TapeError, message: str
) -> None:
    asked = Asked(refusal)
    asked.may_answer.set()
    async with asking(asked) as (client, _):
        for _ in range(2):
            answer = await client.get("/readyz")
            assert answer.status_code == 503
            assert answer.json()["error"] == {"reason": "STORE_UNAVAILABLE", "message": message}
        assert (await client.get("/healthz")).status_code == 200


async def test_a_head_that_is_late_ends_the_connection() -> None:
    async with asking(Asked(), header_s=0.2) as (_, opening):
        for text in (HALF, b""):
            late = await opening(text)
            async with asyncio.timeout(10):
                assert (await late.read()).startswith(b"HTTP/1.1 408")


async def test_half_requests_drive_out_each_other_and_no_probe() -> None:
    async with asking(Asked(), connections=20) as (client, opening):
        halves = [await opening(HALF) for _ in range(60)]
        assert (await client.get("/healthz")).status_code == 200
        async with asyncio.timeout(10):
            assert await halves[0].read() == b""


async def test_a_server_is_not_exposed_by_it(sqlite_url: str, serving: Serving) -> None:
    """Nobody registers anything over it, so the targets of those who may are theirs to choose."""
    addresses = await serving(sqlite_url, health_address="0.0.0.0:0")
    target = "nats://127.0.0.1:4222/a"
    async with tape.connect_async(f"tape://{addresses.grpc}") as client:
        await client.register_reaction(
            NewReaction("out", "/tape/**", HandlerKind.PUBLISH, publish_target=target)
        )
