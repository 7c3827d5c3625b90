"""Every entry is handled at least once for every reaction, whoever is killed meanwhile.

Servers and workers are killed with -9 at random while producers write and reactions overlap, share
shards, fail and are registered late. Afterwards the database and what the handlers noted down are
compared with what a second, simpler matcher in this folder expects of the same journal.
"""

import asyncio
import os
import random
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from tape.bus import Operations
from tape.errors import Overloaded, StoreUnavailable
from tape.programs.connect import open_operations
from tape.settings import Settings
from tests.crash import watching
from tests.crash.reacting import Expected, check, event, plan, read_handled
from tests.crash.watching import Watcher, await_rest, await_true
from tests.servers.tape_server import ServerProcess
from tests.servers.tape_worker import WorkerProcess

SEED = int(os.environ.get("TAPE_SEED", "20261116"))
LEASES = {"TAPE_LEASE_MS": "2000"}
PRODUCERS = 4
BURST = 25
BUSY_S = 2.0
IN_HAND = """
SELECT lease_owner FROM tape_task_queue WHERE status = 2 AND reaction_id = 'unhurried'
"""


class Size(NamedTuple):
    entries: int
    reactions: int
    kills: int
    pause_s: tuple[float, float]
    rest_s: float


SHORT = Size(2_500, 12, 4, (0.6, 1.2), 300)
LONG = Size(200_000, 50, 90, (1.0, 3.0), 900)
SIZES = [pytest.param(SHORT, id="short"), pytest.param(LONG, id="long", marks=pytest.mark.long)]

Victim = ServerProcess | WorkerProcess


class Portions:
    """A portion of the entries may be written before each kill, so that all fall on busy times."""

    def __init__(self, size: Size) -> None:
        self._size = size
        self._freed = asyncio.Condition()
        self._portions = 1

    async def free(self) -> None:
        async with self._freed:
            self._portions += 1
            self._freed.notify_all()

    async def until_free(self, number: int) -> None:
        async with self._freed:
            await self._freed.wait_for(
                lambda: number < self._size.entries * self._portions / (self._size.kills + 1)
            )


@pytest.mark.middle
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("size", SIZES)
async def test_two_servers_and_three_workers_on_one_postgres(
    postgres_url: str, tmp_path: Path, size: Size
) -> None:
    with ExitStack() as stack:
        servers = [stack.enter_context(ServerProcess(postgres_url)) for _ in range(2)]
        doors = [servers[0].url, servers[1].url, postgres_url]
        workers = [stack.enter_context(_worker(url, tmp_path, size)) for url in doors]
        await _run(postgres_url, doors, [*servers, *workers], tmp_path, size)


@pytest.mark.timeout(900)
async def test_a_server_and_two_workers_on_one_sqlite_file(sqlite_url: str, tmp_path: Path) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(ServerProcess(sqlite_url))
        workers = [stack.enter_context(_worker(sqlite_url, tmp_path, SHORT)) for _ in range(2)]
        await _run(sqlite_url, [server.url, sqlite_url], [server, *workers], tmp_path, SHORT)


def _worker(url: str, folder: Path, size: Size) -> WorkerProcess:
    arguments = ("-m", "tests.crash.reactor", url, str(folder), str(size.reactions))
    return WorkerProcess(
        *arguments, folder=Path(__file__).parents[2], log=folder / "workers.log", env=LEASES
    )


async def _run(
    url: str, doors: Sequence[str], victims: Sequence[Victim], folder: Path, size: Size
) -> None:
    workers = [victim for victim in victims if isinstance(victim, WorkerProcess)]
    await asyncio.to_thread(_await_registered, url, size.reactions - 1, workers)
    portions = Portions(size)
    deadlocks = watching.deadlocks(url)
    with Watcher(url) as watcher:
        async with asyncio.TaskGroup() as group:
            group.create_task(_kill(url, victims, portions, folder, size))
            for producer in range(PRODUCERS):
                group.create_task(_produce(producer, doors, portions, size))
        await asyncio.to_thread(await_rest, url, lambda: _revive(workers), size.rest_s)
    await_true(lambda: all(each.has_begun for each in workers), 60, lambda: workers[0].said)
    assert [worker.stop() for worker in workers] == [0] * len(workers)
    assert not watcher.faults, f"seed {SEED}: {watcher.faults[:5]}"
    assert watcher.looks > 2 * size.kills
    assert watching.deadlocks(url) == deadlocks
    handled = read_handled(folder)
    print(f"{len(handled)} calls, {len(set(handled))} attempts, {len(watcher.tokens)} leaders")
    _check(url, folder, size)


