"""Credentials for programs that publish or consume: the logins of their targets, by alias."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from tape.brokers.logins import Logins
from tape.bus import Operations
from tape.ports.credentials import OpenCredential, OpenedCredential
from tape.programs.connect import default_token, default_url, open_operations
from tape.programs.opening_credentials import opening_credentials
from tape.settings import Settings


@asynccontextmanager
async def logins_for(operations: Operations, settings: Settings) -> AsyncIterator[Logins]:
    """Within this, the logins of targets as the settings and the targets name them."""
    async with opening_credentials(operations) as open_credential:
        yield Logins(settings.credentials, open_credential)


class DistantWallet:
    """An `OpenCredential` for a program that has neither a store nor a server open: it opens the
    one that `url` or the environment (TAPE_URL, TAPE_STORE) names when a credential is first
    needed."""

    def __init__(self, settings: Settings, url: str | None = None) -> None:
        self._settings = settings
        self._url = url
        self._opening = asyncio.Lock()
        self._opened = AsyncExitStack()
        self._open_credential: OpenCredential | None = None

    async def __call__(self, alias: str, *, counts: bool = True) -> OpenedCredential:
        async with self._opening:
            if self._open_credential is None:
                operations = await open_operations(
                    self._url or default_url(), default_token(), self._settings, creating=False
                )
                self._opened.push_async_callback(operations.close)
                self._open_credential = await self._opened.enter_async_context(
                    opening_credentials(operations)
                )
        return await self._open_credential(alias, counts=counts)

    async def close(self) -> None:
        self._open_credential = None
        await self._opened.aclose()
