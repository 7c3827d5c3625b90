"""A journal to match: 1,000 reactions, ten of which match what is recorded.

No two entries of a recording share a subject, so remembering what a subject matched helps nobody.
"""

import asyncio

from benchmarks.workload import PAYLOAD, opened, record_all
from tape.model.entry import Entry
from tape.model.event import NewEvent
from tape.model.reaction import HandlerKind, NewReaction
from tape.ports.store import PAGE_BYTES, ReadEntries, Store
from tape.settings import Settings

REACTIONS = 1_000
MATCHING = 10
PREDICATE = "payload.price > 100.0"
MATCHER = Settings().matcher

ONE_EACH = "/tape/event/recorded/type{0}/**"
"""Each of the ten matches every tenth entry."""
TEN_EACH = "/tape/event/recorded/**"
"""All ten match every entry."""


async def record(url: str, count: int) -> None:
    events = [NewEvent(f"type{i % MATCHING}", PAYLOAD, "asset", str(i)) for i in range(count)]
    async with opened(url) as bus:
        await record_all(bus, [events[k : k + 1000] for k in range(0, count, 1000)], 2)


async def register(url: str, matching: str) -> None:
    others = (
        "/tape/effect/confirmed/tool{0}/*",
        "/tape/value/changed/ns{0}/**",
        "/tape/event/recorded/other{0}/*/**",
        "/tape/decision/recorded/*/{0}",
    )
    news = [
        NewReaction(
            f"reaction{i}",
            (matching if i < MATCHING else others[i % len(others)]).format(i),
            HandlerKind.TASK,
            predicate_cel=PREDICATE if i < MATCHING else "",
        )
        for i in range(REACTIONS)
    ]
    async with opened(url) as bus:
        await asyncio.gather(*map(bus.reactions.register_reaction, news))


async def last_entries(store: Store, count: int) -> list[Entry]:
    found: list[Entry] = []
    after = store.head - count
    while after < store.head:
        page = await store.read_entries(
            ReadEntries(after, store.head, MATCHER.page_entries, PAGE_BYTES)
        )
        found += page.entries
        after = page.through
    return found
