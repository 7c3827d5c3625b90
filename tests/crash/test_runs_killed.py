"""Every run ends, once and rightly, and each act takes effect once, whoever is killed meanwhile.

Workers are killed with -9 at random and started again while they drive runs: steps that act upon a
counterparty, two of them through the outbox and not to be repeated, gates, sleeps and children.
Afterwards the database and the counterparty's book are read and judged by rules of their own.
"""

import os
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, TypeVar

import pytest

import tape
from tests.crash import watching
from tests.crash.book import read_book
from tests.crash.errand_processes import Worker, await_ready, said, started
from tests.crash.errand_runs import POLL_S, Door, begin, lease, noted
from tests.crash.errand_worker import Working
from tests.crash.errands import GATE, Errand
from tests.crash.runs_left import (
    LEFT_OVER,
    check_asked,
    check_legal,
    check_results,
    read_runs,
)
from tests.crash.watching import await_true, query

SEED = int(os.environ.get("TAPE_SEED", "20261117"))
OPEN = "SELECT count(*) FROM tape_runs WHERE status <> 4"
AT_GATES = """
SELECT g.run_id, r.invocation_id FROM tape_gates g JOIN tape_runs r ON r.run_id = g.run_id
WHERE g.gate_name = 'go' AND g.awaited AND NOT g.released
"""
WAITS = ("", "gate", "sleep", "child")
TIMED_KILLS = 4
AT_ONCE = 50

T = TypeVar("T")


class Size(NamedTuple):
    workers: int
    runs: int
    steps: int
    kill_every_s: float
    kills: int
    """At most; from then on the runs come to their ends."""
    least_kills: int
    in_hand: int
    """Runs that a worker drives at a time."""
    pace_s: float
    ttl_s: float
    poll_s: float
    rest_s: float


SHORT = Size(3, 40, 8, 0.5, 14, 7, 6, 0.2, 1.0, 0.1, 300)
LONG = Size(8, 500, 20, 1.0, 150, 25, 12, 0.3, 3.0, 1.0, 900)
SIZES = [pytest.param(SHORT, id="short"), pytest.param(LONG, id="long", marks=pytest.mark.long)]


class Crew:
    """Workers, of whom one is killed now and then and another takes its place."""

    def __init__(self, given: Working, count: int) -> None:
        self._given = given
        self._workers: list[tuple[Working, Worker]] = []
        self._hired = self.kills = 0
        for _ in range(count):
            self._hire()

    def __enter__(self) -> "Crew":
        return self

    def __exit__(self, *_error: object) -> None:
        for _given, worker in self._workers:
            worker.kill()

    @property
    def owners(self) -> list[str]:
        return [given.owner for given, _worker in self._workers]

    def kill(self, place: int) -> None:
        _given, worker = self._workers.pop(place)
        worker.kill()
        self.kills += 1
        self._hire()

    def dismiss(self) -> list[int]:
        """Ask all to end in order; their exit codes."""
        for given, _worker in self._workers:
            await_ready(given)
        return [worker.stop() for _given, worker in self._workers]

    def _hire(self) -> None:
        self._hired += 1
        given = self._given._replace(owner=f"worker-{self._hired}")
        self._workers.append((given, started(given)))


class Outside:
    """Whoever wants the errands run, and opens gates."""

    def __init__(self, url: str, client: tape.TapeClient) -> None:
        self._url = url
        self._client = client

    def begin(self, errands: Sequence[Errand]) -> None:
        self._do_at_once(self._begin, errands)

    def goes_on(self) -> bool:
        """Whether there are runs that have not ended; gates are opened for those who wait."""
        self._do_at_once(self._open_gate, query(self._url, AT_GATES))
        return query(self._url, OPEN) != [(0,)]

    def _begin(self, errand: Errand) -> None:
        number = str(errand.number)
        run = self._client.start_run("errand", errand._asdict(), invocation_id=number)
        if errand.waits_for == "gate" and errand.number % 3 == 0:
            self._open_gate((run.run_id, number))  # before anybody waits there

    def _open_gate(self, waiting: Sequence[str]) -> None:
        run_id, number = waiting
        self._client.send_signal(run_id, GATE, {"word": f"{GATE} {number}"})

    def _do_at_once(self, work: Callable[[T], None], things: Sequence[T]) -> None:
        with ThreadPoolExecutor(AT_ONCE) as crowd:
            list(crowd.map(work, things))


@pytest.mark.middle
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("size", SIZES)
def test_on_postgres(postgres_url: str, tmp_path: Path, size: Size) -> None:
    before = watching.deadlocks(postgres_url)
    _run_errands(postgres_url, tmp_path, size)
    assert watching.deadlocks(postgres_url) == before


@pytest.mark.timeout(900)
def test_on_sqlite(sqlite_url: str, tmp_path: Path) -> None:
    _run_errands(sqlite_url, tmp_path, SHORT)


def _run_errands(url: str, folder: Path, size: Size) -> None:
    chance = random.Random(SEED)
    errands = [
        Errand(number, size.steps, chance.sample(range(size.steps), 2), WAITS[number % len(WAITS)])
        for number in range(1, size.runs + 1)
    ]
    given = Working(
        url, str(folder), "",
        pace_s=size.pace_s, ttl_s=size.ttl_s, poll_s=size.poll_s, runs=size.in_hand,
    )  # fmt: skip
    with tape.connect(url) as client:
        outside = Outside(url, client)
        outside.begin(errands)
        started_at = time.monotonic()
        with Crew(given, size.workers) as crew:
            while crew.kills < size.kills and outside.goes_on():
                time.sleep(chance.uniform(0.5, 1.5) * size.kill_every_s)
                crew.kill(chance.randrange(size.workers))
            await_true(lambda: not outside.goes_on(), size.rest_s, lambda: _told(url, given))
            took_s = time.monotonic() - started_at
            assert crew.dismiss() == [0] * size.workers, said(given)
    runs, book = read_runs(url), list(read_book(given.book))
    check_results(runs, errands)
    takeovers = sum(map(check_legal, runs))
    acts = check_asked(runs, book)
    assert query(url, LEFT_OVER) == [(0, 0, 0, 0)]
    asked = sum(line.word == "asked" for line in book)
    looked = sum(line.word in ("present", "absent") for line in book)
    print(f"seed {SEED}: {crew.kills} kills, {takeovers} takeovers, {acts} acts asked for {asked} "
          f"times, {looked} looks, {took_s:.1f} s")  # fmt: skip
    assert crew.kills >= size.least_kills, "it was over before much could happen"
    assert takeovers >= size.runs // 2, "hardly a kill has met a driver"
    assert asked > acts, "no act was cut off"
    assert looked > 0, "no act was in doubt"


def _told(url: str, given: Working) -> str:
    return f"{query(url, OPEN)} runs are open: {said(given)}"


@pytest.mark.middle
def test_the_run_of_a_killed_driver_is_taken_over_in_time(door: Door, tmp_path: Path) -> None:
    given = Working(door.url, str(tmp_path), "", poll_s=1.0)
    given.hold.touch()
    begin(door.url, Errand(1, 1))
    took_s = []
    with Crew(given, 2) as crew:
        noted(given, "asked")
        for kill in range(TIMED_KILLS):
            owner, _expires_at_ms, _token = lease(door.store)
            crew.kill(crew.owners.index(owner))
            killed_at = time.time()
            took_s.append(noted(given, "asked", times=kill + 2).at_ms / 1000 - killed_at)
    print("resumed after", ", ".join(f"{each:.2f} s" for each in sorted(took_s)))
    assert max(took_s) < given.ttl_s + POLL_S
