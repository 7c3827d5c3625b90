"""What a module's functions raise ends a worker no more than any other failure of theirs."""

import signal
from pathlib import Path

import tape as tape_module
from tape.model.run import RunStatus
from tape.model.task import TaskStatus
from tests.integration.cli.command import start

MODULE = """
import asyncio
import sys
import tape

EVENTS = "/tape/event/recorded"


@tape.on(f"{EVENTS}/go/**", reaction_id="plain", dlq_after_n=1)
def plain(envelope):
    sys.exit(3)


@tape.on(f"{EVENTS}/go/**", reaction_id="waited", dlq_after_n=1)
async def waited(envelope):
    raise KeyboardInterrupt


async def within():
    sys.exit("from a task of its own")


@tape.on(f"{EVENTS}/go/**", reaction_id="nested", dlq_after_n=1)
async def nested(envelope):
    await asyncio.gather(within())


@tape.on("/tape/task/dead_lettered/**", reaction_id="last", max_concurrency=4)
async def last(envelope):
    print("dead", flush=True)


@tape.effect
def leaves():
    sys.exit(4)


@tape.app("leaver")
async def leaver(ctx):
    try:
        await ctx.call(leaves)
    except tape.EffectFailed:
        sys.exit("the app too")
"""


def test_exits_and_interrupts_of_a_module_are_failures_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "ends.py").write_text(MODULE)
    store = f"sqlite:{tmp_path / 'tape.db'}"
    worker = start("worker", "-m", "ends", "--store", store, folder=tmp_path)
    try:
        assert worker.stdout is not None
        ready = [worker.stdout.readline() for _ in range(5)]
        assert sorted(line.split()[0] for line in ready) == ["app", *4 * ["task"]]
        with tape_module.connect(store) as client:
            run = client.start_run("leaver")
            client.record("go")
            assert [worker.stdout.readline().strip() for _ in range(3)] == 3 * ["dead"]
            with client.follow("/tape/run/failed/leaver/**") as ended:
                assert next(iter(ended)).run_id == run.run_id
            found = client.get_run(run.run_id)
            assert found is not None
            assert found.status == RunStatus.FAILED
            assert "SystemExit('the app too')" in found.outcome_json
            errors = {}
            for reaction_id in ("plain", "waited", "nested"):
                (task,) = client.list_tasks(reaction_id, status=TaskStatus.DLQ)
                errors[reaction_id] = task.last_error
        assert errors == {
            "plain": "RuntimeError: SystemExit(3)",
            "waited": "RuntimeError: KeyboardInterrupt()",
            "nested": "RuntimeError: SystemExit('from a task of its own')",
        }
        worker.send_signal(signal.SIGTERM)
        worker.communicate(timeout=60)
        assert worker.returncode == 0
    finally:
        worker.kill()
        worker.communicate()
