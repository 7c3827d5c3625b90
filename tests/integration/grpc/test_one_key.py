"""A hundred producers that retry one idempotency key make one event, and are told the same id."""

import asyncio
import multiprocessing
from typing import Any

import tape
from tape.model.event import Recorded

CONNECTIONS, EACH, TIMES = 10, 10, 3
KEY = "price.changed:sku-7:2026-11-16"


async def produce(client: tape.AsyncTapeClient, number: int) -> list[Recorded]:
    """One producer: it repeats itself, and has another payload than the others."""
    return [
        await client.record(
            "price.changed", {"by": number}, entity_id="sku-7", idempotency_key=KEY,
            caused_by="sync", occurred_at_ms=5,
        )
        for _ in range(TIMES)
    ]  # fmt: skip


async def produce_many(url: str, first: int, count: int) -> list[Recorded]:
    async with tape.connect_async(url) as client:
        told = await asyncio.gather(*(produce(client, first + n) for n in range(count)))
    return [recorded for answers in told for recorded in answers]


async def expect_one(url: str, told: list[Recorded]) -> None:
    assert len(told) == CONNECTIONS * EACH * TIMES
    assert len({(recorded.event_id, recorded.global_seq) for recorded in told}) == 1
    assert sum(not recorded.duplicate for recorded in told) == 1
    async with tape.connect_async(url) as client:
        (entry,) = [entry async for entry in client.follow(live=False)]
    assert (entry.event_id, entry.idempotency_key) == (told[0].event_id, KEY)
    assert (entry.caused_by, entry.occurred_at_ms) == ("sync", 5)


async def test_in_one_process(store_url: str) -> None:
    """Each connection has a store of its own, as another process would."""
    found = await asyncio.gather(
        *(produce_many(store_url, EACH * n, EACH) for n in range(CONNECTIONS))
    )
    await expect_one(store_url, [told for answers in found for told in answers])


async def test_at_two_servers(store_url: str, serving: Any) -> None:
    urls = [(await serving(store_url)).url for _ in range(2)]
    found = await asyncio.gather(
        *(produce_many(urls[n % 2], EACH * n, EACH) for n in range(CONNECTIONS))
    )
    await expect_one(store_url, [told for answers in found for told in answers])


def in_a_process(url: str, first: int, count: int) -> list[Recorded]:
    return asyncio.run(produce_many(url, first, count))


async def test_in_several_processes(store_url: str) -> None:
    async with tape.connect_async(store_url):  # so that there is a database
        pass
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        shares = [(store_url, 25 * n, 25) for n in range(4)]
        found = await asyncio.to_thread(pool.starmap, in_a_process, shares)
    await expect_one(store_url, [told for answers in found for told in answers])
