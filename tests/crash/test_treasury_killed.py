"""The treasury killed with -9 wherever it can be killed: one wire, one hedge, one fee, one batch.

Undisturbed runs tell which boundaries there are: before and after each write and each act, of
the driver, the outbox, the reconciler, compensation and timers. Then for each of them a worker on a
store and books of their own ends itself there, and a second one finishes what is left.
"""

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from functools import partial
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote
from urllib.request import Request, urlopen

import psycopg
import pytest

import tape
from examples.treasury.app import FEE_CENTS
from tests.crash.forks import FORKS
from tests.crash.treasury_left import (
    Left,
    Look,
    check_done_once,
    check_journal,
    check_settled,
    check_undone,
    looking,
    read_left,
)
from tests.crash.treasury_processes import Spot, Working, deal, work
from tests.crash.watching import await_true
from tests.servers.postgres import PostgresServer

AT_ONCE = 16
LOOKS = 3
TRIES = 5
PATIENCE_S = 60.0
CENTS = 1_000_000_00
INPUT = {"floor_cents": 5_000_000_00 - CENTS - FEE_CENTS, "approve_above_cents": 1}
ACTS = ("read_balances", "read_price", "sweep", "hedge", "pay_fee", "post_ledger")
SETTINGS = """
tape:
  postgres: {readers: 2, workers: 1}
  reactors:
    poll_s: 0.05
    backoff_first_s: 0.05
    backoff_most_s: 0.2
    recovery: {lease_ttl_s: 2}
    outbox: {lease_ttl_s: 2}
    reconciler: {lease_ttl_s: 2}
    compensation: {lease_ttl_s: 2}
"""
OPEN = """
SELECT (SELECT count(*) FROM tape_runs WHERE status NOT IN (4, 5, 7, 8))
  + (SELECT count(*) FROM tape_obligations WHERE below = -1 AND status NOT IN (3, 4))
"""

Fresh = Callable[[str], AbstractContextManager[str]]
"""A store in which the run is begun and approved and nothing else has happened, by a name."""


class Scenario(NamedTuple):
    """What goes wrong besides the kill, and how it must end all the same."""

    hooks: tuple[tuple[str, str], ...]
    check: Callable[[Left], None]
    comes_to: frozenset[str]
    """Among the acts, checks and writes that there is a boundary before and after. What is written
    at once by a quick process (`A+B`) may be two writes of a busy one."""
    least: int
    first: Spot | None = None
    """Where a worker has been killed before the one that is enumerated."""


def _acts(*names: str) -> set[str]:
    return {f"act {name}" for name in names}


DRIVEN = frozenset({
    "ResumeRun", "SetTimer", "ReleaseRun", "FireTimer", "BeginEffect", "CompleteEffect+BeginEffect",
    "CompleteEffect+AwaitSignal", "ClaimEffect", "RecordExternalObservation", "EndRun",
})  # fmt: skip
SCENARIOS = {
    "in doubt": Scenario(
        (("broker.order", "lose_ack"), ("bank.plain_wire", "lose_ack")),
        partial(check_settled, cents=CENTS, fee_cents=FEE_CENTS),
        DRIVEN | _acts(*ACTS) | {
            "CompleteEffect", "RecordDispatchAttempt", "RecordDecision", "check hedge",
            "check pay_fee", "record treasury.swept", "set_value treasury/last_sweep",
        },
        70,
    ),
    "undone": Scenario(
        (("ledger.batch", "refuse"),),
        partial(check_undone, cents=CENTS, fee_cents=FEE_CENTS),
        DRIVEN | _acts(*ACTS, "return_fee", "cancel_hedge", "reverse_wire") | {
            "ClaimObligation", "ResolveObligation",
        },
        60,
    ),
    "paid twice": Scenario(
        (("bank.plain_wire", "twice"),),
        partial(check_settled, cents=CENTS, fee_cents=FEE_CENTS, twice=True),
        frozenset({
            "ClaimEffect", "check pay_fee", "RecordExternalObservation", "ClaimObligation",
            "act return_second_fee", "ResolveObligation", "ResumeRun", "act post_ledger", "EndRun",
        }),
        24,
        first=Spot("after act pay_fee", 1),
    ),
}  # fmt: skip


