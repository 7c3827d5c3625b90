"""A server that is away for five seconds costs a worker a handful of log lines."""

from pathlib import Path

from tape.testing.server import ServerProcess
from tests.integration.cli.command import start, tape

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
"""


def test_a_server_that_is_away_for_five_seconds(sqlite_url: str, tmp_path: Path) -> None:
    (tmp_path / "handlers.py").write_text(MODULE)
    with ServerProcess(sqlite_url) as server:
        url = ("--url", server.url)
        worker = start("worker", "-m", "handlers", *url, folder=tmp_path)
        try:
            assert worker.stdout is not None
            assert worker.stderr is not None
            for _ready in range(6):
                worker.stdout.readline()
            server.kill()
            told = [worker.stderr.readline()]
            while "waits for" not in told[-1]:  # which is five seconds later
                told.append(worker.stderr.readline())
            server.start()
            while "goes on after" not in told[-1]:
                told.append(worker.stderr.readline())
            done = tape("runs", "start", "checkout", *url, folder=tmp_path)
            assert done.code == 0
        finally:
            worker.terminate()
            _out, rest = worker.communicate(timeout=60)
    lines = [*told, *rest.splitlines()]
    assert len(lines) <= 6, lines
    assert all("Traceback" not in line for line in lines)
