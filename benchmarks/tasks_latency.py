"""From recording to the start of the handler at light load: one task at a time, about 50 a second.

The clock starts before the call that records or enqueues, and is read as the handler begins. The
pauses are random, so that no side falls into step with a timer of its own.
"""

import asyncio
import random
import time
from collections.abc import Iterator
from typing import Any

import orjson

from benchmarks import tasks
from benchmarks.result import Result, compare
from benchmarks.tasks_peers import Send, pgqueuer_worker, procrastinate_worker
from benchmarks.workload import on_loop, opened, postgres
from tape.bus import Operations
from tape.model.event import NewEvent
from tape.programs.connect import open_operations
from tape.settings import Settings
from tests.servers.tape_server import ServerProcess

TURNS = 3
SAMPLES = 300
WARM_UP = 20
LOST_S = 20.0
PAUSES_S = (0.008, 0.028)
PGQUEUER_BATCH = 10
PROCRASTINATE_CONCURRENCY = 10
PAD = "x" * 260


def run() -> Iterator[Result]:
    with postgres() as server:
        ours_url, fast_url, slow_url = map(server.create_database, ("ours", "fast", "slow"))
        served_url = server.create_database("served")
        ours, served, fast, slow = _Turns(), _Turns(), _Turns(), _Turns()
        with ServerProcess(served_url) as door:
            for _ in range(TURNS):
                ours.add(on_loop(_in_process(ours_url)))
                fast.add(on_loop(_pgqueuer(fast_url)))
                slow.add(on_loop(_procrastinate(slow_url)))
                served.add(on_loop(_through_server(door.url)))
    where = "record to handler {}, {}, Postgres"
    pgqueuer, procrastinate = "pgqueuer, enqueue to job", "procrastinate, defer to job"
    yield compare(
        where.format("p50", "one process"), "ms", ours.p50, pgqueuer, fast.p50,
        n=SAMPLES, at_most=1.0,
    )  # fmt: skip
    yield compare(
        where.format("p99", "one process"), "ms", ours.p99, procrastinate, slow.p99,
        n=SAMPLES, at_most=1.0,
    )  # fmt: skip
    yield compare(where.format("p99", "one process"), "ms", ours.p99, pgqueuer, fast.p99, n=SAMPLES)
    yield compare(
        where.format("p50", "through gRPC"), "ms", served.p50, pgqueuer, fast.p50, n=SAMPLES
    )
    yield compare(
        where.format("p99", "through gRPC"), "ms", served.p99, procrastinate, slow.p99, n=SAMPLES
    )


class _Turns:
    """p50 and p99 of each turn, in ms."""

    def __init__(self) -> None:
        self.p50: list[float] = []
        self.p99: list[float] = []

    def add(self, waits: list[float]) -> None:
        in_order = sorted(waits)
        self.p50.append(in_order[len(in_order) // 2] * 1000)
        self.p99.append(in_order[len(in_order) * 99 // 100] * 1000)


class _Beats:
    """Sends one payload after another, each when the one before has been heard."""

    def __init__(self) -> None:
        self._waits: list[float] = []
        self._arrived = asyncio.Event()

    def heard(self, at: float) -> None:
        self._waits.append(time.perf_counter() - at)
        self._arrived.set()

    def heard_payload(self, payload: bytes) -> None:
        now = time.perf_counter()
        self._waits.append(now - orjson.loads(payload)["at"])
        self._arrived.set()

    async def send(self, send: Send) -> list[float]:
        for _ in range(WARM_UP + SAMPLES):
            await asyncio.sleep(random.uniform(*PAUSES_S))
            self._arrived.clear()
            await send(orjson.dumps({"at": time.perf_counter(), "note": PAD}))
            async with asyncio.timeout(LOST_S):
                await self._arrived.wait()
        return self._waits[WARM_UP:]


async def _in_process(url: str) -> list[float]:
    async with opened(url) as bus:
        bus.start_matching()
        return await _tape(bus, bus)


async def _through_server(url: str) -> list[float]:
    recorder = await open_operations(url, "", Settings())
    worker = await open_operations(url, "", Settings())
    try:
        return await _tape(recorder, worker)
    finally:
        await recorder.close()
        await worker.close()


async def _tape(recorder: Operations, worker: Operations) -> list[float]:
    beats = _Beats()

    async def handle(entry: dict[str, Any]) -> None:
        beats.heard(entry["payload"]["at"])

    async def send(payload: bytes) -> None:
        await recorder.record_events([NewEvent("beat", payload.decode())])

    await tasks.register(recorder)
    async with tasks.dispatching(worker, handle):
        return await beats.send(send)


async def _pgqueuer(url: str) -> list[float]:
    beats = _Beats()
    async with pgqueuer_worker(url, beats.heard_payload, PGQUEUER_BATCH) as send:
        return await beats.send(send)


async def _procrastinate(url: str) -> list[float]:
    beats = _Beats()
    async with procrastinate_worker(url, beats.heard_payload, PROCRASTINATE_CONCURRENCY) as send:
        return await beats.send(send)
