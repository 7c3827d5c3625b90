"""A subscription of 50 messages a second, alone and beside a firehose of another in one server.

Measured is from the moment at which the broker has a message until the journal has its run, and
from there until a worker has begun with it, of 99 in 100 messages. The firehose has more messages
waiting than the server can take in that time. Alone and beside it take turns.

The writer's queue refuses what has waited for room for so long: if no message had to wait as long,
nothing of the steady subscription was refused.
"""

import asyncio
import base64
import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from multiprocessing.process import BaseProcess
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory
from typing import NamedTuple

from nats.aio.client import Client
from nats.js.api import AckPolicy, ConsumerConfig

import tape
from benchmarks.result import Result, compare
from benchmarks.workload import PAYLOAD, on_loop, postgres, sqlite_file
from tape.bus import FollowQuery
from tape.programs.connect import open_bus
from tape.settings import WriterSettings
from tests.servers.nats import NatsServer
from tests.servers.tape_server import ServerProcess
from tests.servers.tape_worker import WorkerProcess

FIREHOSE = 250_000
PER_S = 50
SECONDS = 15
TURNS = 3
AT_MOST = 1.5
MB = 1_000_000
DOCUMENT = """
apiVersion: tape/v1
kind: Subscription
metadata: {{name: {name}, path: subscriptions/{name}}}
spec:
  source: nats
  mode: pull
  activation: continuous
  auth: broker
  stream: {name}
  consumer: tape
  dispatch: {{playbook: {name}, execution_pool: {pool}, payload_from: message.json}}
"""


class Measured(NamedTuple):
    """How long messages of the steady subscription waited to be accepted, and their runs to be
    begun with; what the firehose came to beside them."""

    accepted_ms: list[float]
    started_ms: list[float]
    beside: int
    memory: int


@tape.app("steady", pool="desk")
async def steady(_ctx: tape.Context, given: dict[str, object]) -> int:
    return len(given)


def run() -> Iterator[Result]:
    with sqlite_file() as path:
        yield from _results("SQLite", (f"sqlite:{path}{turn}" for turn in count()))
    with postgres() as server:
        yield from _results("Postgres", (server.create_database(f"b{turn}") for turn in count()))


def _results(store: str, fresh: Iterator[str]) -> Iterator[Result]:
    alone, beside = list[Measured](), list[Measured]()
    for _turn in range(TURNS):
        alone.append(_measured(next(fresh), firehose=0))
        beside.append(_measured(next(fresh), firehose=FIREHOSE))
    for what, ours, theirs in (
        ("accepted", [m.accepted_ms for m in beside], [m.accepted_ms for m in alone]),
        ("run begun with", [m.started_ms for m in beside], [m.started_ms for m in alone]),
    ):
        yield compare(
            f"{what} p99 beside a firehose, {store}", "ms", [*map(_p99, ours)], "alone",
            [*map(_p99, theirs)], n=TURNS * PER_S * SECONDS, at_most=AT_MOST,
        )  # fmt: skip
    longest = [max(m.accepted_ms) for m in beside]
    refused_ms = WriterSettings().queue_wait_s * 1000
    yield compare(
        f"longest wait to be accepted beside a firehose, {store}", "ms", [max(longest)],
        "the queue refuses after", [refused_ms], n=TURNS * PER_S * SECONDS, at_most=1.0,
    )  # fmt: skip
    yield compare(
        f"memory of a server under a firehose, {store}", "MB", [m.memory / MB for m in beside],
        "300 MB", [300.0], n=sum(m.beside for m in beside), at_most=1.0,
    )  # fmt: skip


def _p99(waited: Sequence[float]) -> float:
    return quantiles(waited, n=100)[98]


