"""Recording what was staged, on both stores: once, whoever is killed and whoever comes again.

What is staged goes in through ADBC before the store is opened: one process may not have both.
"""

import asyncio
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest

from tape.errors import InvalidArgument, StoreFailed
from tape.model.bulk_write import BATCH, StagedPart
from tape.model.entry import Entry
from tape.model.move import EntryPlace, Need
from tape.pipeline.source.forms import FORMS, decode, encode
from tape.pipeline.source.record import Epoch, Recorder
from tape.ports.bulk import Chunk
from tape.ports.store import Decide, ReadEntries, Store
from tape.settings import Limits, Settings
from tape.stores.blocking import Stores
from tape.stores.by_url import open_store

EVENTS = FORMS["events"]
FIRST, SECOND = Epoch("w", 0, BATCH), Epoch("w", 1, BATCH)


@pytest.fixture(params=["sqlite", "migrated_postgres"])
def url(request: pytest.FixtureRequest) -> str:
    url: str = request.getfixturevalue(f"{request.param}_url")
    Stores().store(url, creating=True)(_nothing)
    return url


async def _nothing(_store: Store) -> None:
    """Opening it has made its tables."""


async def stage(url: str, epoch: Epoch, name: str, *chunks: str) -> StagedPart:
    """A part with these entity ids in its chunks."""
    return await asyncio.to_thread(_stage, url, epoch, name, *chunks)


def _stage(url: str, epoch: Epoch, name: str, *chunks: str) -> StagedPart:
    staging = Stores().staging(url)
    rows = 0
    for number, ids in enumerate(chunks):
        batch = pa.record_batch({"event_type": ["e"] * len(ids), "entity_id": list(ids)})
        checked = list(EVENTS.checked(batch, Limits()))
        body = encode(EVENTS, checked)
        staging.stage(
            [Chunk(epoch.write_id, epoch.number, name, number, len(checked), body)] * 2
        )  # twice, as after a session that broke: the second changes nothing
        rows += len(checked)
    staging.close()
    return StagedPart(name, len(chunks), rows)


def recorder(store: Store) -> Recorder:
    return Recorder(store, EVENTS, Settings())


async def entity_ids(store: Store) -> list[str]:
    query = ReadEntries(0, await store.read_last_given(), 1000, 1 << 20)
    found: list[Entry] = (await store.read_entries(query)).entries
    return [entry.entity_id for entry in found]


async def chunks_left(store: Store, epoch: Epoch, part: StagedPart) -> list[int]:
    return [
        number
        for number in range(part.chunks)
        if await store.writes.get_chunk(epoch.write_id, epoch.number, part.name, number)
    ]


def killed_after(store: Store, commits: int) -> None:
    """No commit returns any more after so many; that one has happened."""
    commit, left = store.commit, iter(range(commits))

    async def until(needs: Iterable[Need], decide: Decide) -> EntryPlace:
        place = await commit(needs, decide)
        if next(left, None) is None:
            raise StoreFailed("killed")
        return place

    store.commit = until  # type: ignore[method-assign]


@pytest.mark.parametrize("commits", range(4))
async def test_what_is_registered_is_finished_and_nothing_else(url: str, commits: int) -> None:
    first = await stage(url, FIRST, "first", "ab", "c"), await stage(url, FIRST, "more", "d")
    again = [await stage(url, FIRST, "again", "abcd")]
    store = await open_store(url, Settings())
    killed_after(store, commits)
    with pytest.raises(StoreFailed):
        await recorder(store).record(FIRST, first)
    await store.close()
    store = await open_store(url, Settings())
    try:
        if commits:
            assert 0 < len(await entity_ids(store)) <= 4
        await recorder(store).abandon(FIRST, first)  # Spark says so after a fault
        write = await recorder(store).record(FIRST, again)
        assert (write.rows, write.chunks, write.is_finished) == (4, 3, True)
        await recorder(store).record(FIRST, again)
        assert await entity_ids(store) == list("abcd")
        assert [await chunks_left(store, FIRST, part) for part in (*first, *again)] == [[], [], []]
        assert await store.writes.get_write_list("w", 0) is None
    finally:
        await store.close()


