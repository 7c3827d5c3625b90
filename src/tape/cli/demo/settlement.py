"""Act 7: a drainer that settles trades in order, and halts where one cannot be settled."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from tape.cli.demo.stage import Stage
from tape.client import event
from tape.model.drainer import DrainReport
from tape.model.event import NewEvent
from tape.runs.declare import Apps, app
from tape.worker import WorkerOptions, work

TITLE = "Trades are settled, in order"
STORY = (
    "A drainer makes a run of each confirmed trade, one after the other. In the middle one has a "
    "counterparty that nobody knows. The drainer halts there; somebody adds the counterparty and "
    "says go on."
)
DRAINER = "settlement"
CONFIRMED = "trade.confirmed"
TRADES = 12
UNKNOWN_AT = 7


async def play(stage: Stage) -> None:
    known = {"north", "east", "south"}
    settled: list[int] = []
    apps = Apps()

    @app("settle", registry=apps)
    async def settle(_ctx: object, trade: dict[str, str | int]) -> None:
        if trade["with"] not in known:
            raise LookupError(f"nobody knows the counterparty {trade['with']!r}")
        settled.append(int(trade["number"]))

    recipes = {"number": "$.payload.number", "with": "$.payload.counterparty"}
    await stage.client.subscribe_events(CONFIRMED, "settle", drainer=DRAINER, input=recipes)
    recorded = await stage.record_many([_confirmation(number) for number in range(1, TRADES + 1)])
    async with _worker(stage, apps):
        report = await _drained(stage)
        stage.say(f"halted: {report.error}")
        stage.promise(
            f"it settled {UNKNOWN_AT - 1} trades and halted at the one that failed",
            report.halted_on_event_id == recorded[UNKNOWN_AT - 1].event_id
            and settled == list(range(1, UNKNOWN_AT)),
        )
        known.add("west")
        await stage.client.resume_drainer(DRAINER, by="the desk")
        await _drained(stage)
    stage.promise(
        f"all {TRADES} trades are settled once, in the order in which they were confirmed",
        settled == list(range(1, TRADES + 1)),
    )


def _confirmation(number: int) -> NewEvent:
    counterparty = "west" if number == UNKNOWN_AT else ("north", "east", "south")[number % 3]
    payload = {"number": number, "counterparty": counterparty}
    return event(CONFIRMED, payload, idempotency_key=f"confirmed-{number}")


async def _drained(stage: Stage) -> DrainReport:
    """Until there is nothing left to drain, or it halts."""
    while True:
        report = await stage.client.drain(DRAINER)
        if report.halted_on_event_id or not (report.more or report.waiting_on_run_id):
            return report


@contextlib.asynccontextmanager
async def _worker(stage: Stage, apps: Apps) -> AsyncIterator[None]:
    stop = asyncio.Event()
    working = asyncio.create_task(work(WorkerOptions(url=stage.url, apps=apps), stop=stop))
    try:
        yield
    finally:
        stop.set()
        await working
