"""A journal to relay, and what must hold of its arrival whatever was killed on the way."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from tape.bus import FollowQuery
from tape.journal_relay.relay import RelayBackoff, RelayProgress
from tape.model.entry import Entry
from tape.model.event import NewEvent
from tape.ports.sink import Sink
from tape.programs.connect import open_bus
from tape.programs.journal_relay import relay_journal
from tests.conformance.broker import Received, ids_by_key

ENTRIES = 2_500
KEYS = 25
REQUEST = 10_000
QUICK = RelayBackoff(0.05, 0.5)


async def make_journal(url: str, count: int = ENTRIES) -> list[Entry]:
    """`count` events about KEYS orders, so of as many subjects and ordering keys."""
    bus = await open_bus(url)
    try:
        events = [
            NewEvent("order.moved", f'{{"n": {n}}}', "order", str(n % KEYS)) for n in range(count)
        ]
        for start in range(0, count, REQUEST):
            await bus.record_events(events[start : start + REQUEST])
        return [
            entry
            async for page in bus.follow(FollowQuery(max_batch=10_000, until=count))
            for entry in page.entries
        ]
    finally:
        await bus.close()


async def relay_with_kills(
    url: str,
    cursor: Path,
    sink: Sink,
    kills: Sequence[tuple[int, Callable[[], Awaitable[None]]]],
) -> None:
    """Relay all there is. When `kills[i][0]` entries are through, the next page is on its way and
    `kills[i][1]` happens to it."""
    progress: asyncio.Queue[RelayProgress] = asyncio.Queue()
    relaying = asyncio.create_task(
        relay_journal(
            url, sink=sink, cursor_path=cursor, live=False, backoff=QUICK,
            on_progress=progress.put_nowait,
        )
    )  # fmt: skip
    try:
        async with asyncio.timeout(90):
            for through, kill in kills:
                while (await _next(progress, relaying)).sent < through:
                    pass
                await kill()
            await relaying
    finally:
        relaying.cancel()


async def _next(
    progress: "asyncio.Queue[RelayProgress]", relaying: "asyncio.Task[None]"
) -> RelayProgress:
    waiting = asyncio.ensure_future(progress.get())
    await asyncio.wait((waiting, relaying), return_when=asyncio.FIRST_COMPLETED)
    if not waiting.done():
        waiting.cancel()
        await relaying
        raise AssertionError("the relay ended before the broker was killed")
    return waiting.result()


def check_arrival(entries: Sequence[Entry], received: Sequence[Received]) -> int:
    """Nothing is lost, the order of each key holds at first appearance, and a second copy says
    that it may be one. The number of such copies."""
    assert {message.event_id for message in received} == {entry.event_id for entry in entries}
    wanted: dict[str, list[str]] = defaultdict(list)
    for entry in entries:
        wanted[entry.subject].append(entry.event_id)
    assert ids_by_key(received) == wanted
    unmarked = [message.event_id for message in received if message.attempt == 1]
    assert len(unmarked) == len(set(unmarked))
    return len(received) - len(entries)
