"""Opens what apps poll, for a client that drives runs itself."""

import asyncio
from contextlib import AsyncExitStack

from tape.bus import Operations
from tape.model.subscription_spec import SourceSpec
from tape.ports.credentials import OpenCredential
from tape.ports.source import Source
from tape.programs.listening import opening_sources
from tape.programs.opening_credentials import opening_credentials


class ClientSources:
    """An `OpenPolledSource` at the store or the server that a client is connected to."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations
        self._opening = asyncio.Lock()
        self._opened = AsyncExitStack()
        self._open_credential: OpenCredential | None = None

    async def __call__(self, spec: SourceSpec, name: str) -> Source:
        async with self._opening:
            if self._open_credential is None:
                self._open_credential = await self._opened.enter_async_context(
                    opening_credentials(self._operations)
                )
        return await opening_sources(self._open_credential)(spec, name)

    async def close(self) -> None:
        await self._opened.aclose()
