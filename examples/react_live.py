"""Producers and a live follower in one asyncio program: the follower answers what it sees.

    python examples/react_live.py

The answer carries a key made from what it answers. A follower that starts again and sees an entry
a second time therefore answers it only once.
"""

# ruff: noqa: T201 - an example shows what it found

import asyncio
import tempfile
from pathlib import Path

import tape

ORDERS = 20
LARGE = 150.0


async def produce(client: tape.AsyncTapeClient) -> None:
    for number in range(ORDERS):
        await client.record(
            "order.placed",
            {"total": 10.0 * number},
            entity_type="order",
            entity_id=str(number),
            idempotency_key=f"order:{number}",
        )


async def review(client: tape.AsyncTapeClient, wanted: int) -> None:
    """Ask for a second look at every large order."""
    pattern, where = "/tape/event/recorded/order.placed/**", f"payload.total >= {LARGE}"
    async with client.follow(pattern, where=where) as orders:
        seen = 0
        async for order in orders:
            await client.record(
                "review.requested",
                entity_type="order",
                entity_id=order.entity_id,
                caused_by=order.event_id,
                idempotency_key=f"review:{order.event_id}",
            )
            seen += 1
            if seen == wanted:
                return


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:{Path(folder) / 'tape.db'}"
        async with tape.connect_async(url) as client:
            await asyncio.gather(review(client, wanted=5), produce(client))
            requests = client.follow("/tape/event/recorded/review.requested/**", live=False)
            async with requests as entries:
                print("to review:", [entry.entity_id async for entry in entries])


if __name__ == "__main__":
    asyncio.run(main())