class Case(NamedTuple):
    fresh: Fresh
    folder: Path
    scenario: Scenario

    def spots(self) -> tuple[list[Spot], set[Spot]]:
        """The spots that a worker comes to whatever comes first by chance, and those that it came
        to at least once.

        A run whose effect is settled before it would wait for it is not released and resumed, so
        the longest look is the one that tells whether all boundaries are still marked.
        """
        with ThreadPoolExecutor(LOOKS) as crowd:
            looks = list(crowd.map(self._undisturbed, range(LOOKS)))
        longest = max(looks, key=len)
        assert len(longest) >= self.scenario.least, Counter(spot.name for spot in longest)
        always = [spot for spot in longest if all(spot in look for look in looks)]
        return always, {spot for look in looks for spot in look}

    def _undisturbed(self, number: int) -> list[Spot]:
        with self._field(f"undisturbed-{number}") as field:
            if self.scenario.first is not None:
                field.killed(self.scenario.first)
            trail = field.finished()
        seen: Counter[str] = Counter()
        spots = []
        for name in trail:
            seen[name] += 1
            if "Renew" not in name:  # these come by the clock
                spots.append(Spot(name, seen[name]))
        return spots

    def killed_at(self, spot: Spot) -> str:
        """What is wrong after a kill there, empty if nothing is."""
        for number in range(TRIES):
            with self._field(f"{spot}-{number}".replace("/", "_")) as field:
                if self.scenario.first is not None:
                    field.killed(self.scenario.first)
                if not field.killed(spot):
                    continue  # by chance it has gone another way this time
                try:
                    field.finished()
                except AssertionError as wrong:
                    return f"killed {spot}: {wrong}"
                return ""
        return f"no worker came to {spot}"

    @contextmanager
    def _field(self, name: str) -> Iterator["Field"]:
        place = self.folder / name
        place.mkdir()
        with (
            self.fresh(name) as url,
            looking(url) as look,
            _counterparties(place) as treasury_url,
        ):
            for route, do in self.scenario.hooks:
                _set_hook(treasury_url, route, do)
            yield Field(url, look, treasury_url, place, self.scenario)


class Field:
    """One store, one set of books, one worker after the other."""

    def __init__(
        self, url: str, look: Look, treasury_url: str, place: Path, scenario: Scenario
    ) -> None:
        self._url = url
        self._look = look
        self._treasury_url = treasury_url
        self._place = place
        self._scenario = scenario
        self._workers = 0
        self._log = place / "workers.log"
        (place / "tape.yaml").write_text(SETTINGS)

    def killed(self, spot: Spot) -> bool:
        """Whether a worker has ended itself there; if the run ends before, it has not."""
        with self._worker(spot) as (worker, _given):
            await_true(
                lambda: not worker.is_alive() or self._is_over, PATIENCE_S, lambda: "still at it"
            )
            worker.join(1.0)  # it may be about to
            return worker.exitcode == -9

    def finished(self) -> list[str]:
        """The boundaries that a worker came to which was not killed; what is left is checked."""
        with self._worker(None) as (worker, given):
            await_true(given.ready.exists, PATIENCE_S, lambda: "the worker is not ready")
            await_true(lambda: self._is_over, PATIENCE_S, lambda: "the run has not ended")
            worker.terminate()
            worker.join(30)
            assert worker.exitcode == 0, f"the last worker ended with {worker.exitcode}"
        left = read_left(self._look, self._treasury_url)
        try:
            check_journal(left)
            check_done_once(left)
            self._scenario.check(left)
        except AssertionError as wrong:
            raise AssertionError(f"{wrong}\n{left}\n{self._log.read_text()}") from wrong
        return given.trail.read_text().splitlines()

    @property
    def _is_over(self) -> bool:
        return self._look(OPEN) == [(0,)]

    @contextmanager
    def _worker(self, dies_at: Spot | None) -> Iterator[tuple[ForkServerProcess, Working]]:
        self._workers += 1
        owner = f"worker-{self._workers}"
        given = Working(
            self._url, self._treasury_url, owner, self._place / "tape.yaml",
            self._place / f"{owner}.trail", self._log, dies_at,
        )  # fmt: skip
        with _running(FORKS.Process(target=work, args=(given,))) as process:
            yield process, given


