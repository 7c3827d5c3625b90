"""A connection in the making: await it, or enter it."""

from collections.abc import Callable, Coroutine, Generator
from typing import Any

from tape.client.face import AsyncTapeClient


class Connecting:
    """`client = await connect_async(url)`, or `async with connect_async(url) as client`."""

    def __init__(self, connect: Callable[[], Coroutine[Any, Any, AsyncTapeClient]]) -> None:
        self._connect = connect
        self._client: AsyncTapeClient | None = None

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"this is not a client yet, so you cannot call {name!r}: write `async with "
            "connect_async(url) as client:` or `client = await connect_async(url)`"
        )

    def __await__(self) -> Generator[Any, None, AsyncTapeClient]:
        return self._connect().__await__()

    async def __aenter__(self) -> AsyncTapeClient:
        self._client = await self._connect()
        return self._client

    async def __aexit__(self, *_error: object) -> None:
        if self._client is not None:
            await self._client.close()
