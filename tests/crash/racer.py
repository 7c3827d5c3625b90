"""One racing process on a SQLite file: `python -m tests.crash.racer URL FIRST WRITERS QUOTA SEED`.

Each outcome is one line on standard output, written before the next thing is sent, so that what a
killed process was told is known.
"""

import asyncio
import sys

import orjson

from tape.programs.connect import open_bus
from tests.crash.racing import Outcome, write


def report(outcome: Outcome) -> None:
    sys.stdout.buffer.write(orjson.dumps(outcome._asdict()) + b"\n")
    sys.stdout.buffer.flush()


async def race(url: str, first: int, writers: int, quota: int, seed: int) -> None:
    bus = await open_bus(url)
    async with asyncio.TaskGroup() as group:
        for writer in range(first, first + writers):
            group.create_task(write(writer, quota, [bus], report, seed))
    await bus.close()


if __name__ == "__main__":
    store, *numbers = sys.argv[1:]
    asyncio.run(race(store, *map(int, numbers)))