def _measured(url: str, *, firehose: int) -> Measured:
    key = base64.b64encode(os.urandom(32)).decode()
    with (
        NatsServer() as nats,
        ServerProcess(url, env={"TAPE_WALLET_KEY": key}) as server,
        _worker(server.url),
    ):
        address = f"nats://{nats.address}"
        on_loop(_make(address, firehose))
        with tape.connect(server.url) as client:
            client.put_credential("broker", {"servers": address})
            for name, pool in (("steady", "desk"), ("firehose", "iot")):
                client.register_subscription(DOCUMENT.format(name=name, pool=pool))
            client.move_subscription("steady", "activate")
            if firehose:
                client.move_subscription("firehose", "activate")
                while not client.subscription("firehose").listener.accepted:
                    time.sleep(0.1)
            memory = 0
            with _publishing(address) as publisher:
                before = client.subscription("firehose").listener.accepted
                while publisher.is_alive():
                    memory = max(memory, server.resident_bytes())
                    time.sleep(0.2)
                after = client.subscription("firehose").listener.accepted
            if firehose and after >= firehose:
                raise RuntimeError("the firehose had nothing left: more messages are needed")
            while client.subscription("steady").listener.accepted < PER_S * SECONDS:
                time.sleep(0.1)
            while client.list_runs(pool="desk", status="runnable", limit=1):
                time.sleep(0.1)
    accepted_ms, started_ms = on_loop(_waited(url))
    return Measured(accepted_ms, started_ms, after - before, memory)


@contextmanager
def _worker(url: str) -> Iterator[None]:
    """Who drives the runs of the steady subscription."""
    with TemporaryDirectory(prefix="tape-bench-") as folder:
        arguments = ("-m", "tape.cli", "worker", "-m", "benchmarks.listen_beside", "--url", url)
        with WorkerProcess(*arguments, "--pool", "desk", log=Path(folder) / "log") as worker:
            while not worker.has_begun:
                time.sleep(0.05)
            yield


async def _make(address: str, firehose: int) -> None:
    client = Client()
    await client.connect(address)
    jetstream = client.jetstream()
    for name in ("steady", "firehose"):
        await jetstream.add_stream(name=name, subjects=[f"{name}.>"])
        durable = ConsumerConfig(
            durable_name="tape", ack_policy=AckPolicy.EXPLICIT, max_ack_pending=5_000
        )
        await jetstream.add_consumer(name, durable)
    for first in range(0, firehose, 1_000):
        await asyncio.gather(
            *(
                jetstream.publish("firehose.a", PAYLOAD.encode())
                for _ in range(first, min(first + 1_000, firehose))
            )
        )
    await client.close()


@contextmanager
def _publishing(address: str) -> Iterator[BaseProcess]:
    process = multiprocessing.get_context("spawn").Process(
        target=_publish, args=(address,), daemon=True
    )
    process.start()
    try:
        yield process
    finally:
        process.join(60)
        process.kill()


def _publish(address: str) -> None:
    async def at_a_steady_pace() -> None:
        client = Client()
        await client.connect(address)
        began = time.monotonic()
        for number in range(PER_S * SECONDS):
            await asyncio.sleep(max(0.0, began + number / PER_S - time.monotonic()))
            await client.publish("steady.a", PAYLOAD.encode())
        await client.flush()
        await client.close()

    asyncio.run(at_a_steady_pace())


async def _waited(url: str) -> tuple[list[float], list[float]]:
    """Of each run of the steady subscription, how long its message waited for it, and how long it
    waited for a worker, in milliseconds."""
    bus = await open_bus(url)
    upto = (await bus.info()).head_global_seq
    accepted: list[float] = []
    begun_ms: dict[str, int] = {}
    started: dict[str, float] = {}
    async for page in bus.follow(FollowQuery("/tape/run/*/steady/**", until=upto)):
        for entry in page.entries:
            if entry.seq == 1:
                message = entry.payload["input"]["message"]
                accepted.append(float(entry.ts_ms - message["timestamp_ms"]))
                begun_ms[entry.run_id] = entry.ts_ms
            elif "owner" in entry.payload:
                started.setdefault(entry.run_id, float(entry.ts_ms - begun_ms[entry.run_id]))
    await bus.close()
    return accepted, [*started.values()]
