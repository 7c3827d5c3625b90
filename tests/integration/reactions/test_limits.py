"""Limits hold over two dispatchers in processes of their own, one by a server and one without.

Both work off one backlog for a while and are then told to stop, in the middle of it.
"""

import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

import tape
from tape.model.rate import CATCH_UP_US
from tests.crash import watching
from tests.crash.reacting import Row
from tests.crash.watching import await_true
from tests.integration.reactions.handling import GRACE_S, RATE, REACTIONS, Moment, read_notes
from tests.servers.postgres import PostgresServer
from tests.servers.tape_server import ServerProcess
from tests.servers.tape_worker import WorkerProcess

BOUND_S = 60.0
SHORT_S, LONG_S = 3.5, 10.0
CATCH_UP_S = CATCH_UP_US / 1_000_000
PENDING, DONE = 1, 3


class Observed(NamedTuple):
    window_s: float
    begun: float
    moments: list[Moment]
    exit_codes: list[int]
    stopping_s: float
    tasks: list[Row]
    tallies: dict[str, tuple[int, int, int]]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(("sqlite", SHORT_S), id="sqlite"),
        pytest.param(("postgres", SHORT_S), id="postgres"),
        pytest.param(("sqlite", LONG_S), id="sqlite-long", marks=pytest.mark.long),
        pytest.param(("postgres", LONG_S), id="postgres-long", marks=pytest.mark.long),
    ],
)
def observed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Observed:
    store, window_s = request.param
    folder = tmp_path_factory.mktemp("limits")
    url = f"sqlite:{folder / 'tape.db'}"
    if store == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        url = server.create_database(f"limits_{int(window_s)}")
    return _observe(url, folder, window_s)


def _observe(url: str, folder: Path, window_s: float) -> Observed:
    def worker(at: str) -> WorkerProcess:
        arguments = ("-m", "tests.integration.reactions.handling", at, str(folder))
        return WorkerProcess(
            *arguments, folder=Path(__file__).parents[3], log=folder / "workers.log"
        )

    with ServerProcess(url) as server, worker(server.url) as one, worker(url) as two:
        await_true(
            lambda: len(watching.query(url, "SELECT 1 FROM tape_reactions")) == REACTIONS,
            BOUND_S,
            lambda: one.said + two.said,
        )
        with tape.connect(server.url) as client:
            for _ in range(4):
                client.record_many(
                    [tape.event(name) for name in ("rated", "five", "one") for _ in range(200)]
                )
        await_true(lambda: _processes_at_work(folder) == 2, BOUND_S, lambda: one.said + two.said)
        begun = time.monotonic()
        await_true(lambda: time.monotonic() > begun + window_s, BOUND_S, str)
        stopping = time.monotonic()
        exit_codes = [one.stop(), two.stop()]
        stopping_s = time.monotonic() - stopping
        rows = watching.query(url, watching.TALLIES)
        tallies = {name: (queued, in_flight, dead) for name, queued, in_flight, dead in rows}
        return Observed(
            window_s,
            begun,
            read_notes(folder),
            exit_codes,
            stopping_s,
            watching.tasks(url),
            tallies,
        )


def _processes_at_work(folder: Path) -> int:
    return sum(file.stat().st_size > 0 for file in folder.glob("*.notes"))


def test_starts_keep_to_the_rate(observed: Observed) -> None:
    """From when both were at work until they were told to stop. In the short form, what busy cores
    hold up for longer than is caught up is left out."""
    at = sorted(
        moment.at - observed.begun
        for moment in observed.moments
        if moment.reaction_id == "rated" and 0 <= moment.at - observed.begun < observed.window_s
    )
    pauses = [later - sooner for sooner, later in pairwise([0.0, *at, observed.window_s])]
    is_short = observed.window_s == SHORT_S
    lost_s = sum(max(0.0, pause - CATCH_UP_S) for pause in pauses) if is_short else 0.0
    assert 0.9 * RATE * (observed.window_s - lost_s) - 1 <= len(at)
    assert len(at) <= 1.1 * RATE * observed.window_s + 1


@pytest.mark.parametrize(("reaction_id", "most"), [("five", 5), ("one", 1)])
def test_no_more_at_once_than_allowed(observed: Observed, reaction_id: str, most: int) -> None:
    now, peak = 0, 0
    for moment in observed.moments:
        if moment.reaction_id == reaction_id:
            now += 1 if moment.what == "start" else -1
            peak = max(peak, now)
    assert peak == most


def test_who_is_told_to_stop_finishes_what_is_in_hand(observed: Observed) -> None:
    assert observed.exit_codes == [0, 0]
    assert observed.stopping_s < GRACE_S
    assert {row.status for row in observed.tasks} <= {PENDING, DONE}
    calls = Counter(
        (moment.reaction_id, moment.source) for moment in observed.moments if moment.what == "start"
    )
    assert set(calls.values()) == {1}, "without a kill, once is once"
    finished = {
        (moment.reaction_id, moment.source) for moment in observed.moments if moment.what == "end"
    }
    done = {
        (row.reaction_id, row.source_global_seq) for row in observed.tasks if row.status == DONE
    }
    assert {key for key in calls if key[0] != "rated"} == finished
    assert calls.keys() <= done, "what was done was settled"


def test_nothing_stays_counted_as_in_hand(observed: Observed) -> None:
    for reaction_id, (queued, in_flight, dead) in observed.tallies.items():
        rows = [row for row in observed.tasks if row.reaction_id == reaction_id]
        assert (queued, in_flight, dead) == (sum(row.status == PENDING for row in rows), 0, 0)
    assert observed.tallies["rated"][0] > 0, "the backlog was to outlast the run"