async def test_two_drivers_at_once_record_an_epoch_once(url: str) -> None:
    part = await stage(url, FIRST, "p", *("ab", "cd", "ef", "gh"))
    other = await stage(url, FIRST, "q", "abcdefgh")
    stores = [await open_store(url, Settings()) for _ in range(2)]
    try:
        await asyncio.gather(
            recorder(stores[0]).record(FIRST, [part]), recorder(stores[1]).record(FIRST, [other])
        )
        assert await entity_ids(stores[0]) == list("abcdefgh")
    finally:
        for store in stores:
            await store.close()


async def test_epochs_follow_each_other(url: str) -> None:
    zombie = await stage(url, FIRST, "zombie", "z")
    parts = [await stage(url, epoch, "p", ids) for epoch, ids in ((FIRST, "ab"), (SECOND, "cd"))]
    later = await stage(url, Epoch("w", 2, BATCH), "p", "ef")
    other = await stage(url, Epoch("other", 0, BATCH), "p", "x")
    store = await open_store(url, Settings())
    try:
        killed_after(store, 0)  # registered, nothing recorded; the next epoch finishes it first
        with pytest.raises(StoreFailed):
            await recorder(store).record(FIRST, parts[:1])
        await store.close()
        store = await open_store(url, Settings())
        write = await recorder(store).record(SECOND, parts[1:])
        assert await entity_ids(store) == list("abcd")
        assert (write.epoch, write.rows) == (1, 4)
        await recorder(store).record(FIRST, [zombie])
        assert await entity_ids(store) == list("abcd")
        # What is staged for later, and for others, is left alone.
        assert await chunks_left(store, FIRST, zombie) == []
        assert await chunks_left(store, Epoch("w", 2, BATCH), later) == [0]
        assert await chunks_left(store, Epoch("other", 0, BATCH), other) == [0]
        await recorder(store).abandon(Epoch("w", 2, BATCH), [later])
        assert await chunks_left(store, Epoch("w", 2, BATCH), later) == []
        # Nobody has registered the other for so long that nobody will.
        assert await store.writes.discard_staged("w", 1, -60_000) == 1
        assert await chunks_left(store, Epoch("other", 0, BATCH), other) == []
    finally:
        await store.close()


async def test_a_chunk_that_is_gone_is_said_so(url: str) -> None:
    part = await stage(url, FIRST, "p", "ab")
    store = await open_store(url, Settings())
    try:
        with pytest.raises(StoreFailed, match="chunk 1 of epoch 0 of write 'w' is gone; 1 of 2"):
            await recorder(store).record(FIRST, [part._replace(chunks=2)])
        assert await entity_ids(store) == ["a", "b"]
        with pytest.raises(InvalidArgument, match="write_id: 'w' belongs to another write"):
            await recorder(store).record(FIRST._replace(origin="stream x"), [part])
    finally:
        await store.close()


async def test_a_write_that_nobody_can_name_leaves_nothing(url: str) -> None:
    part = await stage(url, FIRST, "p", "ab")
    store = await open_store(url, Settings())
    try:
        await recorder(store).record(FIRST._replace(is_nameless=True), [part])
        assert await entity_ids(store) == ["a", "b"]
        assert await store.writes.get_write("w") is None
        assert await chunks_left(store, FIRST, part) == []
    finally:
        await store.close()


def test_what_another_version_staged_is_refused() -> None:
    row: tuple[Any, ...] = ("n", "k", "1", "")
    with pytest.raises(InvalidArgument, match="another version of Tape, or as another kind"):
        decode(EVENTS, encode(FORMS["values"], [row]))
