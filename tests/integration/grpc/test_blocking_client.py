"""The blocking client: the same calls, from any thread, and programs that end all the same."""

import asyncio
import gc
import inspect
import os
import subprocess
import sys
import threading
from typing import Any

import pytest

import tape
from tape.client.portal import Portal

HEAD = """
import os, sys, threading, tape
url = sys.argv[1]
client = tape.connect(url)
"""


@pytest.fixture(params=["sqlite", "tape"])
async def url(request: pytest.FixtureRequest, sqlite_url: str, serving: Any) -> str:
    """In process and with a server; the tests themselves are on threads of their own."""
    if request.param == "sqlite":
        return sqlite_url
    server = await serving(sqlite_url)
    return str(server.url)


def program(url: str, body: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", HEAD + body, url],
        capture_output=True, text=True, timeout=90, check=False,
        env={**os.environ, "GRPC_VERBOSITY": "ERROR"},
    )  # fmt: skip


def test_it_has_what_the_other_has() -> None:
    for name, method in inspect.getmembers(tape.AsyncTapeClient, inspect.isfunction):
        if not name.startswith("_"):
            twin = getattr(tape.TapeClient, name)
            assert (
                inspect.signature(twin).parameters.keys()
                == inspect.signature(method).parameters.keys()
            )
            assert twin.__doc__ == method.__doc__


async def test_a_program_from_start_to_end(url: str) -> None:
    def body() -> None:
        with tape.connect(url) as client:
            with client.follow(after=None) as entries:
                first = client.record("a", {"x": 1}, idempotency_key="k")
                assert next(entries).event_id == first.event_id
            assert list(entries) == []
            client.record_many([tape.event("b", i) for i in range(2_500)])
            assert [
                e.payload for e in client.follow("/tape/event/recorded/b/**", live=False)
            ] == list(range(2_500))
            assert sum(len(page.entries) for page in client.pages(live=False)) == 2_501
            assert client.set_value("n", "k", [1]).value == [1]
            assert next(client.watch_value("n", "k")).value.value == [1]
            assert [value.key for value in client.list_values("n")] == ["k"]
            with pytest.raises(tape.VersionMismatch):
                client.set_value("n", "k", 2, if_version=5)
            with pytest.raises(tape.InvalidArgument):
                next(client.follow("nonsense"))
        with pytest.raises(tape.Closed):
            client.info()
        client.close()

    await asyncio.to_thread(body)


async def test_several_threads_and_clients(url: str) -> None:
    def body() -> None:
        with tape.connect(url) as one, tape.connect(url) as two:
            clients = [one, two] * 4
            threads = [
                threading.Thread(target=lambda c=c: [c.record("a") for _ in range(25)])
                for c in clients
            ]
            for thread in threads:
                thread.start()
            seen = [entry.global_seq for _, entry in zip(range(200), one.follow(), strict=False)]
            for thread in threads:
                thread.join()
            assert seen == list(range(1, 201))

    await asyncio.to_thread(body)


@pytest.mark.parametrize("closing", ["stream", "client"])
async def test_closing_wakes_a_waiting_reader(url: str, closing: str) -> None:
    def body() -> None:
        client = tape.connect(url)
        stream = client.follow()
        client.record("a")
        next(stream)
        seen: list[Any] = []
        reader = threading.Thread(target=lambda: seen.append(next(stream, "end")))
        reader.start()
        (stream if closing == "stream" else client).close()
        reader.join(60)
        assert seen == ["end"]
        client.close()

    await asyncio.to_thread(body)


def test_a_dropped_client_takes_its_thread_along(sqlite_url: str) -> None:
    before = set(threading.enumerate())
    client = tape.connect(sqlite_url)
    client.record("a")
    (mine,) = [t for t in set(threading.enumerate()) - before if t.name == "tape-client"]
    stream = client.follow()
    next(stream)
    del client, stream
    gc.collect()
    mine.join(60)
    assert not mine.is_alive()


def test_nothing_hangs_on_a_closed_portal() -> None:
    portal = Portal()
    waiting = portal.submit(asyncio.Event().wait)
    portal.close()
    assert waiting.cancelled()
    with pytest.raises(tape.Closed):
        portal.run(lambda: asyncio.sleep(0))
    portal.close()
    portal.abandon()


@pytest.mark.parametrize(
    "body",
    [
        "client.record('a')",
        "stream = client.follow(); client.record('a'); next(stream)",
        "for entry in client.follow(live=False): pass",
        "threading.Thread(target=list, args=(client.follow(),), daemon=True).start()",
        "import atexit; atexit.register(list, client.follow(live=False))",
        "del client",
        "other = tape.connect(url); other.record('a')",
        "client.record('a'); client.close()",
    ],
)
async def test_a_program_may_end_without_closing(url: str, body: str) -> None:
    done = await asyncio.to_thread(program, url, body)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


async def test_a_forked_child_is_told_to_connect_again(url: str) -> None:
    body = """
client.record("parent")
stream = client.follow()
child = os.fork()
if not child:
    for call in (client.info, lambda: client.record("a"), lambda: next(client.follow())):
        try:
            call()
        except tape.Closed as error:
            assert "after a fork" in str(error)
        else:
            sys.exit(3)
    assert list(stream) == []
    client.close()
    try:
        with tape.connect(url) as own:
            own.record("child")
    except tape.Closed as error:  # gRPC cannot be used after a fork, and says so
        assert url.startswith("tape:") and "fork" in str(error)
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
client.record("parent again")
client.close()
"""
    done = await asyncio.to_thread(program, url, body)
    assert (done.returncode, done.stderr) == (0, "")


async def test_an_interrupt_ends_the_wait(url: str) -> None:
    body = """
import signal
signal.signal(signal.SIGALRM, signal.default_int_handler)
try:
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    next(client.follow())
except KeyboardInterrupt:
    client.record("a")
    print("interrupted", client.info().head_global_seq)
"""
    done = await asyncio.to_thread(program, url, body)
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted 1\n", "")
