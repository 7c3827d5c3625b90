"""A worker stopped wherever it can be stopped, for longer than its leases, and continued.

An undisturbed run tells which boundaries there are: before and after each write and each act, of
the driver, the outbox and timers. Then for each of them a worker on a store of its own stops itself
there, a second one finishes the run, and the first is continued: it must change nothing any more,
and do nothing again that may be done once only.

What is not asked: that an act which was with the counterparty when the worker was stopped comes to
nothing when it is continued. The status check has said "absent" meanwhile, and nobody who is
stopped can be told. A worker does several things at once, so that may be so wherever it stops.
"""

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest

import tape
from tape.stores.by_url import sqlite_path
from tests.crash.book import read_book
from tests.crash.errand_processes import Worker, await_ready, said, started
from tests.crash.errand_worker import Spot, Working
from tests.crash.errands import Errand
from tests.crash.runs_left import check_asked, check_legal, check_results, read_runs
from tests.crash.watching import await_true, is_stopped, query
from tests.servers.postgres import PostgresServer

AT_ONCE = 6
TRIES = 8
PATIENCE_S = 60.0
ERRAND = Errand(1, 3, (1,), "sleep")
COMES_TO = {
    "ResumeRun", "ReleaseRun", "RecordDecision+BeginEffect", "act ask", "act pay", "ClaimEffect",
    "RecordExternalObservation", "FireTimer",
}  # fmt: skip

Fresh = Callable[[str], AbstractContextManager[str]]
"""A store in which the errand is begun and nothing else has happened, by a name."""


class Case(NamedTuple):
    fresh: Fresh
    folder: Path

    def undisturbed(self) -> list[Spot]:
        """Every spot that a worker comes to."""
        with self._field("undisturbed") as (url, given), _running(given):
            _await_ended(url, given)
        seen: Counter[str] = Counter()
        spots = []
        for name in given.trail.read_text().splitlines():
            seen[name] += 1
            if "Renew" not in name:  # these come by the clock
                spots.append(Spot(name, seen[name]))
        return spots

    def stopped_at(self, spot: Spot) -> str:
        """What is wrong after a stop there, empty if nothing is."""
        for number in range(TRIES):
            with self._field(f"{spot}-{number}") as (url, given):
                try:
                    if _stopped(url, given._replace(stops_at=spot)):
                        return ""
                except AssertionError as wrong:
                    return f"stopped {spot}: {wrong}\n{said(given)}"
        return f"no worker came to {spot}"

    @contextmanager
    def _field(self, name: str) -> Iterator[tuple[str, Working]]:
        place = self.folder / name
        place.mkdir()
        with self.fresh(name) as url:
            yield url, Working(url, str(place), "first")


def _stopped(url: str, given: Working) -> bool:
    """Whether the first worker has stopped itself where it should; if it has, what came of it is
    checked.
    """
    with _running(given) as first:
        await_true(lambda: is_stopped(first.pid) or _has_ended(url), PATIENCE_S, lambda: "at it")
        if not is_stopped(first.pid) or not _is_writable(url):
            return False  # by the clock it has gone another way, or stands with the file locked
        under_way = _under_way(given)
        second = given._replace(owner="second", stops_at=None)
        with _running(second):
            _await_ended(url, second)
            before = read_runs(url)
            first.resume()
            await_ready(given)
            assert first.stop() == 0, "the first has not ended in order"
    left = read_runs(url)
    assert left == before, "the first has written something"
    check_results(left, [ERRAND])
    book = read_book(given.book)
    check_asked(left, [line for line in book if (line.key, line.by) not in under_way])
    for run in left:
        check_legal(run)
    return True


@contextmanager
def _running(given: Working) -> Iterator[Worker]:
    worker = started(given)
    try:
        yield worker
    finally:
        worker.kill()


def _under_way(given: Working) -> set[tuple[str, str]]:
    """Which payments are neither done nor known not to be, and by whom."""
    book = list(read_book(given.book))
    done = {(line.key, line.by) for line in book if line.word == "did"}
    return {
        (line.key, line.by) for line in book if line.word == "asked" and "/pay/" in line.key
    } - done


def _is_writable(url: str) -> bool:
    if not url.startswith("sqlite:"):
        return True  # Postgres puts an end to it
    with closing(sqlite3.connect(sqlite_path(url), timeout=0.2)) as db:
        try:
            db.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        return True


def _has_ended(url: str) -> bool:
    return query(url, "SELECT count(*) FROM tape_runs WHERE status = 4") == [(1,)]


def _await_ended(url: str, given: Working) -> None:
    await_true(lambda: _has_ended(url), PATIENCE_S, lambda: f"it has not ended: {said(given)}")


def _begin(url: str) -> None:
    with tape.connect(url) as client:
        client.start_run("errand", ERRAND._asdict(), invocation_id=str(ERRAND.number))


@pytest.fixture
def fresh_sqlite(tmp_path: Path) -> Fresh:
    def fresh(name: str) -> AbstractContextManager[str]:
        url = f"sqlite:{tmp_path / name / 'tape.db'}"
        _begin(url)
        return nullcontext(url)

    return fresh


@pytest.fixture
def fresh_postgres(postgres_server: PostgresServer) -> Iterator[Fresh]:
    _begin(postgres_server.create_database("errand_begun"))

    @contextmanager
    def fresh(name: str) -> Iterator[str]:
        database = f"errand {name}"[:63]
        with psycopg.connect(postgres_server.url(), autocommit=True) as making:
            making.execute(
                f'CREATE DATABASE "{database}" TEMPLATE errand_begun STRATEGY FILE_COPY'.encode()
            )
            yield postgres_server.url(database.replace(" ", "%20"))
            making.execute(f'DROP DATABASE "{database}" WITH (FORCE)'.encode())

    yield fresh
    with closing(psycopg.connect(postgres_server.url(), autocommit=True)) as admin:
        admin.execute("DROP DATABASE errand_begun WITH (FORCE)")


def _check_everywhere(case: Case, every: int = 1) -> None:
    spots = case.undisturbed()
    names = Counter(spot.name for spot in spots)
    for what in COMES_TO:
        assert names[f"before {what}"] >= 1, f"{what} is missing in {names}"
        assert names[f"before {what}"] == names[f"after {what}"], what
    with ThreadPoolExecutor(AT_ONCE) as crowd:
        wrong = [words for words in crowd.map(case.stopped_at, spots[::every]) if words]
    print(f"{len(spots[::every])} of {len(spots)} spots")
    assert not wrong, f"{len(wrong)} of {len(spots)}:\n" + "\n".join(wrong[:5])


@pytest.mark.timeout(900)
def test_on_sqlite(fresh_sqlite: Fresh, tmp_path: Path) -> None:
    _check_everywhere(Case(fresh_sqlite, tmp_path))


@pytest.mark.middle
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "every", [pytest.param(3, id="a third"), pytest.param(1, id="all", marks=pytest.mark.long)]
)
def test_on_postgres(fresh_postgres: Fresh, tmp_path: Path, every: int) -> None:
    _check_everywhere(Case(fresh_postgres, tmp_path), every)
