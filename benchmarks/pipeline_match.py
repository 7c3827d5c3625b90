"""Matching archived history: `backfill --dry-run` over a lake, beside the server's matcher.

The server's side does what the matcher does with a page: it reads it from the store and decides
it; steps are not made, as a dry run makes none. The lake is what `archive` made of the journal.

A JVM compiles what it runs while it runs it: the figures are of a session that has matched before,
and the first run of one that has just started is told beside them.
"""

import random
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import orjson

from benchmarks.result import Result, compare
from benchmarks.workload import on_loop, opened, record_all
from tape.model.event import NewEvent
from tape.model.reaction import HandlerKind, NewReaction
from tape.pipeline.job import JobContext, Summary
from tape.pipeline.jobs.archive.job import Archive
from tape.pipeline.jobs.backfill.job import Backfill
from tape.pipeline.session import session
from tape.ports.store import PAGE_BYTES, ReadEntries, Store
from tape.reactions.rules import ReactionRule, ReactionRules
from tape.settings import Settings
from tape.stores.blocking import Stores
from tape.stores.by_url import open_store

ENTRIES = 1_000_000
BY_SERVER = 200_000
WARM_UPS = 3
REPETITIONS = 3
MATCHER = Settings().matcher
SYMBOLS = tuple(
    f"{base}{quote}" for base in ("BTC", "ETH", "SOL", "XRP") for quote in ("USD", "EUR")
)
TYPES = ("price.changed", "order.placed", "order.filled", "alert.raised", "trade.settled")

PREDICATES = (
    "payload.price > 1990.0",
    'payload.symbol == "BTCUSD" && payload.volume >= 38.0',
    'payload.side == "buy" && payload.price < 20.0',
    'payload.tags.exists(tag, tag == "hot")',
    "has(payload.limit) && payload.limit > 95.0",
    'payload.note.startsWith("urgent")',
    "payload.missing > 1.0",
    "",
)
PATTERNS = (
    "/tape/event/recorded/price.changed/**",
    "/tape/event/recorded/order.placed/account/*",
    "/tape/event/recorded/order.filled/**",
    "/tape/event/recorded/alert.raised/account/7",
    "/tape/event/recorded/*/account/1",
    "/tape/event/recorded/trade.settled/**",
    "/tape/value/changed/limits/**",
    "/tape/effect/confirmed/wire/*",
    "/tape/event/recorded/order.cancelled/**",
    "/tape/run/started/treasury/**",
)


def reactions() -> list[NewReaction]:
    """Forty: every pattern with four predicates, some in shards, two debounced."""
    return [
        NewReaction(
            f"reaction{k}",
            PATTERNS[k % len(PATTERNS)],
            HandlerKind.TASK,
            predicate_cel=PREDICATES[k % len(PREDICATES) if k >= 10 else k % 7],
            num_shards=4 if k % 8 == 1 else 1,
            debounce_ms=1_000 if k in (3, 14) else 0,
        )
        for k in range(40)
    ]


def event(number: int) -> NewEvent:
    chance = random.Random(number)
    payload = {
        "symbol": chance.choice(SYMBOLS),
        "price": round(chance.random() * 2_000, 2),
        "volume": chance.randrange(40) + 0.25,
        "side": chance.choice(("buy", "sell")),
        "tags": ["hot" if number % 50 == 0 else "cold", "feed"],
        "note": ("urgent " if number % 40 == 0 else "") + "x" * 120,
    }
    if number % 20 == 0:
        payload["limit"] = float(number % 100)
    account = str(chance.randrange(5_000))
    return NewEvent(TYPES[number % len(TYPES)], orjson.dumps(payload).decode(), "account", account)


def run() -> Iterator[Result]:
    with TemporaryDirectory(prefix="tape-bench-") as folder:
        url, lake = f"sqlite:{folder}/tape.db", f"{folder}/lake"
        on_loop(_record(url))
        _archive(url, lake)
        (_, on_one), (cold, on_two) = (_dry_runs(url, lake, cores) for cores in (1, 2))
        by_server = [on_loop(_by_server(url)) for _ in range(REPETITIONS)]
        in_memory = [on_loop(_in_memory(url)) for _ in range(REPETITIONS)]
    name = f"match 40 reactions over a lake, {{}} core{{}} (n={ENTRIES:,})"
    against = "the server's matcher with its reads"
    two, one = name.format(2, "s"), name.format(1, "")
    yield compare(two, "entries/s", on_two, against, by_server, n=ENTRIES, at_least=3.0)
    yield compare(one, "entries/s", on_one, against, by_server, n=ENTRIES)
    yield compare(f"{two}, first run", "entries/s", cold, against, by_server, n=ENTRIES)
    yield compare(
        two, "entries/s", on_two, "deciding alone, entries in memory", in_memory, n=ENTRIES
    )


async def _record(url: str) -> None:
    async with opened(url) as bus:
        for new in reactions():
            await bus.reactions.register_reaction(new)
        for start in range(0, ENTRIES, 50_000):
            some = range(start, min(start + 50_000, ENTRIES))
            batches = [[event(n) for n in some[k : k + 1_000]] for k in range(0, len(some), 1_000)]
            await record_all(bus, batches, 2)


def _work(url: str, cores: int) -> JobContext:
    spark = session(master=f"local[{cores}]", config={"spark.driver.memory": "2g"})
    return JobContext(spark, url, Stores().store(url))


def _archive(url: str, lake: str) -> None:
    work = _work(url, 2)
    Archive(lake).run(work)
    assert Path(lake).is_dir()
    work.spark.stop()


def _dry_runs(url: str, lake: str, cores: int) -> tuple[list[float], list[float]]:
    """The first run's rate, and those of a session that is warm."""
    work = _work(url, cores)
    job = Backfill(tuple(new.reaction_id for new in reactions()), lake=lake, dry_run=True)
    try:
        done: list[Summary] = [job.run(work) for _ in range(WARM_UPS + REPETITIONS)]
    finally:
        work.spark.stop()
    assert all(one.counts == done[0].counts for one in done)
    rates = [ENTRIES / one.seconds for one in done]
    return rates[:1], rates[WARM_UPS:]


async def _by_server(url: str) -> float:
    """Page by page, as `reactions.match` reads and decides them."""
    store = await open_store(url, Settings())
    try:
        rules = await _rules(store)
        started, after = time.perf_counter(), 0
        while after < BY_SERVER:
            page = await store.read_entries(
                ReadEntries(after, BY_SERVER, MATCHER.page_entries, PAGE_BYTES)
            )
            matched = rules.match(page.entries, page.through, MATCHER.step_tasks)
            rules.advance(matched.cursors)
            after = matched.through
        return BY_SERVER / (time.perf_counter() - started)
    finally:
        await store.close()


async def _in_memory(url: str) -> float:
    """The same with entries that are there already."""
    store = await open_store(url, Settings())
    try:
        rules = await _rules(store)
        page = await store.read_entries(ReadEntries(0, BY_SERVER, BY_SERVER, 2**40))
    finally:
        await store.close()
    started, at = time.perf_counter(), 0
    while at < len(page.entries):
        some = page.entries[at : at + MATCHER.page_entries]
        matched = rules.match(some, some[-1].global_seq, MATCHER.step_tasks)
        rules.advance(matched.cursors)
        at = matched.through
    return BY_SERVER / (time.perf_counter() - started)


async def _rules(store: Store) -> ReactionRules:
    book = await store.matching.read_reactions()
    return ReactionRules([ReactionRule(reaction, []) for reaction in book.reactions])
