"""Many programs at once, programs that are killed, and the ids they draw."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import asyncpg
import psycopg
from opentelemetry import trace

import tape
from tape.outbox.publish_within import IDS
from tests.integration.outbox.conftest import Shop
from tests.integration.outbox.handles import SUBJECT, Rollback, async_psycopg_within, sqlite_within

PROGRAMS = 50
KEPT = {f"order-{number}" for number in range(PROGRAMS) if number % 3}
KILLED = Path(__file__).with_name("killed_program.py")


async def test_what_is_there_is_what_was_committed_on_postgres(postgres_shop: Shop) -> None:
    async with asyncpg.create_pool(postgres_shop.url, min_size=5, max_size=20) as pool:

        async def run(number: int) -> None:
            with suppress(Rollback):
                async with pool.acquire() as connection, connection.transaction():
                    order = f"order-{number}"
                    await connection.execute("INSERT INTO shop.orders VALUES ($1)", order)
                    await asyncio.sleep(0)
                    await tape.publish_within(
                        connection, SUBJECT, {"order": order}, entity_id=order
                    )
                    if order not in KEPT:
                        raise Rollback

        await asyncio.gather(*map(run, range(PROGRAMS)))
    assert_kept(postgres_shop)


def test_what_is_there_is_what_was_committed_on_sqlite(sqlite_shop: Shop) -> None:
    path = sqlite_shop.url.removeprefix("sqlite:")

    def run(number: int) -> None:
        order = f"order-{number}"
        with closing(sqlite3.connect(path, timeout=30)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO shop_orders VALUES (?)", (order,))
            tape.publish_within(connection, SUBJECT, {"order": order}, entity_id=order)
            if order in KEPT:
                connection.commit()
            else:
                connection.rollback()

    with ThreadPoolExecutor(10) as threads:
        list(threads.map(run, range(PROGRAMS)))
    assert_kept(sqlite_shop)


def assert_kept(shop: Shop) -> None:
    told = [entity for (entity,) in shop.read("SELECT entity_id FROM bus@outbox")]
    assert sorted(told) == sorted(KEPT)
    assert shop.orders() == KEPT
    assert len(set(shop.events())) == len(KEPT)


def test_a_killed_program_leaves_nothing(any_shop: Shop) -> None:
    program = subprocess.Popen(
        [sys.executable, str(KILLED), any_shop.url],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    with program:
        assert program.stdout is not None
        assert program.stdout.readline() == "committed one, wrote another\n"
        program.send_signal(signal.SIGKILL)
        assert program.wait(30) == -signal.SIGKILL
    assert any_shop.orders() == {"committed"}
    assert any_shop.read("SELECT entity_id FROM bus@outbox") == [("committed",)]


async def test_the_trace_is_that_of_the_span_around_it(any_shop: Shop) -> None:
    inside = sqlite_within if any_shop.url.startswith("sqlite:") else async_psycopg_within
    span = trace.SpanContext(0xA1, 0xB2, is_remote=False)
    async with inside(any_shop.url) as program:
        with trace.use_span(trace.NonRecordingSpan(span)):
            await program.publish("traced")
        await program.publish("untraced")
    assert any_shop.read(
        "SELECT trace_id, span_id, parent_span_id FROM bus@outbox ORDER BY id"
    ) == [
        (f"{0xA1:032x}", f"{0xB2:016x}", ""),
        ("", "", ""),
    ]


def test_threads_draw_different_ids() -> None:
    drawn: list[str] = []
    ready = threading.Barrier(4)

    def draw() -> None:
        ready.wait()
        drawn.extend([IDS.draw() for _ in range(5_000)])

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(drawn)) == 20_000


def test_forks_draw_different_ids() -> None:
    """Also in the millisecond of the fork: here the clock stands still."""
    code = (
        "import os, sys, time\n"
        "time.time_ns = lambda: 1_800_000_000_000_000_000\n"
        "from tape.outbox.publish_within import IDS\n"
        "IDS.draw()\n"
        "child = os.fork()\n"
        "os.write(1, f'{IDS.draw()} '.encode())\n"
        "child and os.waitpid(child, 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    first, second = done.stdout.split()
    assert first != second


def test_a_transaction_waits_for_nobody(postgres_shop: Shop) -> None:
    """One that stays open holds up no other: nothing in the outbox is locked by two."""
    with (
        psycopg.connect(postgres_shop.url) as slow,
        slow.transaction(),
        psycopg.connect(postgres_shop.url, options="-c lock_timeout=1s") as fast,
    ):
        tape.publish_within(slow, SUBJECT)
        with fast.transaction():
            event_id = tape.publish_within(fast, SUBJECT)
        assert postgres_shop.events() == [event_id]


def test_no_driver_is_loaded_but_the_programs_own(sqlite_shop: Shop) -> None:
    code = (
        "import sqlite3, sys, tape\n"
        "desk = sqlite3.connect(sys.argv[1])\n"
        "desk.execute('BEGIN')\n"
        "tape.publish_within(desk, 'orders.placed', {'order': 7})\n"
        "desk.commit()\n"
        "heavy = {'psycopg', 'asyncpg', 'sqlalchemy', 'django', 'pydantic', 'grpc', 'nats'}\n"
        "sys.exit(' '.join(heavy & sys.modules.keys()) or None)\n"
    )
    subprocess.run(
        [sys.executable, "-c", code, sqlite_shop.url.removeprefix("sqlite:")], check=True,
        timeout=60, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert len(sqlite_shop.events()) == 1
