"""A broker is killed, and headers reroute: `python -m examples.subscriptions.tour`.

Somebody sends orders over a real NATS server, with a login that is in the wallet. The server is
killed in the middle and started again on its data. A tenth of the orders is urgent: their headers
choose another app and another pool. One asks for an app that is not on the list.
"""

# ruff: noqa: T201 - a tour is told

import argparse
import asyncio
import base64
import contextlib
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import tape
from examples.subscriptions import apps
from examples.subscriptions.books import NAME, Books, read_books
from examples.subscriptions.sender import Order, orders, sending
from tape.worker import WorkerOptions, work
from tests.servers.nats import NatsServer

HERE = Path(__file__).parent
TAPE = [sys.executable, "-m", "tape.cli"]
POOLS = ("desk", "urgent")
LEAST_ORDERS = 20  # so many, for one urgent in each half
PATIENCE_S = 60.0
UNHEARD_S = 0.5
BEGUN = f"/tape/run/runnable/*/subscription/{NAME}/**"
ENDED = f"/tape/run/terminal/*/subscription/{NAME}/**"
LOGIN = 'authorization {{user: "tape", password: "{password}"}}'


def main() -> int:
    parser = argparse.ArgumentParser(description="Orders become runs, and the broker is killed.")
    parser.add_argument("--orders", type=int, default=400)
    count: int = parser.parse_args().orders
    if count < LEAST_ORDERS:
        parser.error(f"--orders is {count}; the tour needs {LEAST_ORDERS}")
    password = secrets.token_hex(12)
    with (
        tempfile.TemporaryDirectory() as folder,
        NatsServer(LOGIN.format(password=password)) as nats,
        _server(Path(folder)) as url,
    ):
        return _told(asyncio.run(_play(url, nats, password, orders(count))))


async def _play(url: str, nats: NatsServer, password: str, wanted: list[Order]) -> Books:
    login = {"servers": [f"nats://{nats.address}"], "user": "tape", "password": password}
    half = len(wanted) // 2
    async with (
        tape.connect_async(url) as client,
        sending(nats.address, "tape", password) as sender,
    ):
        await sender.make_stream()
        await sender.send(wanted[:half])  # there is a backlog when listening begins
        await client.put_credential("nats_main", login)
        await client.register_subscription(HERE / "orders.yaml")
        async with _working(url), _in_time():
            await client.move_subscription(NAME, "activate")
            await _until_there(client, BEGUN, 1)
            rest = asyncio.create_task(sender.send(wanted[half:]))
            await _kill_unheard(client, nats)
            print(f"NATS was killed after {sender.sent} of {len(wanted)} orders had been sent")
            nats.start()
            await rest
            await sender.await_acknowledged()
            await _until_there(client, ENDED, len(wanted))
        return await read_books(client, wanted)


async def _kill_unheard(client: tape.AsyncTapeClient, nats: NatsServer) -> None:
    """Kill NATS. It hears nothing for a moment before, so acknowledgements are lost with it."""
    nats.pause()
    accepted = (await client.subscription(NAME)).listener.accepted
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(UNHEARD_S):
            await _until_there(client, BEGUN, accepted + 1)
    nats.kill()


def _told(books: Books) -> int:
    print(
        f"{len(books.sent)} orders were sent and {books.accepted} accepted; {books.redelivered} "
        f"came again after that, {len(books.rerouted)} were rerouted"
    )
    promises = list(books.promises())
    for promise, held in promises:
        print(f"{'✓' if held else '✗ BROKEN:'} {promise}")
    return 0 if all(held for _promise, held in promises) else 1


async def _until_there(client: tape.AsyncTapeClient, pattern: str, count: int) -> None:
    """Until the journal has so many entries of a pattern."""
    async with client.follow(pattern) as entries:
        async for _entry in entries:
            count -= 1
            if not count:
                return


@contextlib.asynccontextmanager
async def _in_time() -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield
    except TimeoutError:
        placed = len(apps.AT_THE_VENUE)
        raise SystemExit(f"after {PATIENCE_S:.0f} s only {placed} orders were placed") from None


@contextlib.asynccontextmanager
async def _working(url: str) -> AsyncIterator[None]:
    """A worker for each pool meanwhile."""
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as workers:
        for pool in POOLS:
            workers.create_task(work(WorkerOptions(url=url, pool=pool), stop=stop))
        try:
            yield
        finally:
            stop.set()


@contextlib.contextmanager
def _server(folder: Path) -> Iterator[str]:
    """A server with a store and a key for its wallet; its URL."""
    key = base64.b64encode(secrets.token_bytes(32)).decode()
    process = subprocess.Popen(  # noqa: S603 - our own command
        [*TAPE, "serve", "--store", f"sqlite:{folder / 'tape.db'}",
         "--grpc", "127.0.0.1:0", "--no-http"],
        env=os.environ | {"TAPE_WALLET_KEY": key}, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # that NATS is away is told here
    )  # fmt: skip
    try:
        said = process.stdout.readline().split() if process.stdout else []
        if said[:1] != ["grpc"]:
            raise SystemExit(f"tape serve said {said} instead of being ready")
        yield f"tape://{said[1]}"
    finally:
        process.terminate()
        process.communicate()


if __name__ == "__main__":
    sys.exit(main())
