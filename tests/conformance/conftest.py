"""Opens stores for the contract, each time another one on the same database."""

import contextlib
from collections.abc import AsyncIterator

import pytest

from tape.config import Settings, SqliteSettings
from tape.ports.store import Store
from tape.stores.by_url import open_store as open_by_url
from tape.testing.conformance import OpenStore

QUICK = Settings(sqlite=SqliteSettings(poll_s=0.02))


@pytest.fixture
def postgres_url(migrated_postgres_url: str) -> str:
    return migrated_postgres_url


@pytest.fixture
async def open_store(store_url: str) -> AsyncIterator[OpenStore]:
    async with contextlib.AsyncExitStack() as stack:

        async def open_another() -> Store:
            store = await open_by_url(store_url, QUICK)
            stack.push_async_callback(store.close)
            return store

        yield open_another
