"""Servers with both doors, in this event loop, stopped at the end."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tape.programs.serve import Addresses, ServeOptions, serve

CERTS = Path(__file__).parents[1] / "grpc" / "certs"
TLS = {"tls_cert": CERTS / "cert.pem", "tls_key": CERTS / "key.pem"}
TOKENS = "read:reader-token,write:writer-token,admin:admin-token"
ANYWHERE = {"grpc_address": "127.0.0.1:0", "http_address": "127.0.0.1:0"}

Serving = Callable[..., Awaitable[Addresses]]


@pytest.fixture
async def serving() -> AsyncIterator[Serving]:
    """`addresses = await serving(store_url, **options)`."""
    async with AsyncExitStack() as stack:

        async def start(store_url: str, **options: Any) -> Addresses:
            ready: asyncio.Future[Addresses] = asyncio.get_running_loop().create_future()
            stop = asyncio.Event()
            chosen = ServeOptions(store_url, **{**ANYWHERE, **options})
            task = asyncio.create_task(serve(chosen, on_ready=ready.set_result, stop=stop))
            await asyncio.wait((task, ready), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                ready.cancel()
                await task

            async def end() -> None:
                stop.set()
                await task

            stack.push_async_callback(end)
            return await ready

        yield start


@asynccontextmanager
async def door(serving: Serving, url: str, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server's HTTP door."""
    http = (await serving(url, **options)).http
    async with httpx.AsyncClient(base_url=f"http://{http}", timeout=30) as client:
        yield client
