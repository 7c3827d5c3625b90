"""Two servers on one journal: whoever leads is paused or killed, the other takes over in time."""

import sqlite3
import time
from contextlib import closing
from urllib.request import urlopen

import pytest

import tape
from tape.settings import MatcherSettings
from tape.stores.by_url import sqlite_path
from tests.crash import watching
from tests.crash.watching import Watcher, await_true
from tests.servers.tape_server import ServerProcess

TTL_S = MatcherSettings().ttl_s
BOUND_S = 30.0
TAKEN_OVER_S = 3 * TTL_S
OWNER = "SELECT owner, fencing_token FROM tape_matcher"


def leads(server: ServerProcess) -> bool:
    with urlopen(f"http://{server.http}/metrics", timeout=10) as answer:
        return b"\ntape_matcher_leading 1.0" in answer.read()


def leader_of(*servers: ServerProcess) -> ServerProcess:
    found: list[ServerProcess] = []

    def one_leads() -> bool:
        found[:] = [server for server in servers if leads(server)]
        return len(found) == 1

    await_true(one_leads, BOUND_S, lambda: f"{len(found)} servers lead")
    return found[0]


def has_tasks(url: str, count: int) -> bool:
    return len(watching.query(url, "SELECT 1 FROM tape_task_queue")) == count


def matched_within(url: str, count: int, seconds: float) -> None:
    started = time.monotonic()
    await_true(lambda: has_tasks(url, count), BOUND_S, lambda: "nobody matches")
    took = time.monotonic() - started
    assert took < seconds, f"took over after {took:.1f} s"


def pause(server: ServerProcess, url: str) -> None:
    """Where it holds no lock on the file: nobody can write to that while its holder sleeps."""
    while True:
        server.pause()
        if url.startswith("postgres") or _can_write(url):
            return
        server.resume()


def _can_write(url: str) -> bool:
    with closing(sqlite3.connect(sqlite_path(url), timeout=0.2, isolation_level=None)) as db:
        try:
            db.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        db.execute("ROLLBACK")
        return True


def taken_over_within(url: str, before: str, seconds: float) -> None:
    started = time.monotonic()
    await_true(
        lambda: watching.query(url, OWNER)[0][0] not in (before, ""), BOUND_S, lambda: "nobody"
    )
    took = time.monotonic() - started
    assert took < seconds, f"took over after {took:.1f} s"


@pytest.mark.middle
@pytest.mark.parametrize(
    "store_url", ["postgres", pytest.param("sqlite", marks=pytest.mark.long)], indirect=True
)
def test_the_other_matches_when_the_leader_is_paused_or_killed(store_url: str) -> None:
    with ServerProcess(store_url) as one, ServerProcess(store_url) as two:
        with tape.connect(store_url) as client, Watcher(store_url) as watcher:
            client.register_reaction("r", "/tape/event/**", num_shards=2)
            client.record_many([tape.event("a") for _ in range(100)])
            matched_within(store_url, 100, BOUND_S)
            first = leader_of(one, two)
            second = two if first is one else one

            # Nothing happens while it is away, so that its next step would fit but for its token.
            ((owner, _),) = watching.query(store_url, OWNER)
            pause(first, store_url)
            taken_over_within(store_url, owner, TAKEN_OVER_S)
            held = watching.query(store_url, OWNER)
            first.resume()
            await_true(lambda: not leads(first), BOUND_S, lambda: "both lead")
            assert watching.query(store_url, OWNER) == held
            client.record_many([tape.event("b") for _ in range(100)])
            matched_within(store_url, 200, BOUND_S)

            # Much happens while it is away.
            pause(second, store_url)
            client.record_many([tape.event("c") for _ in range(100)])
            matched_within(store_url, 300, TAKEN_OVER_S)
            second.resume()
            client.record_many([tape.event("d") for _ in range(100)])
            matched_within(store_url, 400, BOUND_S)
            assert leader_of(one, two) is first

            first.kill()
            client.record_many([tape.event("e") for _ in range(100)])
            matched_within(store_url, 500, TAKEN_OVER_S)
            assert leader_of(second) is second
        assert watcher.faults == []
        assert watcher.tokens >= {1, 2, 3, 4}
    tasks = watching.tasks(store_url)
    assert sorted(row.source_global_seq for row in tasks) == list(range(1, 501))
    ((_, matched, *_),) = watching.query(store_url, watching.COUNTS)
    assert matched == 500
