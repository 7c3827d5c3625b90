"""One writer per run, however wrong another is about its being the one.

A worker is stopped, or cut off from the others, for longer than its lease. Another takes over. What
the first one tries after that, by whatever call, is refused as stale and leaves nothing behind, and
its SDK abandons the work without trying. Leases go by the store's clock alone.
"""

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import tape
from tape.stores.by_url import sqlite_path
from tape.wire.v1 import tape_pb2 as pb
from tests.crash.book import Noted, read_book
from tests.crash.errand_processes import said, working
from tests.crash.errand_runs import PATIENCE_S, POLL_S, Door, await_ended, begin, lease, noted
from tests.crash.errand_worker import Working
from tests.crash.errands import Errand
from tests.crash.runs_left import check_asked, check_legal, check_results, read_runs
from tests.crash.stale_holder import hold_run, reached, tried
from tests.crash.watching import await_true, query, stop_unlocked
from tests.integration.docs.pages import ROOT
from tests.integration.grpc.fenced import FENCED, LIVING
from tests.integration.grpc.running import claimed_effect, claimed_obligation, taken_over
from tests.integration.store_faults.proxy import line_to
from tests.servers.tape_server import ServerProcess
from tests.servers.tape_worker import WorkerProcess

HOUR_S = 3600
REFUSED = dict.fromkeys(FENCED, "FAILED_PRECONDITION STALE_LEASE")
TABLES = ("journal", "runs", "decisions", "effects", "obligations", "gates", "timers", "budgets",
          "values", "sessions")  # fmt: skip


def everything(store: str) -> list[Any]:
    """All that anybody has written for a run."""
    return [sorted(query(store, f"SELECT * FROM tape_{table}"), key=repr) for table in TABLES]


@asynccontextmanager
async def in_background(given: Working) -> AsyncIterator[None]:
    """A worker, beside an event loop."""
    with ExitStack() as stack:
        await asyncio.to_thread(stack.enter_context, working(given))
        yield


def check_left(given: Working, store: str, *errands: Errand) -> int:
    """Every run is as it must be; how many takeovers there were."""
    runs = read_runs(store)
    check_results(runs, errands)
    check_asked(runs, read_book(given.book))
    return sum(map(check_legal, runs))


async def in_third_hands(rpc: Any, run_id: str) -> None:
    """Take over all that a holder had, once it can be had."""
    assert (await taken_over(rpc, run_id)).fencing_token == LIVING + 1
    await claimed_effect(rpc, run_id, "outbox", lease_ttl_ms=60_000)
    owed = await rpc.ListObligations(pb.ListObligationsRequest(run_id=run_id))
    await claimed_obligation(rpc, run_id, owed.obligations[0].seq, lease_ttl_ms=60_000)


@pytest.mark.parametrize("ended", [False, True], ids=["driven", "ended"])
async def test_a_holder_that_was_stopped_tries_every_call(
    door: Door, tmp_path: Path, ended: bool
) -> None:
    given = Working(door.url, str(tmp_path), "holder")
    script = ("-m", "tests.crash.stale_holder", door.url, str(tmp_path))
    with WorkerProcess(*script, log=given.log, folder=ROOT) as holder:
        run_id = (await asyncio.to_thread(noted, given, "held")).key
        await asyncio.to_thread(stop_unlocked, door.store, holder.pid)
        async with reached(door.server.url) as rpc:
            await in_third_hands(rpc, run_id)
            if ended:
                mine: dict[str, Any] = {"run_id": run_id, "fencing_token": LIVING + 1}
                await rpc.EndRun(pb.EndRunRequest(**mine, status=pb.RUN_STATUS_TERMINAL))
        before = everything(door.store)
        holder.resume()
        await asyncio.to_thread(noted, given, "tried")
    told = {line.key: line.word for line in read_book(given.book)}
    assert told.items() >= REFUSED.items()
    assert everything(door.store) == before


async def test_every_call_that_is_on_its_way_while_the_lease_changes_hands(store_url: str) -> None:
    with ServerProcess(store_url) as server:
        async with (
            line_to(port_of(server.url)) as line,
            reached(f"tape://127.0.0.1:{line.port}") as cut,
            reached(server.url) as rpc,
        ):
            run_id = await hold_run(cut)
            line.hold()
            calls = {name: asyncio.create_task(tried(cut, name, run_id)) for name in FENCED}
            await in_third_hands(rpc, run_id)
            before = everything(store_url)
            assert not any(call.done() for call in calls.values())
            line.let_go()
            assert {name: await call for name, call in calls.items()} == REFUSED
            assert everything(store_url) == before


def port_of(url: str) -> int:
    return int(url.split("/")[2].rpartition(":")[2])


@pytest.mark.middle
def test_a_driver_stopped_in_the_middle_of_a_step(door: Door, tmp_path: Path) -> None:
    errand = Errand(1, 4, (2,), "sleep")
    first = Working(door.url, str(tmp_path), "first")
    second = first._replace(owner="second")
    first.hold.touch()
    begin(door.url, errand)
    with working(first) as stopped:
        noted(first, "asked", "first")
        stop_unlocked(door.store, stopped.pid)
        _owner, expires_at_ms, _token = lease(door.store)
        with working(second):
            taken_at_ms = noted(second, "asked", "second").at_ms
            assert expires_at_ms <= taken_at_ms <= expires_at_ms + 1000 * POLL_S
            first.hold.unlink()
            await_ended(door.store)
            before = everything(door.store)
            stopped.resume()
            assert stopped.stop() == 0, said(first)
    assert everything(door.store) == before
    assert check_left(first, door.store, errand) == 1


