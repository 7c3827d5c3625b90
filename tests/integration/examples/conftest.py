"""One process of counterparties for the tests of a file; each test has a key of its own in it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from examples.treasury.clients import Bank, Broker, Controls, Ledger
from examples.treasury.counterparties import CounterpartyServer
from examples.treasury.records import Outcome, Route

Outcomes = Callable[[Route, str], list[Outcome]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CounterpartyServer]:
    with CounterpartyServer(tmp_path_factory.mktemp("counterparties") / "state.db") as running:
        yield running


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[CounterpartyServer]:
    """For a test that ends it or counts everything in it."""
    with CounterpartyServer(tmp_path / "state.db") as running:
        yield running


@pytest.fixture(scope="module")
def _controls(server: CounterpartyServer) -> Iterator[Controls]:
    with Controls(server.url) as client:
        yield client


@pytest.fixture
def controls(_controls: Controls) -> Iterator[Controls]:
    yield _controls
    _controls.clear_hooks()


@pytest.fixture
def outcomes(controls: Controls) -> Outcomes:
    """What became of the calls with this key, in order."""
    return lambda route, key: [
        call["outcome"] for call in controls.calls() if (call["route"], call["key"]) == (route, key)
    ]


@pytest.fixture(scope="module")
def bank(server: CounterpartyServer) -> Iterator[Bank]:
    with Bank(server.url) as client:
        yield client


@pytest.fixture(scope="module")
def broker(server: CounterpartyServer) -> Iterator[Broker]:
    with Broker(server.url) as client:
        yield client


@pytest.fixture(scope="module")
def ledger(server: CounterpartyServer) -> Iterator[Ledger]:
    with Ledger(server.url) as client:
        yield client


@pytest.fixture
def key(request: pytest.FixtureRequest) -> str:
    name: str = request.node.name
    return name
