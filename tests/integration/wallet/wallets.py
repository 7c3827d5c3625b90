"""Buses on one store, each with the keys that it is given, as processes would be."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from tape.bus import Bus
from tape.errors import TapeError
from tape.ports.credentials import OpenedCredential
from tape.settings import Settings
from tape.stores.by_url import open_store
from tape.wallet.keys import Keys
from tape.wallet.local_keys import written

BOUND_S = 60.0
KEY, NEWER = b"k" * 32, b"n" * 32
"""Key-encryption keys."""
CANARY = "canary-5f0c1e7b-secret"

Open = Callable[[str], Awaitable[OpenedCredential]]


def environment_of(*keys: bytes) -> dict[str, str]:
    return {"TAPE_WALLET_KEY": ",".join(map(written, keys))} if keys else {}


@asynccontextmanager
async def bus_with(url: str, *keys: bytes) -> AsyncIterator[Bus]:
    """A bus that has these key-encryption keys, the newest first."""
    settings = Settings()
    bus = Bus(await open_store(url, settings), settings, keys=Keys(environment_of(*keys)))
    try:
        yield bus
    finally:
        await bus.close()


def texts(opened: OpenedCredential) -> list[object]:
    return [value.fields if value.text is None else value.text for value in opened.values]


async def until_opened(open_credential: Open, alias: str, wanted: list[object] | str) -> None:
    """Until it opens as these values, or is refused for this reason."""
    give_up = time.monotonic() + BOUND_S
    found: list[object] | str = ""
    while found != wanted:
        assert time.monotonic() < give_up, found
        await asyncio.sleep(0.01)
        try:
            found = texts(await open_credential(alias))
        except TapeError as error:
            found = error.reason