class Cut(NamedTuple):
    """A way to a store that can be cut off, and mended again."""

    store: str
    url: str
    cut: Callable[[], object]
    mend: Callable[[], object]


@asynccontextmanager
async def line_to_server(fixture: Callable[[str], Any]) -> AsyncIterator[Cut]:
    store = fixture("postgres_url")
    with ServerProcess(store) as server:
        async with line_to(port_of(server.url)) as line:
            yield Cut(store, f"tape://127.0.0.1:{line.port}", line.hold, line.let_go)


@asynccontextmanager
async def server_killed(fixture: Callable[[str], Any]) -> AsyncIterator[Cut]:
    store = fixture("postgres_url")
    with ServerProcess(store) as server:
        yield Cut(store, server.url, server.kill, server.start)


@asynccontextmanager
async def line_to_postgres(fixture: Callable[[str], Any]) -> AsyncIterator[Cut]:
    store, server = fixture("postgres_url"), fixture("postgres_server")
    async with line_to(server.port) as line:
        url = store.replace(f":{server.port}/", f":{line.port}/")
        yield Cut(store, url, line.hold, line.let_go)


@asynccontextmanager
async def sqlite_locked(fixture: Callable[[str], Any]) -> AsyncIterator[Cut]:
    store = fixture("sqlite_url")
    with tape.connect(store), closing(sqlite3.connect(sqlite_path(store))) as other:
        yield Cut(store, store, lambda: other.execute("BEGIN IMMEDIATE"), other.rollback)


Way = Callable[[Callable[[str], Any]], AbstractAsyncContextManager[Cut]]
WAYS: list[Way] = [line_to_server, server_killed, line_to_postgres, sqlite_locked]


@pytest.mark.middle
@pytest.mark.parametrize("way", WAYS)
async def test_a_driver_that_cannot_renew_its_lease_leaves_before_it_is_over(
    request: pytest.FixtureRequest, tmp_path: Path, way: Way
) -> None:
    errand = Errand(1, 3)
    async with way(request.getfixturevalue) as cut:
        only = Working(cut.url, str(tmp_path), "only")
        only.hold.touch()
        await asyncio.to_thread(begin, cut.store, errand)
        async with in_background(only):
            await asyncio.to_thread(noted, only, "asked")
            cut.cut()
            left_at_ms = (await asyncio.to_thread(noted, only, "left")).at_ms
            _owner, expires_at_ms, token = lease(cut.store)
            print(f"left {expires_at_ms - left_at_ms} ms before the end of its lease")
            assert (left_at_ms < expires_at_ms, token) == (True, 1)
            only.hold.unlink()
            cut.mend()
            await asyncio.to_thread(await_ended, cut.store)
        assert await asyncio.to_thread(check_left, only, cut.store, errand) == 1


@pytest.mark.parametrize("way", [line_to_server, line_to_postgres])
async def test_a_driver_cut_off_with_a_write_on_its_way_comes_back(
    request: pytest.FixtureRequest, tmp_path: Path, way: Way
) -> None:
    errand, another = Errand(1, 4, (2,), "sleep"), Errand(2, 3, (1,))
    async with way(request.getfixturevalue) as cut:
        first = Working(cut.url, str(tmp_path), "first")
        second = Working(cut.store, str(tmp_path), "second")
        first.hold.touch()
        await asyncio.to_thread(begin, cut.store, errand)
        async with in_background(first):
            await asyncio.to_thread(noted, first, "asked", "first")
            async with in_background(second):
                cut.cut()
                first.hold.unlink()  # so that it has something to write
                await asyncio.to_thread(noted, second, "asked", "second")
                await asyncio.to_thread(await_ended, cut.store)
            (before,) = read_runs(cut.store)
            cut.mend()
            await asyncio.to_thread(begin, cut.store, another)
            await asyncio.to_thread(await_ended, cut.store, 2)
        assert before in read_runs(cut.store)
        assert await asyncio.to_thread(check_left, first, cut.store, errand, another) == 1


@pytest.mark.middle
@pytest.mark.parametrize("ahead_s", [HOUR_S, -HOUR_S], ids=["first ahead", "first behind"])
@pytest.mark.parametrize("door", ["served", "postgres"], indirect=True)
def test_leases_go_by_the_clock_of_the_store(door: Door, tmp_path: Path, ahead_s: int) -> None:
    errand = Errand(1, 3, (1,), "sleep")
    first = Working(door.url, str(tmp_path), "first")
    second = first._replace(owner="second")
    first.hold.touch()
    begin(door.url, errand)
    with working(first, ahead_s) as driver:
        check_wrong(noted(first, "asked", "first"), ahead_s)
        with working(second, -ahead_s):
            _owner, before_ms, _token = lease(door.store)
            long_ms = round(2000 * first.ttl_s)
            await_true(
                lambda: lease(door.store)[1] >= before_ms + long_ms,
                PATIENCE_S,
                lambda: "the lease is not renewed",
            )
            owner, expires_at_ms, token = lease(door.store)
            assert (owner, token) == ("first", 1), "taken over while it was being driven"
            assert 0 < expires_at_ms - time.time() * 1000 <= 1000 * first.ttl_s
            driver.kill()
            killed_at = time.time()
            check_wrong(noted(second, "asked", "second"), -ahead_s)
            assert time.time() - killed_at < second.ttl_s + POLL_S
            first.hold.unlink()
            await_ended(door.store)
    assert check_left(first, door.store, errand) == 1


def check_wrong(line: Noted, by_s: int) -> None:
    """That process has another idea of the time."""
    assert abs(line.at_ms / 1000 - by_s - time.time()) < HOUR_S / 2
