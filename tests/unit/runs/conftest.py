"""Each test has a store of its own."""

from collections.abc import AsyncIterator

import pytest

from tests.unit.runs.durable import World, a_world


@pytest.fixture
async def world(sqlite_url: str) -> AsyncIterator[World]:
    async with a_world(sqlite_url) as world:
        yield world
