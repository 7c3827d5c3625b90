"""One order: whoever can see an entry can see every committed entry with a lower number."""

import asyncio
from collections.abc import Sequence

from tape.model.event import NewEvent
from tape.ports.store import ReadEntries, Store
from tests.conformance.playing import (
    MANY,
    OpenStore,
    a_run,
    attempt,
    read_all,
    record,
    recording,
    save_run,
)

SOON_S = 20
FAR = 2**62


async def race(writers: Sequence[Store], reader: Store, rounds: int) -> list[int]:
    """Let stores write against each other while a reader follows with one integer for a cursor.

    The numbers the reader saw, in the order it saw them.
    """
    done = asyncio.Event()

    async def write(store: Store, name: str) -> None:
        for number in range(rounds):
            # Keys make a commit look before it writes, so both ways to take a turn are in the race.
            key = f"{name}/{number}" if number % 2 else ""
            events = [NewEvent(name, idempotency_key=key), *[NewEvent(name)] * (number % 3)]
            await record(store, *events)

    async def read() -> list[int]:
        seen: list[int] = []
        while True:
            last_look = done.is_set()
            after = seen[-1] if seen else 0
            found = await reader.read_entries(ReadEntries(after, FAR, MANY, 1 << 40))
            seen += [entry.global_seq for entry in found.entries]
            if last_look:
                return seen

    reading = asyncio.create_task(read())
    await asyncio.gather(*(write(store, f"w{n}") for n, store in enumerate(writers)))
    done.set()
    return await reading


async def expect_no_skips(writers: Sequence[Store], reader: Store, rounds: int) -> None:
    """Fails if a reader that follows the race misses, repeats or reorders an entry."""
    seen = await race(writers, reader, rounds)
    kept = [entry.global_seq for entry in await read_all(reader)]
    assert seen == kept
    assert len(kept) == len(writers) * sum(1 + n % 3 for n in range(rounds))


class OrderContract:
    async def test_a_cursor_of_one_integer_skips_nothing(self, open_store: OpenStore) -> None:
        writers = [await open_store() for _ in range(3)]
        await expect_no_skips(writers, await open_store(), rounds=40)

    async def test_numbers_without_failures_have_no_gaps(self, open_store: OpenStore) -> None:
        writers = [await open_store() for _ in range(2)]
        seen = await race(writers, await open_store(), rounds=10)
        assert seen == list(range(1, len(seen) + 1))

    async def test_a_batch_is_seen_whole(self, open_store: OpenStore) -> None:
        writer, reader = await open_store(), await open_store()
        sizes: set[int] = set()

        async def read() -> None:
            while 15 * 20 not in sizes:
                found = await reader.read_entries(ReadEntries(0, FAR, MANY, 1 << 40))
                sizes.add(len(found.entries))

        reading = asyncio.create_task(read())
        for _ in range(15):
            await attempt(writer, *[recording(NewEvent("e")) for _ in range(20)])
        await asyncio.wait_for(reading, SOON_S)
        assert all(size % 20 == 0 for size in sizes)

    async def test_the_last_number_given_is_known_before_and_after(
        self, open_store: OpenStore
    ) -> None:
        store = await open_store()
        assert await store.read_last_given() == 0
        await record(store, NewEvent("a"), NewEvent("b"))
        assert await (await open_store()).read_last_given() == 2

    async def test_the_writer_knows_its_head_at_once(self, open_store: OpenStore) -> None:
        store = await open_store()
        await record(store, NewEvent("a"), NewEvent("b"))
        assert store.head == 2
        assert await store.await_beyond(1) == 2

    async def test_waiting_ends_when_another_store_commits(self, open_store: OpenStore) -> None:
        here, there = await open_store(), await open_store()
        waiting = asyncio.create_task(there.await_beyond(0))
        await record(here, NewEvent("a"))
        assert await asyncio.wait_for(waiting, SOON_S) == 1
        assert there.head == 1

    async def test_every_waiter_wakes_and_only_for_what_it_waits(
        self, open_store: OpenStore
    ) -> None:
        store = await open_store()
        low = [asyncio.create_task(store.await_beyond(0)) for _ in range(3)]
        high = asyncio.create_task(store.await_beyond(1))
        await record(store, NewEvent("a"))
        assert await asyncio.wait_for(asyncio.gather(*low), SOON_S) == [1, 1, 1]
        assert not high.done()
        await record(store, NewEvent("b"))
        assert await asyncio.wait_for(high, SOON_S) == 2

    async def test_a_cancelled_waiter_is_forgotten(self, open_store: OpenStore) -> None:
        store = await open_store()
        waiting = asyncio.create_task(store.await_beyond(0))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await record(store, NewEvent("a"))
        assert await store.await_beyond(0) == 1

    async def test_what_a_woken_reader_reads_is_there(self, open_store: OpenStore) -> None:
        """A wake-up that came before the commit is visible would lose the entry for good."""
        writer, reader = await open_store(), await open_store()

        async def follow() -> None:
            cursor = 0
            while cursor < 60:
                head = await reader.await_beyond(cursor)
                found = await reader.read_entries(ReadEntries(cursor, head, MANY, 1 << 40))
                assert [e.global_seq for e in found.entries] == list(range(cursor + 1, head + 1))
                cursor = found.through

        following = asyncio.create_task(follow())
        for _ in range(60):
            await record(writer, NewEvent("e"))
        await asyncio.wait_for(following, SOON_S)

    async def test_a_run_is_numbered_without_gaps_by_stores_that_race(
        self, open_store: OpenStore
    ) -> None:
        stores = [await open_store() for _ in range(3)]
        await save_run(stores[0], a_run("r"))
        event = NewEvent("step", run_id="r", fencing_token=1)

        async def write(number: int) -> None:
            for _ in range(10):
                await record(stores[number], event, event)

        await asyncio.gather(*map(write, range(3)))
        entries = await stores[0].read_run("r", 0, MANY)
        assert [entry.seq for entry in entries] == list(range(1, 61))
        assert [e.global_seq for e in entries] == sorted(e.global_seq for e in entries)