@contextmanager
def _running(process: ForkServerProcess) -> Iterator[ForkServerProcess]:
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join()
        process.close()


@contextmanager
def _counterparties(place: Path) -> Iterator[str]:
    here, there = FORKS.Pipe(duplex=False)
    with (
        closing(here),
        closing(there),
        _running(FORKS.Process(target=deal, args=(place / "books.db", there))),
    ):
        assert here.poll(PATIENCE_S), "the counterparties do not answer"
        yield f"http://127.0.0.1:{here.recv()}"


def _set_hook(treasury_url: str, route: str, do: str) -> None:
    times = 1_000 if do == "refuse" else 1
    body = json.dumps({"route": route, "do": do, "times": times}).encode()
    with urlopen(Request(f"{treasury_url}/hooks", body), timeout=30):
        pass


def _begin(url: str) -> None:
    with tape.connect(url) as client:
        run = client.start_run("overnight", INPUT, invocation_id="under fire")
        client.send_signal(run.run_id, "approve", {"approved": True})


@pytest.fixture
def fresh_sqlite(tmp_path: Path) -> Fresh:
    begun = tmp_path / "begun.db"
    _begin(f"sqlite:{begun}")

    def fresh(name: str) -> AbstractContextManager[str]:
        copy = tmp_path / name.replace("/", "_") / "tape.db"
        shutil.copy(begun, copy)
        return nullcontext(f"sqlite:{copy}")

    return fresh


@pytest.fixture(scope="module")
def quick_postgres() -> Iterator[PostgresServer]:
    """One that leaves the disk alone: it is workers that are killed here, and databases made."""
    with PostgresServer("fsync=off", "full_page_writes=off") as server:
        _begin(server.create_database("begun"))
        yield server


@pytest.fixture
def fresh_postgres(quick_postgres: PostgresServer) -> Fresh:
    @contextmanager
    def fresh(name: str) -> Iterator[str]:
        database = f"killed {name}"[:63]
        with psycopg.connect(quick_postgres.url(), autocommit=True) as admin:
            admin.execute(
                f'CREATE DATABASE "{database}" TEMPLATE begun STRATEGY FILE_COPY'.encode()
            )
            yield quick_postgres.url(quote(database))
            admin.execute(f'DROP DATABASE "{database}" WITH (FORCE)'.encode())

    return fresh


def _check_everywhere(case: Case, share: slice) -> None:
    spots, seen = case.spots()
    names = Counter(spot.name for spot in seen)
    for what in case.scenario.comes_to:
        written = [what] if names[f"before {what}"] else what.split("+")
        for name in written:
            assert names[f"before {name}"] >= 1, f"{what} is missing in {names}"
            assert names[f"before {name}"] == names[f"after {name}"], name
    with ThreadPoolExecutor(AT_ONCE) as crowd:
        wrong = [words for words in crowd.map(case.killed_at, spots[share]) if words]
    print(f"{len(spots[share])} of {len(spots)} boundaries")
    assert not wrong, f"{len(wrong)} of {len(spots)}:\n" + "\n".join(wrong[:5])


ALL, FIFTH = slice(None), slice(1, None, 5)
"""Of the spots. They come in pairs, before and after, so that an odd step meets both."""


def _shares(longer: pytest.MarkDecorator) -> list[Any]:
    """A fifth of each scenario's spots, and all of them in a longer form."""
    return [
        *(pytest.param(name, FIFTH, id=name) for name in SCENARIOS),
        *(pytest.param(name, ALL, id=f"{name}-all", marks=longer) for name in SCENARIOS),
    ]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("name", "share"), _shares(pytest.mark.middle))
def test_on_sqlite(fresh_sqlite: Fresh, tmp_path: Path, name: str, share: slice) -> None:
    _check_everywhere(Case(fresh_sqlite, tmp_path, SCENARIOS[name]), share)


@pytest.mark.middle
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("name", "share"), _shares(pytest.mark.long))
def test_on_postgres(fresh_postgres: Fresh, tmp_path: Path, name: str, share: slice) -> None:
    _check_everywhere(Case(fresh_postgres, tmp_path, SCENARIOS[name]), share)
