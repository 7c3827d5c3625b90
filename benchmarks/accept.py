"""Accepting messages beside beginning runs: batches of 100, of both kinds in turns.

Both begin one run of each message, with the same input. Whoever accepts reads the message, decides
by its headers and remembers its place, so that it is accepted once; whoever begins a run has the
input ready. They alternate batch by batch, for no machine is equally busy for long.
"""

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager

from benchmarks.result import Result, compare
from benchmarks.workload import PAYLOAD, REPETITIONS, on_loop, postgres, sqlite_file
from tape.bus import Bus
from tape.model.lease import NewRun
from tape.model.message import SourceMessage
from tape.model.run import RunName
from tape.settings import Limits, Settings
from tape.stores.by_url import open_store
from tape.subscriptions.operations import AcceptMessagesRequest, HoldSubscription
from tape.subscriptions.planning import Planner
from tape.subscriptions.spec import read_document

BATCH = 100
BATCHES = 60
HOUR_MS = 3_600_000
DOCUMENT = """
apiVersion: tape/v1
kind: Subscription
metadata: {{name: {name}, path: subscriptions/{name}}}
spec:
  source: nats
  mode: pull
  activation: continuous
  auth: bench
  stream: BENCH
  consumer: bench
  dispatch: {{playbook: bench}}
  headers:
    directives: [{{header: x-route, controls: dispatch.playbook, allowed: [other]}}]
"""
Work = Callable[[int], Coroutine[object, object, None]]


def run() -> Iterator[Result]:
    with sqlite_file() as path:
        yield from _results("SQLite", [f"sqlite:{path}"] * REPETITIONS)
    with postgres() as server:
        urls = [server.create_database(f"bench{turn}") for turn in range(REPETITIONS)]
        yield from _results("Postgres", urls)


def _results(store: str, urls: Sequence[str]) -> Iterator[Result]:
    for extra, words in (("", ""), ("  dedup: {window_secs: 600}\n", ", with a window of keys")):
        turns = [
            on_loop(_in_turns(url, f"b{turn}{len(extra)}", extra)) for turn, url in enumerate(urls)
        ]
        ours, theirs = zip(*turns, strict=True)
        yield compare(
            f"accept batches of 100 messages{words}, {store}", "messages/s", ours,
            "begin_run, 100 at once", theirs, n=BATCH * BATCHES,
            at_least=None if extra else 0.9,
        )  # fmt: skip


async def _in_turns(url: str, name: str, extra: str) -> tuple[float, float]:
    """Messages accepted, and runs begun, in a second of the time that each had."""
    document = DOCUMENT.format(name=name) + extra
    planner = Planner(read_document(document).spec, Limits())
    async with without_a_source(url) as bus:
        token = await _listen(bus, document, name)
        messages = [_message(name, number) for number in range(BATCH * BATCHES)]
        runs = [
            NewRun(RunName("bench", "bench", name, message.place), planned.run.input_json, "bench")
            for message in messages
            if (planned := planner.plan(message)).run is not None
        ]

        async def accept(first: int) -> None:
            request = AcceptMessagesRequest(name, 1, token, messages[first : first + BATCH])
            accepted = await bus.subscriptions.accept_messages(request)
            assert all(one.outcome == "accepted" for one in accepted)

        async def begin(first: int) -> None:
            some = runs[first : first + BATCH]
            begun = await asyncio.gather(*(bus.runs.begin_run(new) for new in some))
            assert not any(one.resumed for one in begun)

        gc.collect()
        gc.freeze()
        took = await _alternate(accept, begin)
        gc.unfreeze()
    return len(messages) / took[0], len(runs) / took[1]


@asynccontextmanager
async def without_a_source(url: str) -> AsyncIterator[Bus]:
    """A bus that activates subscriptions without a look at their sources."""
    settings = Settings()
    bus = Bus(await open_store(url, settings), settings)
    try:
        yield bus
    finally:
        await bus.close()


async def _alternate(*kinds: Work) -> list[float]:
    """How long each of them took; who comes first takes turns, too."""
    took = [0.0] * len(kinds)
    order = list(enumerate(kinds))
    for first in range(0, BATCH * BATCHES, BATCH):
        for number, work in order:
            started = time.perf_counter()
            await work(first)
            took[number] += time.perf_counter() - started
        order.reverse()
    return took


async def _listen(bus: Bus, document: str, name: str) -> int:
    await bus.subscriptions.register_subscription(document)
    await bus.subscriptions.move_subscription(name, "activate")
    held = await bus.subscriptions.hold_subscription(HoldSubscription(name, "bench", HOUR_MS))
    return held.fencing_token


def _message(name: str, number: int) -> SourceMessage:
    headers = (("X-Kind", b"price"), ("Content-Type", b"application/json"))
    return SourceMessage(
        "nats", f"nats/{name}@1", str(number), PAYLOAD.encode(), headers, f"{name}-{number}", "k", 1
    )
