"""Act 6: a durable run whose bank loses an answer, and whose worker is killed in the middle."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator

from tape.cli.demo.houses import Houses
from tape.cli.demo.stage import Stage
from tape.cli.run_view import print_line
from tape.runs.looking.timeline import timeline

TITLE = "The treasury sweeps"
STORY = (
    "At the close a run wires what is left to the reserve, hedges it and posts the books. The bank "
    "does the wire and its answer is lost. The broker does the hedge, and before it can answer, "
    "the worker is killed. Another one goes on from the run's journal."
)
APP = "treasury"
CENTS = 1_250_000_00
PATIENCE_S = 60.0


async def play(stage: Stage) -> None:
    hedged, killed = asyncio.Event(), asyncio.Event()

    async def answers(house: str) -> bool:
        """The bank never does; the broker does not before the worker that asked is dead."""
        if house == "broker" and not hedged.is_set():
            hedged.set()
            await killed.wait()
        return house != "bank"

    houses = Houses(answers)
    server, address = await houses.open()
    async with server, asyncio.timeout(PATIENCE_S):
        run = await stage.client.start_run(APP, CENTS, invocation_id="close")
        async with _worker(stage, address, "the first worker") as first:
            await hedged.wait()
            first.kill()
            await first.wait()
            killed.set()
        async with _worker(stage, address, "the second"):
            result = await stage.client.run_result(run.run_id)
    entries = await stage.client.read_run(run.run_id)
    for line in timeline(entries):
        print_line(stage.out, line, full=False)
    made = {house: len(book) for house, book in houses.books.items()}
    stage.promise(
        "one wire, one hedge and one batch in the ledger",
        made == {"bank": 1, "broker": 1, "ledger": 1}
        and result == {"wire": "bank-1", "order": "broker-1", "batch": "ledger-1"},
    )
    stage.promise(
        "the wire whose answer was lost was looked up, and not asked for again",
        houses.asked["bank"] == 1,
    )
    stage.promise(
        "the hedge was asked for again with the same key, and not done again",
        houses.asked["broker"] > 1,
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
async def _worker(
    stage: Stage, address: str, name: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tape.cli.demo.treasurer", stage.url, address, name
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
