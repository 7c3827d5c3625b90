"""Act 1: everyone at once. Producers that lose replies and send again, followers that react."""

import asyncio
import time

from rich.progress import TaskID

from tape.cli.demo import desk
from tape.cli.demo.stage import Follower, Stage
from tape.model.entry import Entry
from tape.model.event import NewEvent

TITLE = "The market opens"
STORY = (
    "A price feed, six traders and two venues write at the same time. One reply in ten gets lost, "
    "so its sender tries again with the same key. Risk and the head of desk follow the journal and "
    "answer what they see."
)
LOST_REPLIES = 0.1
SHARES = {"klines": 0.4, "orders": 0.25}

Placed = tuple[NewEvent, str]


def kline_minutes(events: int) -> int:
    """How many minutes of prices a day of so many events has."""
    return max(5, int(events * SHARES["klines"]) // len(desk.SYMBOLS))


async def play(stage: Stage) -> None:
    _followers(stage)
    placed: asyncio.Queue[Placed | None] = asyncio.Queue()
    per_trader = max(5, int(stage.events * SHARES["orders"]) // len(desk.TRADERS))
    minutes = kline_minutes(stage.events)
    total = minutes * len(desk.SYMBOLS) + 2 * per_trader * len(desk.TRADERS)
    bar = stage.progress.add_task("trading", total=total)
    started = time.monotonic()
    async with asyncio.TaskGroup() as venues:
        for _ in range(2):
            venues.create_task(_venue(stage, placed, bar))
        async with asyncio.TaskGroup() as producers:
            producers.create_task(_feed(stage, minutes, bar))
            for trader in desk.TRADERS:
                producers.create_task(_trader(stage, trader, per_trader, placed, bar))
        for _ in range(2):
            placed.put_nowait(None)
    await stage.settle()
    stage.progress.remove_task(bar)
    rate = stage.sent / (time.monotonic() - started)
    stage.say(
        f"{stage.sent:,} events sent, {rate:,.0f} a second, {stage.collapsed:,} for the second time"
    )
    stage.promise(
        f"{stage.collapsed:,} retries changed nothing, and were told the first one's place",
        stage.collapsed > 0 and stage.contradicted == 0,
    )


def _followers(stage: Stage) -> None:
    async def on_large_fill(entry: Entry) -> None:
        notional = entry.payload["notional"]
        await stage.record(desk.breach(entry.entity_id, notional, entry.event_id))

    async def on_breach(entry: Entry) -> None:
        await stage.record(desk.approval(entry.entity_id, entry.event_id))

    stage.followers.update(
        blotter=Follower("/tape/event/recorded/*/order/*"),
        chart=Follower(
            "/tape/event/recorded/market.klines.spot/instrument/BTCUSDT",
            "payload.close > payload.open",
        ),
        risk=Follower(
            "/tape/event/recorded/order.filled/**",
            f"payload.notional > {desk.LARGE}",
            on_large_fill,
        ),
        head=Follower("/tape/event/recorded/risk.breached/**", "", on_breach),
    )
    for follower in stage.followers.values():
        follower.start(stage.client)


async def _feed(stage: Stage, minutes: int, bar: TaskID) -> None:
    prices = desk.SYMBOLS.copy()
    for minute in range(minutes):
        klines = []
        for symbol, price in prices.items():
            walked = desk.walk(stage.rng, price)
            prices[symbol] = walked[-1]
            opened, volume = desk.OPENS_MS + minute * desk.MINUTE_MS, stage.rng.randrange(1, 90_000)
            key = f"kline:{symbol}:{minute}"
            klines.append(desk.kline(symbol, opened, walked, volume / 1_000, key))
        await _send(stage, klines, bar)


async def _trader(
    stage: Stage, name: str, count: int, placed: asyncio.Queue[Placed | None], bar: TaskID
) -> None:
    for number in range(count):
        order = desk.order(stage.rng, name, number)
        (event_id,) = await _send(stage, [order], bar)
        placed.put_nowait((order, event_id))


async def _venue(stage: Stage, placed: asyncio.Queue[Placed | None], bar: TaskID) -> None:
    while (order := await placed.get()) is not None:
        fill = desk.fill(stage.rng, *order)
        await _send(stage, [fill], bar)


async def _send(stage: Stage, events: list[NewEvent], bar: TaskID) -> list[str]:
    """Record, and where the reply got lost record again."""
    results = await stage.record_many(events)
    if stage.rng.random() < LOST_REPLIES:
        results = await stage.record_many(events)
    stage.progress.advance(bar, len(events))
    return [recorded.event_id for recorded in results]
