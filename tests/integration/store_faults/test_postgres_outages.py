"""Postgres stopped, killed and thrown out sessions, with writers and followers at work."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator

import psycopg
import pytest

from tape.bus import Bus
from tape.programs.connect import open_bus
from tape.settings import PostgresSettings, Settings, WriterSettings
from tests.integration.store_faults.load import load
from tests.servers.postgres import PostgresServer

SETTINGS = Settings(
    postgres=PostgresSettings(connect_s=20, poll_s=0.1, resolve_s=30),
    writer=WriterSettings(retry_for_s=30),
)


@pytest.fixture(scope="module")
def own_server(postgres_server: PostgresServer) -> Iterator[PostgresServer]:
    """A server that may be stopped."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
async def buses(
    own_server: PostgresServer, request: pytest.FixtureRequest
) -> AsyncIterator[list[Bus]]:
    url = own_server.create_database(f"t{abs(hash(request.node.name))}")
    buses = [await open_bus(url, SETTINGS) for _ in range(2)]
    yield buses
    for bus in buses:
        await bus.close()


@pytest.mark.parametrize("times", [2, pytest.param(40, marks=pytest.mark.long)])
@pytest.mark.parametrize("how", ["stop", "kill"])
async def test_a_server_that_goes_and_comes_back(
    own_server: PostgresServer, buses: list[Bus], how: str, times: int
) -> None:
    """Cleanly or by kill -9: all that was acknowledged is there once, followers go on."""
    end = own_server.stop if how == "stop" else own_server.kill
    async with load(buses, writers=16) as told:
        for _ in range(times):
            await told.more(100)
            await asyncio.to_thread(end)
            await asyncio.to_thread(own_server.start)
        await told.more(100)
    assert not told.unknown


@pytest.mark.parametrize("rounds", [40, pytest.param(1000, marks=pytest.mark.long)])
async def test_sessions_ended_at_random_moments(
    own_server: PostgresServer, buses: list[Bus], rounds: int
) -> None:
    """No key protects two writes of three: only looking up what was cut off keeps them single."""
    chance = random.Random(7)
    with psycopg.connect(own_server.url(), autocommit=True) as admin:
        async with load(buses, writers=16) as told:
            for _ in range(rounds):
                await told.more(chance.randrange(1, 40))
                admin.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE application_name = 'tape writer'"
                )
    assert not told.unknown
    assert not told.refused


async def test_every_session_ended_at_once(own_server: PostgresServer, buses: list[Bus]) -> None:
    with psycopg.connect(own_server.url(), autocommit=True) as admin:
        async with load(buses, writers=4) as told:
            for _ in range(5):
                await told.more(20)
                admin.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE application_name LIKE 'tape%'"
                )
    assert not told.unknown
    assert not told.refused
