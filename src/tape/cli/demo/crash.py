"""Act 3: a producer is killed in the middle of its work, and started again from the top."""

import asyncio
import sys
from typing import NamedTuple

from tape.cli.demo import desk
from tape.cli.demo.stage import Stage
from tape.client import AsyncTapeClient
from tape.programs.connect import connect_async

TITLE = "kill -9"
STORY = (
    "Another process takes in reports of the clearing house. It is killed while it writes, with no "
    "chance to tidy up, and started again. It remembers nothing, so it begins at the first report."
)
SHARE = 0.1
IN_FLIGHT = 8
PRODUCER = "from tape.cli.demo.crash import main; main()"
PATTERN = "/tape/event/recorded/trade.cleared/**"


class _Outcome(NamedTuple):
    acknowledged: set[str]
    duplicates: int
    exit_code: int


async def play(stage: Stage) -> None:
    count = max(80, int(stage.events * SHARE))
    bar = stage.progress.add_task("clearing", total=2 * count)
    # It holds back its last quarter, so that it cannot be done before it is killed.
    first = await _produce(stage, count, stop_at=count * 3 // 4, kill_after=count // 3)
    stage.progress.advance(bar, count)
    survived = await _written(stage)
    lost = first.acknowledged - survived.keys()
    stage.say(
        f"killed after {len(first.acknowledged)} acknowledged reports; the journal has "
        f"{len(survived)}"
    )
    stage.promise("everything that was acknowledged is there", not lost and bool(survived))
    second = await _produce(stage, count, stop_at=count, kill_after=None)
    stage.progress.remove_task(bar)
    after = await _written(stage)
    stage.say(
        f"the second run sent all {count} again: {second.duplicates} were there, "
        f"{count - second.duplicates} were new"
    )
    stage.promise(
        f"{count} reports, each exactly once",
        len(after) == count
        and set(after.values()) == {1}
        and second.exit_code == 0
        and second.duplicates == len(survived),
    )
    stage.sent += len(first.acknowledged) + count
    stage.collapsed += second.duplicates


async def _produce(stage: Stage, count: int, *, stop_at: int, kill_after: int | None) -> _Outcome:
    """Run the producer; kill it once it has told us of `kill_after` acknowledgements."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PRODUCER, stage.url, str(count), str(stop_at),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None  # noqa: S101 - a pipe was asked for
    acknowledged: set[str] = set()
    duplicates = 0
    try:
        async for line in process.stdout:
            if not line.endswith(b"\n"):
                break  # cut off by the kill: an acknowledgement that nobody heard
            key, verdict = line.decode().split()
            acknowledged.add(key)
            duplicates += verdict == "duplicate"
            if len(acknowledged) == kill_after:
                process.kill()
        return _Outcome(acknowledged, duplicates, await process.wait())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _written(stage: Stage) -> dict[str, int]:
    """How often each key is on the journal."""
    counts: dict[str, int] = {}
    async with stage.client.follow(PATTERN, live=False) as entries:
        async for entry in entries:
            counts[entry.idempotency_key] = counts.get(entry.idempotency_key, 0) + 1
    return counts


async def produce(url: str, count: int, stop_at: int) -> None:
    """Record reports up to `stop_at` and print each acknowledgement at once.

    If that is not all of them, wait there to be killed.
    """
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


def main() -> None:
    """Produce, in the process that is killed."""
    url, count, stop_at = sys.argv[1:]
    asyncio.run(produce(url, int(count), int(stop_at)))
