"""kill -9 of a follower during a load: each entry makes its tasks once, the counts are right."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from tape.ports.store import Store
from tests.pipeline.backfill.test_job import expected, keys, record, register, tasks_of, use
from tests.pipeline.backfill.world import new_reactions

STARTED_S = 120
ENTRIES = 300
BATCH = 150
# A debounced task that has become due is not replaced by the next entry: when a batch ends decides.
DEBOUNCED = {new.reaction_id for new in new_reactions() if new.debounce_ms}

Keys = set[tuple[str, int, int]]


def start(url: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-m", "tape.cli", "pipeline", "backfill", "--follow", "--store", url,
         "--master", "local[2]", "--batch-entries", str(BATCH)],
        start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def kill(process: "subprocess.Popen[bytes]") -> None:
    """The driver, its JVM and its workers, at one moment."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)


def until(process: "subprocess.Popen[bytes]", true: Callable[[], bool]) -> None:
    give_up = time.monotonic() + STARTED_S
    while not true():
        assert process.poll() is None, f"it ended with {process.returncode}"
        assert time.monotonic() < give_up
        time.sleep(0.02)


def position(url: str) -> int:
    async def lowest(store: Store) -> int:
        return min(state.position for state in await store.matching.list_reactions())

    return use(url, lowest)


def counted(url: str) -> dict[str, tuple[int, int]]:
    async def read(store: Store) -> dict[str, tuple[int, int]]:
        states = await store.matching.list_reactions()
        return {s.reaction.reaction_id: (s.matched, s.predicate_errors) for s in states}

    return use(url, read)


def split(tasks: Keys) -> tuple[Keys, Keys]:
    debounced = {task for task in tasks if task[0] in DEBOUNCED}
    return tasks - debounced, debounced


@pytest.mark.middle
@pytest.mark.timeout(300)
def test_a_killed_follower_goes_on(sqlite_url: str) -> None:
    check(sqlite_url, 1)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_follower_killed_ten_times_goes_on(store_url: str) -> None:
    check(store_url, 10)


def check(store_url: str, kills: int) -> None:
    chance = random.Random(kills)
    register(store_url, engine="spark")
    for number in range(kills):
        record(store_url, count=ENTRIES, seed=number)
        before = position(store_url)
        process = start(store_url)
        try:
            until(process, lambda at=before: position(store_url) > at)  # type: ignore[misc]
            time.sleep(chance.random() * 0.3)  # somewhere in what it does next
        finally:
            kill(process)
    process = start(store_url)
    try:
        until(process, lambda: position(store_url) == kills * ENTRIES)
        process.terminate()
        assert process.wait(60) == 0
    finally:
        kill(process)

    decided = expected(store_url)
    plain, debounced = split(keys(decided))
    made_plain, made_debounced = split(use(store_url, tasks_of))
    assert made_plain == plain
    assert made_debounced >= debounced
    for reaction_id, counts in counted(store_url).items():
        of = [count for key, count in decided.counts.items() if key[0] == reaction_id]
        assert counts == (sum(one[0] for one in of), sum(one[2] for one in of)), reaction_id
