"""A bus on an empty journal for each test."""

from collections.abc import AsyncIterator

import pytest

from tests.unit.subscriptions.subscribed import Subscribed, subscribed


@pytest.fixture
async def desk(sqlite_url: str) -> AsyncIterator[Subscribed]:
    async with subscribed(sqlite_url) as found:
        yield found
