"""Each test has a store of its own."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tape.runs.declare import Apps
from tape.testing.runs import AppKit, app_kit
from tests.unit.runs.durable import World, a_world


@pytest.fixture
async def world(sqlite_url: str) -> AsyncIterator[World]:
    async with a_world(sqlite_url) as world:
        yield world


@pytest.fixture
def apps() -> Apps:
    return Apps()


@pytest.fixture
async def kit(tmp_path: Path, apps: Apps) -> AsyncIterator[AppKit]:
    """A worker for the apps and effects that a test declares in `apps`."""
    async with app_kit(tmp_path, apps=apps) as kit:
        yield kit
