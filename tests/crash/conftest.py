"""What all crash tests share."""

import os
from collections.abc import Iterator

import pytest

from tests.crash.errand_runs import Door
from tests.integration.docs.pages import ROOT
from tests.integration.sources.conftest import (
    _emulator,
    emulator,
    kafka_server,
    nats_server,
    own_kafka_server,
    own_nats_server,
)
from tests.servers.tape_server import ServerProcess

__all__ = [
    "_emulator", "emulator", "kafka_server", "nats_server", "own_kafka_server", "own_nats_server",
]  # fmt: skip


@pytest.fixture(autouse=True)
def _imports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the process that others are forked from finds what it imports."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)


@pytest.fixture(params=["served", "postgres", "sqlite"])
def door(request: pytest.FixtureRequest) -> Iterator[Door]:
    """At the server of a Postgres, or right at a store of each kind."""
    kind = "sqlite" if request.param == "sqlite" else "postgres"
    store: str = request.getfixturevalue(f"{kind}_url")
    with ServerProcess(store) as server:
        yield Door(store, server, server.url if request.param == "served" else store)
