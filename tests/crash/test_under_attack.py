"""A server under attack: health is told, others record, memory is bounded, and it can be stopped.

The attackers are processes of their own, so that they do not take the interpreter from whoever
measures. What others may lose is said against the same server while nobody attacks.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import httpx
import pytest

import tape
from tape.settings import MIB
from tests.crash.door_attacks import (
    ASKS_FOR_LARGE,
    ATTACKS,
    MAKES_STREAMS,
    TAKES_A_SHARE,
    fill_large,
)
from tests.crash.predicate_attacks import fill as fill_for_predicates
from tests.servers.tape_server import ServerProcess

SHORT_S = 2.0
LEAST = 200
"""Measures at least, so that a p99 says something."""
LONG_S = 30.0
HEALTH_MOST_S = 0.1
RECORD_TIMES = 3
BUSY_S = 0.5
"""What a busy machine may add to a short attack's p99, the second slowest of 200: a server that is
stopped by one answers nothing for as long as it goes on."""
SERVED_MOST_S = 30.0
"""Until a task is made or a search answered; undisturbed it takes some milliseconds."""
STOP_MOST_S = 5.0
GROWTH_MOST = 512 * MIB
"""docs/operating.md says how it is made up."""
LEFT_MOST = 160 * MIB
LEFT_WITHIN_S = 15.0
PAYLOAD = "x" * 10_000
ROOT = Path(__file__).parents[2]


class Latencies:
    def __init__(self) -> None:
        self.health: list[float] = []
        self.record: list[float] = []

    @property
    def summary(self) -> str:
        return (
            f"{len(self.health)} health p99 {1e3 * p99(self.health):.1f} ms, "
            f"{len(self.record)} record p99 {1e3 * p99(self.record):.1f} ms"
        )


def p99(seconds: list[float]) -> float:
    return sorted(seconds)[len(seconds) * 99 // 100]


def measure(health: httpx.Client, client: tape.TapeClient, seconds: float) -> Latencies:
    """Ask for health and record, in turns, for so long; every answer is a good one."""
    seen = Latencies()
    until = time.monotonic() + seconds
    while time.monotonic() < until or len(seen.health) < LEAST:
        began = time.monotonic()
        assert health.get("/healthz").status_code == 200
        then = time.monotonic()
        client.record("other", 1)
        seen.health.append(then - began)
        seen.record.append(time.monotonic() - then)
    return seen


@contextmanager
def attacked(server: ServerProcess, name: str, seconds: float) -> Iterator[None]:
    grpc = server.url.removeprefix("tape://")
    command = [sys.executable, "-m", "tests.crash.door_attacks", name, grpc, server.http]
    attacker = subprocess.Popen(
        [*command, str(seconds)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    try:
        assert attacker.stdout is not None
        assert attacker.stdout.readline() == "under way\n"
        yield
    finally:
        attacker.kill()
        attacker.communicate()


def fill(server: ServerProcess, name: str) -> None:
    with tape.connect(server.url) as client:
        for _ in range(20):
            client.record_many([tape.event("large", PAYLOAD) for _ in range(100)])
    if name in ASKS_FOR_LARGE:
        fill_large(server.url.removeprefix("tape://"))
    elif name not in MAKES_STREAMS:
        fill_for_predicates(server.http)


def bear(store_url: str, name: str, seconds: float, *, slack_s: float = 0.0) -> None:
    with (
        ServerProcess(store_url) as server,
        httpx.Client(base_url=f"http://{server.http}", timeout=30) as health,
        tape.connect(server.url) as client,
    ):
        fill(server, name)
        calm = measure(health, client, seconds / 2)
        before = server.resident_bytes()
        with attacked(server, name, seconds + 120):
            seen = measure(health, client, seconds)
            most = server.resident_bytes() - before
            assert_stopped_in_time(server)
    times = p99(seen.record) / p99(calm.record)
    summary = f"calm {calm.summary}; attacked {seen.summary}, {times:.1f} times"
    print(f"{name}: {summary}; +{most / MIB:.0f} MiB")
    assert p99(seen.health) <= HEALTH_MOST_S + slack_s, summary
    assert most <= GROWTH_MOST, summary
    if name in TAKES_A_SHARE:
        assert p99(seen.record) <= HEALTH_MOST_S + slack_s, summary
    else:
        allowed = max(RECORD_TIMES * p99(calm.record), p99(calm.record) + slack_s)
        assert p99(seen.record) <= allowed, summary


def assert_stopped_in_time(server: ServerProcess) -> None:
    began = time.monotonic()
    assert server.stop() == 0
    assert time.monotonic() - began <= STOP_MOST_S


def assert_given_back(server: ServerProcess, before: int) -> None:
    until = time.monotonic() + LEFT_WITHIN_S
    while (left := server.resident_bytes() - before) > LEFT_MOST:
        assert time.monotonic() < until, f"{left / MIB:.0f} MiB are kept"
        time.sleep(0.1)


@pytest.mark.middle
@pytest.mark.parametrize("name", ["half_heads", "half_bodies"])
def test_a_short_attack(sqlite_url: str, name: str) -> None:
    bear(sqlite_url, name, SHORT_S, slack_s=BUSY_S)


def test_others_are_served_while_followers_take_all_they_may(store_url: str) -> None:
    """Theirs and a quick predicate's work is of the same process, and here of the same client."""
    with ServerProcess(store_url) as server, tape.connect(server.url) as client:
        fill_for_predicates(server.http, small=2_000, large=0)
        client.register_reaction(
            "ordinary", "/tape/event/recorded/ordinary/**", predicate="kind == 'event'"
        )
        with attacked(server, "costly_follow", 300):
            for number in range(1, 6):
                client.record("ordinary", {"n": number})
                assert_soon(partial(has_made, client, number))
                recent = "/api/events/recent?limit=5&where=payload.n<1000"
                found = httpx.get(f"http://{server.http}{recent}", timeout=SERVED_MOST_S).json()
                assert (len(found["events"]), found["error"]) == (5, "")


def has_made(client: tape.TapeClient, number: int) -> bool:
    return len(client.list_tasks("ordinary")) == number


def assert_soon(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + SERVED_MOST_S
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.long
@pytest.mark.parametrize("name", ATTACKS)
def test_a_long_attack(store_url: str, name: str) -> None:
    bear(store_url, name, LONG_S)


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(MAKES_STREAMS))
def test_memory_is_given_back(store_url: str, name: str) -> None:
    with (
        ServerProcess(store_url) as server,
        httpx.Client(base_url=f"http://{server.http}", timeout=30) as health,
        tape.connect(server.url) as client,
    ):
        fill(server, name)
        before = server.resident_bytes()
        with attacked(server, name, 120):
            measure(health, client, SHORT_S)
            most = server.resident_bytes() - before
        print(f"{name}: +{most / MIB:.0f} MiB")
        assert most <= GROWTH_MOST
        assert_given_back(server, before)
