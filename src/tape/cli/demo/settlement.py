"""Act 7: a drainer that settles trades in order, and halts where one cannot be settled."""

import asyncio

from tape.cli.demo.stage import Stage, working
from tape.client import event
from tape.model.entry import Entry
from tape.model.event import NewEvent
from tape.programs.worker import WorkerOptions
from tape.runs.declare import Apps, app

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
PATIENCE_S = 60.0


async def play(stage: Stage) -> None:
    known = {"north", "east", "south"}
    settled: list[int] = []
    done = asyncio.Event()
    apps = Apps()

    @app("settle", registry=apps)
    async def settle(_ctx: object, trade: dict[str, str | int]) -> None:
        if trade["with"] not in known:
            raise LookupError(f"nobody knows the counterparty {trade['with']!r}")
        settled.append(int(trade["number"]))
        if len(settled) >= TRADES:
            done.set()

    recipes = {"number": "$.payload.number", "with": "$.payload.counterparty"}
    await stage.client.subscribe_events(CONFIRMED, "settle", drainer=DRAINER, input=recipes)
    recorded = await stage.record_many([_confirmation(number) for number in range(1, TRADES + 1)])
    worker = working(WorkerOptions(url=stage.url, apps=apps), "tape.drain", "tape.runs")
    async with worker, asyncio.timeout(PATIENCE_S):
        halt = await _halted(stage)
        stage.say(f"halted: {halt.payload['error']}")
        stage.promise(
            f"it settled {UNKNOWN_AT - 1} trades and halted at the one that failed",
            halt.caused_by == recorded[UNKNOWN_AT - 1].event_id
            and settled == list(range(1, UNKNOWN_AT)),
        )
        known.add("west")
        await stage.client.resume_drainer(DRAINER, by="the desk")
        await done.wait()
    stage.promise(
        f"all {TRADES} trades are settled once, in the order in which they were confirmed",
        settled == list(range(1, TRADES + 1)),
    )


async def _halted(stage: Stage) -> Entry:
    async with stage.client.follow(f"/tape/drainer/halted/{DRAINER}") as entries:
        return await anext(entries)


def _confirmation(number: int) -> NewEvent:
    counterparty = "west" if number == UNKNOWN_AT else ("north", "east", "south")[number % 3]
    payload = {"number": number, "counterparty": counterparty}
    return event(CONFIRMED, payload, idempotency_key=f"confirmed-{number}")
