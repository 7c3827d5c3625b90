"""Each message becomes one run, wherever a listener is killed with -9.

An undisturbed listener tells which boundaries there are between fetch and acknowledgement. Then a
process listens for the same subscription until the first of them, where it kills itself; the next
takes over and comes to the second; and so on. Behind each, what the source will not deliver again
must have its run. At the end each message has one, begun in the order of its key.
"""

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from tape.model.subscription_spec import SourceKind
from tests.crash.listening.far_ends import FarEnd, NewEnd
from tests.crash.listening.field import Field, a_field
from tests.crash.listening.trail import Spot, read_trail
from tests.crash.test_accepting_killed import SEED

AMONG: Final = 3
"""Each boundary is met at one of its first times, so that something was done before."""
HANDFUL: Final = (
    "after fetch", "after planning", "in the transaction of AcceptMessages",
    "after the commit of AcceptMessages", "after publishing +ACK", "after publishing +WPI",
)  # fmt: skip
ON_THE_WAY: Final = {
    "after opening the source", "after fetch", "before planning", "after planning",
    "before the commit of AcceptMessages", "in the transaction of AcceptMessages",
    "after the commit of AcceptMessages", "before ack", "after ack", "after renewing the hold",
    "before letting go", "after close",
}  # fmt: skip
OF_SOURCES: Final = {
    SourceKind.NATS: {"before publishing +ACK", "after publishing +ACK", "after publishing +WPI"},
    SourceKind.KAFKA: {
        "after asking for a commit", "before the answer to a commit", "before partitions go",
        "after partitions go", "after partitions come",
    },
    SourceKind.PUBSUB: {
        "before acknowledge", "during acknowledge", "after acknowledge",
        "during modify_ack_deadline",
    },
}  # fmt: skip


async def undisturbed(field: Field, **more: Any) -> list[Spot]:
    """Where a listener comes to from its beginning to its end: each boundary once, at one of its
    first times."""
    given = field.given(**more)
    async with field.running(given) as process:
        await field.send(30, "undisturbed")
        await field.until_accepted()
        async with field.end.rebalanced():
            await field.send(30, "undisturbed")
        await field.until_accepted()
        await field.until_passed()
        before = read_trail(given.trail)
        await field.ended_in_order(process, given)
    seen = read_trail(given.trail)
    chance = random.Random(f"{SEED}/spots")
    return [
        Spot(name, chance.randint(1, min(AMONG, before[name] or 1)), at_end=name not in before)
        for name in sorted(seen)
    ]


def names(spots: Sequence[Spot]) -> set[str]:
    return {spot.name for spot in spots}


async def kill_at_each(field: Field, spots: Sequence[Spot], messages: int) -> None:
    """So many messages together; then listen to the end, and judge."""
    print(f"seed {SEED}")
    each = -(-messages // len(spots))
    for spot in spots:
        await field.killed(spot, each, awaits_report=_is_report(spot))
    await field.judged(len(spots))


def _is_report(spot: Spot) -> bool:
    return "+WPI" in spot.name or "modify_ack_deadline" in spot.name


async def kill_at_a_handful(url: str, end: FarEnd, folder: Path) -> None:
    async with a_field(url, end, folder) as field:
        found = await undisturbed(field, awaits_report=True)
        assert names(found) >= ON_THE_WAY | OF_SOURCES[SourceKind.NATS]
        spots = [spot for spot in found if spot.name in HANDFUL]
        assert len(spots) == len(HANDFUL)
        await kill_at_each(field, spots, 140)


@pytest.mark.timeout(300)
async def test_a_handful_on_nats(nats: NewEnd, sqlite_url: str, tmp_path: Path) -> None:
    await kill_at_a_handful(sqlite_url, nats(), tmp_path)


@pytest.mark.middle
async def test_order_where_one_at_a_time_is_on_its_way(
    nats_one_by_one: NewEnd, sqlite_url: str, tmp_path: Path
) -> None:
    """NATS keeps the order of what comes again only then."""
    await kill_at_a_handful(sqlite_url, nats_one_by_one(), tmp_path)


async def kill_everywhere(url: str, end: FarEnd, folder: Path) -> None:
    async with a_field(url, end, folder) as field:
        spots = await undisturbed(field, awaits_report=end.kind is not SourceKind.KAFKA)
        expected = ON_THE_WAY | OF_SOURCES[end.kind]
        assert names(spots) >= expected, f"not met: {expected - names(spots)}"
        await kill_at_each(field, spots, 1_000)


@pytest.mark.middle
@pytest.mark.timeout(900)
async def test_everywhere(new_end: NewEnd, stores: list[str], tmp_path: Path) -> None:
    async with asyncio.TaskGroup() as group:
        for url in stores:
            group.create_task(kill_everywhere(url, new_end(), tmp_path))
