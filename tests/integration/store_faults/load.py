"""Writers and followers under faults, and the count afterwards."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tape.bus import Bus, FollowQuery
from tape.errors import OutcomeUnknown, StoreUnavailable
from tape.model.entry import Entry
from tape.model.event import NewEvent

END = "end"


@dataclass
class Told:
    """What the writers were told of each event they sent."""

    recorded: dict[str, int] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    progress: asyncio.Event = field(default_factory=asyncio.Event)

    async def more(self, count: int) -> None:
        """Wait until this many more have been recorded."""
        goal = len(self.recorded) + count
        while len(self.recorded) < goal:
            self.progress.clear()
            await asyncio.wait_for(self.progress.wait(), 60)


async def _write(bus: Bus, name: str, told: Told, stop: asyncio.Event) -> None:
    number = 0
    while not stop.is_set():
        number += 1
        event = NewEvent("load", f'"{name}-{number}"')
        if number % 3 == 0:  # a commit that looks first is another path than a blind one
            event = event._replace(idempotency_key=f"{name}-{number}")
        try:
            (recorded,) = await bus.record_events([event])
        except OutcomeUnknown:
            told.unknown.add(event.payload_json)
        except StoreUnavailable:
            told.refused.add(event.payload_json)
        else:
            told.recorded[event.payload_json] = recorded.global_seq
            told.progress.set()


async def follow_to_the_end(bus: Bus) -> list[int]:
    seen: list[int] = []
    async for page in bus.follow(FollowQuery()):
        seen += [entry.global_seq for entry in page.entries]
        if any(entry.event_type == END for entry in page.entries):
            break
    return seen


@asynccontextmanager
async def load(buses: Sequence[Bus], writers: int) -> AsyncIterator[Told]:
    """Writers at work for as long as the block runs, followers until they have seen everything.

    Fails if anything acknowledged is not there exactly once, anything refused is there, anything is
    there twice, or a follower saw something else than the journal holds.
    """
    told, stop = Told(), asyncio.Event()
    following = [asyncio.create_task(follow_to_the_end(bus)) for bus in buses]
    writing = [
        asyncio.create_task(_write(buses[n % len(buses)], f"w{n}", told, stop))
        for n in range(writers)
    ]
    try:
        yield told
    finally:
        stop.set()
        await asyncio.wait_for(asyncio.gather(*writing), 60)
    await buses[0].record_events([NewEvent(END)])
    seen = await asyncio.wait_for(asyncio.gather(*following), 60)
    entries = await everything(buses[0])
    check(told, entries)
    for numbers in seen:
        assert numbers == [entry.global_seq for entry in entries]


def check(told: Told, entries: list[Entry]) -> None:
    sent = [entry for entry in entries if entry.event_type == "load"]
    copies = Counter(entry.payload_json for entry in sent)
    assert [payload for payload, count in copies.items() if count > 1] == []
    where = {entry.payload_json: entry.global_seq for entry in sent}
    assert {payload: where.get(payload) for payload in told.recorded} == told.recorded
    assert told.refused & set(where) == set()
    assert set(where) - set(told.recorded) <= told.unknown
    assert told.recorded


async def everything(bus: Bus) -> list[Entry]:
    head = (await bus.info()).head_global_seq
    entries: list[Entry] = []
    async for page in bus.follow(FollowQuery(max_batch=10_000)):
        entries += page.entries
        if page.cursor >= head:
            break
    return entries
