"""What an app raises in a run of a message: on the run, in the log, and shown by the command."""

import json
from pathlib import Path

import pytest

from tests.integration.cli.command import tape
from tests.integration.cli.subscribing import SubscribeDesk

APPS = """
import tape

def look_up(order):
    raise LookupError(f"no order {order['n']}")

@tape.app("fails_at_once")
async def fails_at_once(ctx, given):
    look_up(given["payload"])

@tape.app("fails_after_poll")
async def fails_after_poll(ctx, given):
    polled = await ctx.poll(source="file", folder="FOLDER", timeout_ms=200)
    look_up(polled.messages[0]["payload"])

@tape.app("fails_in_thread_after_poll")
def fails_in_thread_after_poll(ctx, given):
    polled = ctx.poll(source="file", folder="FOLDER", timeout_ms=200)
    look_up(polled.messages[0]["payload"])
"""


@pytest.mark.parametrize("app", ["fails_at_once", "fails_after_poll", "fails_in_thread_after_poll"])
def test_an_app_that_raises(tmp_path: Path, sqlite_url: str, app: str) -> None:
    desk = SubscribeDesk(tmp_path, sqlite_url)
    polled = tmp_path / "polled"
    polled.mkdir()
    (polled / "a.jsonl").write_text('{"n": 7}\n')
    (tmp_path / "desk.py").write_text(APPS.replace("FOLDER", str(polled)))
    desk.write(app)
    desk.put('{"n": 7}')
    done = desk.subscribe("-m", "desk", "--once")
    assert done.code == 1

    (run,) = desk.runs()
    assert run["status"] == "failed"
    traceback = run["outcome"]["traceback"]
    frames = [line for line in traceback.splitlines() if line.startswith("  File ")]
    assert frames[0].endswith(f"in {app}")
    assert frames[-1].endswith("in look_up")
    assert traceback.endswith("\nLookupError: no order 7")

    log = done.err.splitlines()
    said = f"ERROR:tape.runs:run {run['run_id']} of {app} has failed: LookupError: no order 7"
    below = log[log.index(said) + 1 :]
    assert below[: len(traceback.splitlines())] == [
        f"    {line}" for line in traceback.splitlines()
    ]

    def shown(*options: str) -> str:
        arguments = ("runs", "show", run["run_id"], *options, "--store", sqlite_url)
        return tape(*arguments, folder=tmp_path).out

    assert shown().endswith("\n".join(f"  {line}" for line in traceback.splitlines()) + "\n")
    assert json.loads(shown("--json"))["traceback"] == traceback
