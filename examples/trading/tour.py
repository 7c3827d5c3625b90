"""A market, minute by minute, on a real Postgres and NATS: `python -m examples.trading.tour`.

In the middle the relay that leads is killed and another takes over. The market rises until risk has
the bots halted; an operator resets the breakers; the market falls. At the end every kline has led
to one intent, or was let pass by a halted bot, and every intent to one fill or to a refusal.
"""

# ruff: noqa: T201 - a tour is told

import argparse
import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import asyncpg

import tape
from examples.trading.books import Books, read_books
from examples.trading.bot import Bot, take_lease
from examples.trading.data import write_kline
from examples.trading.events import KlineEvent
from examples.trading.exchange import Exchange
from examples.trading.executor import Executor
from examples.trading.manager import Manager
from examples.trading.market import minutes
from examples.trading.risk import Risk
from examples.trading.service import STREAM, Desk
from tests.servers.nats import NatsServer
from tests.servers.postgres import PostgresServer

ROOT = Path(__file__).parents[2]
TAPE = [sys.executable, "-m", "tape.cli"]
BOTS = {"7": "BTCUSDT", "8": "ETHUSDT"}
POSITION_LIMIT = 4.0
LEAST_MINUTES = 18
PATIENCE_S = 60.0
SETTINGS = """
tape:
  outbox:
    nats: nats://{nats}
    lead_retry_s: 0.2
  stream:
    name: {stream}
    subjects: ["market.klines.>", "intents.>", "risk.>", "trading.>"]
    max_age_s: 604800
    max_bytes: 805306368
"""


Klines = list[KlineEvent]
Service = Callable[[], Coroutine[Any, Any, None]]
Watch = Callable[[Callable[[Books], bool], str], Coroutine[Any, Any, None]]


def main() -> int:
    parser = argparse.ArgumentParser(description="A trading desk on the outbox, for some minutes.")
    parser.add_argument("--minutes", type=int, default=30)
    count: int = parser.parse_args().minutes
    if count < LEAST_MINUTES:
        parser.error(f"--minutes is {count}; the breakers need {LEAST_MINUTES} to trip")
    with (
        tempfile.TemporaryDirectory() as folder,
        PostgresServer() as postgres,
        NatsServer() as nats,
    ):
        config = Path(folder) / "tape.yaml"
        config.write_text(SETTINGS.format(nats=nats.address, stream=STREAM))
        store = postgres.create_database("desk")
        for command in (("migrate", "--store", store), ("outbox", "stream", "apply")):
            subprocess.run(  # noqa: S603 - our own command
                [*TAPE, *command, "--config", str(config)],
                cwd=ROOT, check=True, stdout=subprocess.DEVNULL,
            )  # fmt: skip
        books = asyncio.run(_play(store, f"nats://{nats.address}", config, count))
    return _tell(books, count)


async def _play(store: str, nats_url: str, config: Path, count: int) -> Books:
    async with (
        asyncpg.create_pool(store, min_size=2, max_size=12) as pool,
        tape.connect_async(store) as client,
        pool.acquire() as watching,
    ):
        await watching.execute((ROOT / "examples/trading/tables.sql").read_text())
        desk = Desk(pool, nats_url, asyncio.Event())
        risk = Risk(desk, POSITION_LIMIT)
        bots = [Bot(desk, b, BOTS[b], await take_lease(client, b)) for b in BOTS]
        executor = Executor(desk, client, Exchange())
        services = [bot.run for bot in bots] + [executor.run, risk.run, Manager(desk).run]
        async with (
            _running(desk, services),
            _watching(watching) as watch,
        ):
            with contextlib.ExitStack() as relays:

                def start_relay() -> "subprocess.Popen[bytes]":
                    return relays.enter_context(_relay(store, config))

                await _rise(desk, list(minutes(count)), start_relay, watch)
                for bot_id in BOTS:
                    await risk.reset(bot_id)
                await watch(lambda books: not books.halts, "the bots to resume")
                await _write(desk, list(minutes(count))[count // 2 :])
                await watch(lambda books: books.settled, "everything to settle")
                return await read_books(watching)


async def _rise(
    desk: Desk,
    market: list[Klines],
    start_relay: Callable[[], "subprocess.Popen[bytes]"],
    watch: Watch,
) -> None:
    """Until the bots are halted, and a while longer."""
    third = len(market) // 6
    leader = start_relay()
    await _write(desk, market[:third])
    await watch(lambda books: books.published > 0, "the first relay to lead")
    start_relay()
    await _write(desk, market[third : third + 1])
    leader.send_signal(signal.SIGKILL)
    leader.wait()
    print(f"the relay that led was killed at minute {third}")
    await _write(desk, market[third + 1 : 2 * third])
    halts = 2 * len(BOTS)  # each bot knows of its own, and the executor of all
    await watch(lambda books: books.halts == halts, "the breakers to trip")
    await watch(lambda books: books.shown == len(BOTS), "the manager to show them")
    print(f"bots {', '.join(BOTS)} are halted by risk, and the manager shows it")
    await _write(desk, market[2 * third : len(market) // 2])
    await watch(lambda books: books.settled, "everything to settle")


async def _write(desk: Desk, market: list[Klines]) -> None:
    for klines in market:
        for kline in klines:
            await write_kline(desk, kline)
            await write_kline(desk, kline)  # exchanges repeat themselves


@contextlib.asynccontextmanager
async def _watching(connection: Any) -> AsyncIterator[Watch]:
    """Waits until the books are as wanted; looks when a service says that something happened."""
    changed = asyncio.Event()

    def told(*_what: object) -> None:
        changed.set()

    async def watch(wanted: Callable[[Books], bool], what: str) -> None:
        books = await read_books(connection)
        give_up = time.monotonic() + PATIENCE_S
        while not wanted(books):
            if time.monotonic() > give_up:
                raise SystemExit(f"waited {PATIENCE_S:.0f} s for {what}: {books}")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.2):  # nobody tells of what the relay marks
                    await changed.wait()
            changed.clear()
            books = await read_books(connection)

    await connection.add_listener("bot_events", told)
    try:
        yield watch
    finally:
        await connection.remove_listener("bot_events", told)


@contextlib.asynccontextmanager
async def _running(desk: Desk, services: list[Service]) -> AsyncIterator[None]:
    """Services until the end of the block; one that fails ends the tour."""
    async with asyncio.TaskGroup() as tasks:
        for service in services:
            tasks.create_task(service())
        try:
            yield
        finally:
            desk.stop.set()


@contextlib.contextmanager
def _relay(store: str, config: Path) -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen(  # noqa: S603 - our own command
        [*TAPE, "outbox", "relay", "--store", store, "--config", str(config)],
        cwd=ROOT, env=os.environ,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def _tell(books: Books, count: int) -> int:
    print(f"{books.klines} klines: {books.intents} intents, {books.passed} let pass by halted bots")
    print(f"{books.intents} intents: {books.fills} fills, {books.refused} refused")
    print(
        f"{books.events} events: {books.published} published, {books.on_the_journal} on the journal"
    )
    right = (
        books.klines == count * len(BOTS)
        and books.settled
        and books.on_the_journal == books.events
        and books.passed > 0
        and books.leaders == 2
    )
    print("at most one intent and one fill for each kline, and none lost" if right else f"{books}")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
