"""A store for commands to work on: only a few of them create one."""

import asyncio
import shutil
from pathlib import Path

import pytest

from tape.settings import Settings
from tape.stores.by_url import upgrade_store


@pytest.fixture(scope="session")
def made_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("made") / "tape.db"
    asyncio.run(upgrade_store(f"sqlite:{file}", Settings(), with_post=False))
    return file


@pytest.fixture
def new_sqlite_url(tmp_path: Path) -> str:
    """A name under which there is no store yet."""
    return f"sqlite:{tmp_path / 'new.db'}"


@pytest.fixture
def sqlite_url(tmp_path: Path, made_store: Path) -> str:
    """A store with nothing in it, by copying: that is much quicker than making one."""
    shutil.copy(made_store, tmp_path / "tape.db")
    return f"sqlite:{tmp_path / 'tape.db'}"
