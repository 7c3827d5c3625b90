"""From a broker to durable runs: a listener beside the slower of the two things that it does.

The bare client fetches and acknowledges; runs alone are begun a hundred at once. A listener has to
do both, and to read each message, decide by its headers and remember its place.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence

from benchmarks.accept import DOCUMENT, without_a_source
from benchmarks.result import Result, compare
from benchmarks.sources import (
    NATS_MESSAGES,
    add_durables,
    fill_nats,
    nats_alone,
)
from benchmarks.workload import PAYLOAD, REPETITIONS, on_loop, postgres, sqlite_file
from tape.bus import Bus
from tape.model.lease import NewRun
from tape.model.run import RunName
from tape.ports.credentials import OpenedCredential, SecretValue
from tape.programs.listening import ListensFor, listeners_keeper, listening
from tape.settings import Settings
from tests.servers.nats import NatsServer

BATCH = 100
AT_LEAST = 0.8


def run() -> Iterator[Result]:
    with sqlite_file() as path:
        yield _beside("SQLite", [f"sqlite:{path}"] * REPETITIONS)
    with postgres() as server:
        urls = [server.create_database(f"listen{turn}") for turn in range(REPETITIONS)]
        yield _beside("Postgres", urls)


def _beside(store: str, urls: Sequence[str]) -> Result:
    ours, client, runs = [], [], []
    with NatsServer() as server:
        nats = f"nats://{server.address}"
        on_loop(fill_nats(nats))
        for turn, url in enumerate(urls):
            names = f"ours-{turn}", f"theirs-{turn}"
            on_loop(add_durables(nats, *names))
            ours.append(on_loop(_listened(url, nats, names[0])))
            client.append(on_loop(nats_alone(nats, names[1])))
            runs.append(on_loop(_begun(url, f"runs{turn}")))
    slower, words = min(
        (client, "nats-py alone"), (runs, "begin_run, 100 at once"), key=lambda one: sum(one[0])
    )
    return compare(
        f"listen to NATS, {store}", "messages/s", ours, words, slower, n=NATS_MESSAGES,
        at_least=AT_LEAST,
    )  # fmt: skip


async def _listened(url: str, nats: str, durable: str) -> float:
    """Messages that became runs in a second, of a listener that has begun."""
    document = (
        DOCUMENT.format(name=durable)
        .replace("BENCH", "bench")
        .replace("consumer: bench", f"consumer: {durable}")
    )

    async def opened(alias: str, *, counts: bool = True) -> OpenedCredential:
        del counts
        return OpenedCredential(alias, 1, [SecretValue({"servers": nats})])

    async with without_a_source(url) as bus:
        await bus.subscriptions.register_subscription(document)
        await bus.subscriptions.move_subscription(durable, "activate")
        keeper = listeners_keeper(bus, opened, ListensFor(), Settings().listeners)
        async with listening(keeper):
            first = await _accepted(bus, durable, 1)
            started = time.perf_counter()
            last = await _accepted(bus, durable, NATS_MESSAGES)
            return (last - first) / (time.perf_counter() - started)


async def _accepted(bus: Bus, name: str, least: int) -> int:
    """How many messages are accepted, once they are so many."""
    while True:
        view = await bus.subscriptions.get_subscription(name)
        if view.listener.accepted >= least:
            return view.listener.accepted
        await asyncio.sleep(0.01)


async def _begun(url: str, session: str) -> float:
    """Runs begun in a second, with inputs of that size."""
    count = NATS_MESSAGES // 2
    async with without_a_source(url) as bus:
        started = time.perf_counter()
        for first in range(0, count, BATCH):
            names = (
                RunName("bench", "bench", session, str(number))
                for number in range(first, first + BATCH)
            )
            await asyncio.gather(*(bus.runs.begin_run(NewRun(name, PAYLOAD)) for name in names))
        return count / (time.perf_counter() - started)
