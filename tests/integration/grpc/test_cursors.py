"""A place beyond the end is refused by whatever reads from it: waiting there would skip entries."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tape.bus import Operations
from tape.client import AsyncTapeClient
from tape.errors import InvalidArgument
from tape.model.event import NewEvent
from tape.model.lease import NewRun, Taker
from tape.model.run import RunName
from tape.model.value import Author
from tape.ports.ledger import RecentQuery
from tape.programs.connect import open_operations
from tape.programs.journal_relay import relay_journal
from tape.programs.sinks import LogSink
from tape.settings import Settings

PATIENCE_S = 10
ME = Taker("me", "agent", 60_000)


class World(NamedTuple):
    operations: Operations
    head: int
    run_id: str
    last_seq: int


@pytest.fixture
async def world(url: str) -> AsyncIterator[World]:
    """A journal with an event, a value and a run."""
    operations = await open_operations(url, "", Settings())
    await operations.record_events([NewEvent("a")])
    await operations.values.write_value("n", "k", "1", -1, Author("w"))
    run = (await operations.runs.begin_run(NewRun(RunName("a", "u", "s", "i")), ME)).run
    head = (await operations.info()).head_global_seq
    yield World(operations, head, run.run_id, run.seq_cursor)
    await operations.close()


async def all_of(stream: Any) -> list[Any]:
    async with asyncio.timeout(PATIENCE_S):
        return [item async for item in stream]


@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize("by", ["follow", "pages"])
async def test_a_cursor_beyond_the_journal(world: World, by: str, live: bool) -> None:
    client = AsyncTapeClient(world.operations)
    for beyond in (world.head + 1, world.head + 1_000_000):
        said = f"{beyond} is beyond the end of this journal, {world.head}"
        with pytest.raises(InvalidArgument, match=said):
            await all_of(getattr(client, by)(after=beyond, live=live))
    assert await all_of(getattr(client, by)(after=world.head, live=False)) == []


async def test_a_cursor_beyond_a_run(world: World) -> None:
    beyond = world.last_seq + 1
    said = f"{beyond} is beyond the end of run '{world.run_id}', {world.last_seq}"
    with pytest.raises(InvalidArgument, match=said):
        await all_of(world.operations.runs.follow_run(world.run_id, beyond))
    with pytest.raises(InvalidArgument, match="2 is beyond the end of run 'nosuch', 0"):
        await all_of(world.operations.runs.follow_run("nosuch", 2))
    with pytest.raises(InvalidArgument, match=f"after_seq: {said}"):
        await world.operations.runs.read_run(world.run_id, beyond)
    assert await world.operations.runs.read_run(world.run_id, world.last_seq) == []


async def test_a_version_beyond_a_value(world: World) -> None:
    with pytest.raises(InvalidArgument, match="2 is beyond the newest version of n/k, 1"):
        await all_of(world.operations.values.watch_value("n", "k", 2))
    with pytest.raises(InvalidArgument, match="1 is beyond the newest version of n/none, 0"):
        await all_of(world.operations.values.watch_value("n", "none", 1))


async def test_recent_entries_before_a_place_that_is_not_there(world: World) -> None:
    recent = world.operations.ledger.recent
    assert len((await recent(RecentQuery(before=world.head + 1))).entries) == world.head
    with pytest.raises(InvalidArgument, match=f"beyond the end of this journal, {world.head}"):
        await recent(RecentQuery(before=world.head + 2))


@pytest.mark.parametrize("live", [True, False])
async def test_a_relay_of_the_journal(world: World, url: str, tmp_path: Path, live: bool) -> None:
    cursor = tmp_path / "relay.cursor"
    cursor.write_text('{"last_global_seq": 7000}')
    with pytest.raises(InvalidArgument, match=f"beyond the end of this journal, {world.head}"):
        async with asyncio.timeout(PATIENCE_S):
            await relay_journal(url, sink=LogSink(), cursor_path=cursor, live=live)
    assert json.loads(cursor.read_text()) == {"last_global_seq": 7000}