async def _produce(producer: int, doors: Sequence[str], portions: Portions, size: Size) -> None:
    """Its share of the entries, in bursts, each through another door until one has taken it."""
    chance = random.Random(f"{SEED}/producer-{producer}")
    open_doors = [await open_operations(door, "", Settings()) for door in doors]
    numbers = range(producer, size.entries, PRODUCERS)
    for start in range(0, len(numbers), BURST):
        burst = numbers[start : start + BURST]
        await portions.until_free(burst[-1])
        await _record(chance, open_doors, burst)
    for door in open_doors:
        await door.close()


async def _record(chance: random.Random, doors: Sequence[Operations], numbers: range) -> None:
    events = [event(number, SEED) for number in numbers]
    while True:
        try:
            await chance.choice(doors).record_events(events)
        except (StoreUnavailable, Overloaded):
            await asyncio.sleep(0.02)  # its key makes a repeat the same entry
        else:
            return


async def _kill(
    url: str, victims: Sequence[Victim], portions: Portions, folder: Path, size: Size
) -> None:
    chance = random.Random(f"{SEED}/kills")
    workers = [victim for victim in victims if isinstance(victim, WorkerProcess)]
    for number in range(size.kills):
        await portions.free()
        await asyncio.sleep(chance.uniform(*size.pause_s))
        victim = chance.choice(victims)
        if number == size.kills // 2:
            (folder / "late").touch()
            victim = chance.choice(workers)  # whoever starts from now on declares the late one
        if isinstance(victim, WorkerProcess):
            victim = await asyncio.to_thread(_busy_one, url, workers) or victim
        print(f"kill {number} of seed {SEED}: {victims.index(victim)}")
        await asyncio.to_thread(victim.kill)
        await asyncio.to_thread(victim.start)
        _revive(workers)


def _busy_one(url: str, workers: Sequence[WorkerProcess]) -> WorkerProcess | None:
    """A kill tells most where there is a task in hand, so wait for one, though not for long."""
    give_up = time.monotonic() + BUSY_S
    while time.monotonic() < give_up:
        owners = [owner for (owner,) in watching.query(url, IN_HAND)]
        for worker in workers:
            if not worker.has_ended and any(f"-{worker.pid}-" in owner for owner in owners):
                return worker
        time.sleep(0.01)
    return None


def _revive(workers: Sequence[WorkerProcess]) -> None:
    """One whose server was dead when it began has ended; whoever supervises it starts it again."""
    for worker in workers:
        if worker.has_ended:
            worker.start()


def _await_registered(url: str, count: int, workers: Sequence[WorkerProcess]) -> None:
    def registered() -> bool:
        _revive(workers)
        return len(watching.query(url, "SELECT 1 FROM tape_reactions")) == count

    await_true(registered, 60, lambda: f"not all are registered: {workers[0].said}")


def _check(url: str, folder: Path, size: Size) -> None:
    journal, rows = watching.journal(url), watching.tasks(url)
    planned = plan(size.reactions)
    expected = Expected(planned, journal)
    check(expected, rows, read_handled(folder), journal)
    recorded = [entry for entry in journal if entry.subject.startswith("/tape/event/recorded/")]
    assert len(recorded) == size.entries
    for reaction_id, queued, in_flight, letters in watching.query(url, watching.TALLIES):
        dead = sum(row.reaction_id == reaction_id and row.status == 5 for row in rows)
        assert (queued, in_flight, letters) == (0, 0, dead), reaction_id
    made = {each.reaction_id: 0 for each in planned}
    for reaction_id, _source in expected.tasks:
        made[reaction_id] += 1
    counts = {name: tuple(map(int, row)) for name, *row in watching.query(url, watching.COUNTS)}
    assert counts.keys() == made.keys()
    for reaction_id, (matched, errors, following, _last) in counts.items():
        assert following == 1
        assert matched == made[reaction_id], reaction_id
        assert errors == expected.errors[reaction_id], reaction_id
    assert sum(expected.errors.values()) > 10
