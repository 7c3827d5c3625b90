"""The process that act 3 kills: records reports and prints each acknowledgement at once."""

import asyncio
import sys

from tape.app import connect_async
from tape.cli.demo import desk
from tape.client import AsyncTapeClient

IN_FLIGHT = 8


async def produce(url: str, count: int, stop_at: int) -> None:
    """Record reports up to `stop_at`; if that is not all of them, wait there to be told to go."""
    numbers = iter(range(stop_at))

    async def work(client: AsyncTapeClient) -> None:
        for number in numbers:
            report = desk.cleared(number)
            (recorded,) = await client.record_many([report])
            verdict = "duplicate" if recorded.duplicate else "new"
            print(report.idempotency_key, verdict, flush=True)

    async with connect_async(url) as client:
        await asyncio.gather(*(work(client) for _ in range(IN_FLIGHT)))
        if stop_at < count:
            await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(produce(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
