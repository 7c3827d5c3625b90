"""Act 6: a durable run whose bank loses an answer, and whose worker is killed in the middle.

A bank, a broker and a ledger share one file, a line for each request: of two with one key, the
first is done and the second is answered with it. The complete treasury is in `examples/treasury`.
"""

import asyncio
import contextlib
import logging
import sys
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from typing import Any

import orjson

from tape.cli.demo.stage import Stage
from tape.cli.run_view import print_line
from tape.errors import AckLost
from tape.programs.worker import WorkerOptions, run_worker
from tape.runs.ambient import idempotency_key
from tape.runs.declare import Apps, Observed, app, effect
from tape.runs.driving.context import Context
from tape.runs.looking.timeline import timeline
from tape.settings import ReactorSettings, ReactorsSettings, Settings
from tape.stores.by_url import sqlite_path

TITLE = "The treasury sweeps"
STORY = (
    "At the close a run wires what is left to the reserve, hedges it and posts the books. The bank "
    "does the wire and its answer is lost. The broker does the hedge, and before it can answer, "
    "the worker is killed. Another one goes on from the run's journal."
)
APP = "treasury"
CENTS = 1_250_000_00
PATIENCE_S = 60.0
WORKER = "from tape.cli.demo.treasury import main; main()"
HEDGED = b"hedged\n"
LEASE = ReactorSettings(lease_ttl_s=1.5)
SETTINGS = replace(
    Settings(),
    reactors=ReactorsSettings(
        recovery=LEASE, reconciler=LEASE, outbox=LEASE, compensation=LEASE, poll_s=0.1
    ),
)


class Houses:
    """The bank, the broker and the ledger, which do each thing once for its key."""

    def __init__(self, store: str) -> None:
        self._requests = sqlite_path(store).with_name("houses.jsonl")

    def ask(self, house: str, key: str, do: dict[str, Any]) -> dict[str, Any]:
        """Have something done, and return it: now, or at an earlier request with the key."""
        with self._requests.open("ab") as file:
            file.write(orjson.dumps([house, key, do]) + b"\n")
        return self.done(house)[key]

    def done(self, house: str) -> dict[str, dict[str, Any]]:
        """Return what a house has done, by key."""
        done: dict[str, dict[str, Any]] = {}
        for by, key, do in self._read():
            if by == house:
                done.setdefault(key, {"id": f"{house}-{len(done) + 1}", **do})
        return done

    def asked(self) -> Counter[str]:
        """Count the requests to each house, repeats included."""
        return Counter(house for house, _key, _do in self._read())

    def _read(self) -> list[Any]:
        lines = self._requests.read_bytes() if self._requests.exists() else b""
        return [orjson.loads(line) for line in lines.splitlines()]


async def play(stage: Stage) -> None:
    houses = Houses(stage.url)
    async with asyncio.timeout(PATIENCE_S):
        run = await stage.client.start_run(APP, CENTS, invocation_id="close")
        async with _worker(stage, "the first worker") as first:
            assert first.stdout is not None  # noqa: S101 - a pipe was asked for
            if await first.stdout.readline() == HEDGED:
                first.kill()
        async with _worker(stage, "the second"):
            result = await stage.client.run_result(run.run_id)
    entries = await stage.client.read_run(run.run_id)
    for line in timeline(entries):
        print_line(stage.out, line, full=False)
    asked = houses.asked()
    stage.promise(
        "one wire, one hedge and one batch in the ledger",
        {house: len(houses.done(house)) for house in asked} == {"bank": 1, "broker": 1, "ledger": 1}
        and result == {"wire": "bank-1", "order": "broker-1", "batch": "ledger-1"},
    )
    stage.promise(
        "the wire whose answer was lost was looked up, and not asked for again",
        asked["bank"] == 1,
    )
    stage.promise(
        "the hedge was asked for again with the same key, and not done again",
        asked["broker"] > 1,
    )
    grants = [
        entry.payload for entry in entries if entry.kind == "run" and "owner" in entry.payload
    ]
    tokens = [grant["fencing_token"] for grant in grants]
    stage.promise(
        f"two workers held the run, one after the other, with tokens {tokens[0]} to {tokens[-1]}",
        tokens == list(range(1, len(tokens) + 1))
        and len({grant["owner"] for grant in grants}) == 2,
    )


@contextlib.asynccontextmanager
async def _worker(stage: Stage, name: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WORKER, stage.url, name, stdout=asyncio.subprocess.PIPE
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


def main() -> None:
    """Work on the treasury until it is told to stop, or killed, in a process of its own."""
    logging.disable(logging.WARNING)  # what goes wrong is part of the play, and told there
    store, name = sys.argv[1:]
    run_worker(WorkerOptions(url=store, settings=SETTINGS, apps=declare(store), owner=name))


def declare(store: str) -> Apps:
    apps, houses = Apps(), Houses(store)

    async def look(house: str, key: str, _request: Any) -> Observed:
        found = houses.done(house).get(key)
        return Observed("confirmed" if found else "absent", found)

    @effect(connector="bank", check=partial(look, "bank"), registry=apps)
    async def wire(cents: int) -> Any:
        houses.ask("bank", idempotency_key(), {"cents": cents})
        raise AckLost("the bank hung up without an answer")

    @effect(connector="broker", check=partial(look, "broker"), registry=apps)
    async def hedge(cents: int) -> Any:
        is_first = not houses.done("broker")
        order = houses.ask("broker", idempotency_key(), {"cents": cents})
        if is_first:
            sys.stdout.buffer.write(HEDGED)
            sys.stdout.flush()
            await asyncio.Event().wait()  # the broker answers when it is too late
        return order

    @effect(connector="ledger", check=partial(look, "ledger"), registry=apps)
    async def post(lines: dict[str, int]) -> Any:
        return houses.ask("ledger", idempotency_key(), {"lines": lines})

    @app(APP, registry=apps)
    async def treasury(ctx: Context, cents: int) -> dict[str, str]:
        sent = await wire(cents)
        order = await hedge(cents)
        batch = await post({"reserve": cents, "operating": -cents})
        await ctx.record("treasury.swept", {"cents": cents, "wire": sent["id"]})
        return {"wire": sent["id"], "order": order["id"], "batch": batch["id"]}

    return apps
