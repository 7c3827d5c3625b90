"""What other processes do to a journal and its lake while a test looks on.

python -m tests.pipeline.lake.processes write URL        records events until its input ends
python -m tests.pipeline.lake.processes prune URL LAKE   prunes what is archived, until then
python -m tests.pipeline.lake.processes archive URL LAKE ROWS   archives in small steps
"""

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

from tape.journal.retention import Bound, plan_prune, prune
from tape.pipeline.lake.log import LakeLog
from tape.pipeline.lake.seam import prunable
from tape.programs.connect import open_bus
from tape.settings import Settings
from tape.stores.by_url import open_store
from tests.pipeline.lake.world import some_events

ROOT = Path(__file__).parents[3]
BATCH = 10
PAUSE_S = 0.1


def start(*arguments: str) -> "subprocess.Popen[str]":
    """In a process group of its own, so that all it has started can be killed with it."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.pipeline.lake.processes", *arguments],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def told(process: "subprocess.Popen[str]") -> str:
    """Its next line; fails if it has ended."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, f"it ended with {process.wait()}"
    return line.strip()


def say(word: object) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def until_input_ends() -> threading.Event:
    over = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=wait, daemon=True).start()
    return over


async def write(url: str) -> None:
    over, bus, written = until_input_ends(), await open_bus(url), 0
    written = (await bus.info()).head_global_seq
    while not over.is_set():
        await bus.record_events(some_events(written + 1, BATCH))
        written += BATCH
        await asyncio.sleep(PAUSE_S)
    say(written)
    await bus.close()


async def prune_on(url: str, lake: str) -> None:
    over, store, removed = until_input_ends(), await open_store(url, Settings()), 0
    while not over.is_set():
        if LakeLog(lake).exists():
            free = await prunable(store, lake, 0)
            bounds = [Bound(*bound) for bound in free.bounds]
            plan = await plan_prune(store, free.after, bounds)
            removed += (await prune(store, plan, step_entries=40)).removed
        await asyncio.sleep(PAUSE_S)
    say(removed)
    await store.close()


async def empty(url: str, upto: int) -> None:
    store = await open_store(url, Settings())
    say("ready")
    plan = await plan_prune(store, 0, [Bound("asked", upto)])
    say((await prune(store, plan)).removed)
    await store.close()


def archive(url: str, lake: str, rows: str) -> None:
    from tape.pipeline.job import JobContext
    from tape.pipeline.jobs.archive.job import Archive
    from tape.pipeline.session import session
    from tape.stores.blocking import Stores

    spark = session(master="local[2]")
    say("ready")
    work = JobContext(spark, url, Stores().store(url), lambda progress: say(progress.done))
    Archive(lake, rows_per_file=int(rows), compact=True).run(work)
    say("done")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["write", url]:
            asyncio.run(write(url))
        case ["prune", url, lake]:
            asyncio.run(prune_on(url, lake))
        case ["empty", url, upto]:
            asyncio.run(empty(url, int(upto)))
        case ["archive", url, lake, rows]:
            archive(url, lake, rows)
