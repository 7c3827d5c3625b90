"""Draining a backlog of trivial tasks in one process, beside other queues on the same Postgres."""

import itertools
from collections.abc import Callable, Iterator

from benchmarks import sqlite_queue, tasks
from benchmarks.result import Result, compare
from benchmarks.tasks_peers import (
    PGQUEUER_TUNINGS,
    PROCRASTINATE_CONCURRENCIES,
    PgqueuerTuning,
    pgqueuer_drain,
    procrastinate_drain,
)
from benchmarks.workload import REPETITIONS, on_loop, postgres, sqlite_file

TASKS = 20_000
TUNING_TURNS = 2
SLOW_TASKS = 1_000
SLOW_TURNS = 3


def run() -> Iterator[Result]:
    yield from _postgres()
    yield _sqlite()


def _postgres() -> Iterator[Result]:
    """Each turn in a database of its own: what an earlier drain left behind slows nobody down."""
    with postgres() as server:
        numbers = itertools.count()

        def fresh() -> str:
            return server.create_database(f"bench{next(numbers)}")

        tuning, concurrency = _best_tuning(fresh), _best_concurrency(fresh)
        ours: list[float] = []
        fast: list[float] = []
        slow: list[float] = []
        for turn in range(REPETITIONS):
            ours.append(on_loop(tasks.drain(fresh(), TASKS)))
            fast.append(on_loop(pgqueuer_drain(fresh(), TASKS, tuning)))
            if turn < SLOW_TURNS:
                slow.append(on_loop(procrastinate_drain(fresh(), SLOW_TASKS, concurrency)))
    yield compare(
        f"drain {TASKS:,} tasks, Postgres", "tasks/s", ours, str(tuning), fast,
        n=TASKS, at_least=1.0,
    )  # fmt: skip
    yield compare(
        f"drain {TASKS:,} tasks, Postgres", "tasks/s", ours,
        f"procrastinate, {concurrency} at once, {SLOW_TASKS:,} jobs", slow, n=TASKS, at_least=1.0,
    )  # fmt: skip


def _best_tuning(fresh: Callable[[], str]) -> PgqueuerTuning:
    """The one with the best single turn: noise makes a turn slower, never faster."""
    rates = {
        tuning: max(on_loop(pgqueuer_drain(fresh(), TASKS, tuning)) for _ in range(TUNING_TURNS))
        for tuning in PGQUEUER_TUNINGS
    }
    return max(rates, key=rates.__getitem__)


def _best_concurrency(fresh: Callable[[], str]) -> int:
    rates = {
        most: on_loop(procrastinate_drain(fresh(), SLOW_TASKS // 2, most))
        for most in PROCRASTINATE_CONCURRENCIES
    }
    return max(rates, key=rates.__getitem__)


def _sqlite() -> Result:
    ours, theirs = [], []
    for _ in range(REPETITIONS):
        with sqlite_file() as path:
            ours.append(on_loop(tasks.drain(f"sqlite:{path}", TASKS)))
        with sqlite_file() as path:
            theirs.append(sqlite_queue.drain(path, TASKS))
    return compare(
        f"drain {TASKS:,} tasks, SQLite", "tasks/s", ours, "UPDATE, then DELETE and INSERT by 500",
        theirs, n=TASKS,
    )  # fmt: skip
