"""What an operator and the clock do to a subscription is done once, wherever that is killed.

Processes listen and also move the subscription, or fetch on its cadence. They kill themselves at
each boundary of a move, and of a tick. The journal must tell of the life that the row shows, and
each message become one run all the same.
"""

import asyncio
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

import pytest

from tests.crash.listening.far_ends import FarEnd, NewEnd
from tests.crash.listening.field import Field, a_field
from tests.crash.listening.listener_process import NAME
from tests.crash.listening.trail import Spot, read_trail
from tests.crash.listening.truth import check_life, due_at_ms, lifecycle, state_of

LEADS_TO: Final = {
    "pause": ("pause",), "resume": ("pause", "resume"), "drain": ("drain",),
    "deactivate": ("deactivate",), "activate": ("deactivate", "activate"),
}  # fmt: skip
ALL: Final = ("pause", "resume", "drain", "activate", "deactivate", "activate")
TICKS: Final = {
    "before tick_subscription", "after tick_subscription", "before the commit of TickSubscription",
    "in the transaction of TickSubscription", "after the commit of TickSubscription",
    "after fetch", "before ack", "after close", "before opening the source",
}  # fmt: skip
SOME_TICKS: Final = {
    "before tick_subscription", "in the transaction of TickSubscription",
    "after the commit of TickSubscription", "before ack",
}  # fmt: skip
MESSAGES: Final = 1_000
SCHEDULED: Final[dict[str, Any]] = {
    "activation": "scheduled", "cadence": "* * * * *",
    "runtime": {"batch": 20, "timeout_ms": 500},
}  # fmt: skip


async def moves_undisturbed(field: Field) -> list[Spot]:
    """The boundaries of moves."""
    given = field.given(moves=ALL)
    async with field.running(given) as process:
        await field.send(60)
        await field.until(lambda: lifecycle(field.url).count("activated") == 3, "moved")
        await field.until_accepted()
        await field.ended_in_order(process, given)
    assert check_life(field.url) == "active"
    seen = read_trail(given.trail)
    found = [Spot(name) for name in sorted(seen) if "move_subscription " in name]
    found += [Spot(name) for name in sorted(seen) if "MoveSubscription " in name]
    verbs = [spot.name.rpartition(" ")[2] for spot in found]
    assert {verb: verbs.count(verb) for verb in LEADS_TO} == dict.fromkeys(LEADS_TO, 5)
    return found


async def made_active(field: Field) -> None:
    """As an operator would, once what drains has come to its end by itself."""
    if check_life(field.url) == "draining":
        async with field.running(field.given()):
            await field.until(lambda: state_of(field.url) == "deactivated", "drained")
    state = check_life(field.url)
    if state != "active":
        verb = "resume" if state == "paused" else "activate"
        await field.subscriptions.move_subscription(NAME, verb)


async def kill_in_moves(url: str, end: FarEnd, folder: Path) -> None:
    async with a_field(url, end, folder) as field:
        spots = await moves_undisturbed(field)
        for spot in spots:
            verb = spot.name.rpartition(" ")[2]
            await field.killed(spot, MESSAGES // len(spots), moves=LEADS_TO[verb])
            await made_active(field)
        await field.judged(len(spots))
        assert check_life(url) == "active"


async def kill_in_ticks(
    url: str, end: FarEnd, folder: Path, ticks: Collection[str], messages: int
) -> None:
    async with a_field(url, end, folder, **SCHEDULED) as field:
        due = [0]
        for name in sorted(ticks):
            await field.killed(Spot(name, 2), messages // len(ticks))
            due.append(due_at_ms(url))
        assert due == sorted(due)
        assert len(set(due)) > len(ticks) / 2
        await field.judged(len(ticks))


@pytest.mark.timeout(300)
async def test_ticks_on_nats(nats: NewEnd, sqlite_url: str, tmp_path: Path) -> None:
    await kill_in_ticks(sqlite_url, nats(), tmp_path, SOME_TICKS, 120)


@pytest.mark.middle
@pytest.mark.timeout(900)
async def test_ticks(new_end: NewEnd, stores: list[str], tmp_path: Path) -> None:
    async with asyncio.TaskGroup() as group:
        for url in stores:
            group.create_task(kill_in_ticks(url, new_end(), tmp_path, TICKS, MESSAGES))


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "source",
    [
        pytest.param("nats", marks=pytest.mark.middle),
        pytest.param("kafka", marks=pytest.mark.long),
        pytest.param("pubsub", marks=pytest.mark.long),
    ],
)
async def test_moves(
    source: str, stores: list[str], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    new_end: NewEnd = request.getfixturevalue(source)
    async with asyncio.TaskGroup() as group:
        for url in stores:
            group.create_task(kill_in_moves(url, new_end(), tmp_path))
