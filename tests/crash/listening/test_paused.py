"""A listener that was stopped for longer than its lease does no harm when it is continued.

It stops itself, by SIGSTOP, at a boundary between fetch and acknowledgement. Another takes over and
does all there is. Continued, the first one is told that its token is stale, and no message becomes
two runs.
"""

import asyncio
import signal
from collections.abc import Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.crash.listening.far_ends import FarEnd, NewEnd
from tests.crash.listening.field import Field, a_field, send_signal
from tests.crash.listening.tracing import REFUSED
from tests.crash.listening.trail import Spot, read_trail
from tests.crash.listening.truth import counts


class Stop(NamedTuple):
    """Where a listener stops itself, how many messages there are, and what it must be refused then,
    empty for anything."""

    spot: Spot
    messages: int = 40
    is_refused: str = ""


OFFERING: Final = Stop(Spot("before the commit of AcceptMessages", 2), is_refused="AcceptMessages")
"""What it has in hand there it is certain to offer when it is continued."""
RENEWING: Final = Stop(Spot("before renewing the hold", 3), 1, "renewing the hold")
"""With nothing in hand."""
STOPS: Final = (
    OFFERING, RENEWING, Stop(Spot("after fetch", 2)), Stop(Spot("after planning", 2)),
    Stop(Spot("after the commit of AcceptMessages", 2)), Stop(Spot("before ack", 2)),
)  # fmt: skip
MORE: Final = 40
LONG_S: Final = 60.0
"""Whoever has taken over must not lose it by the clock."""


async def pause_at(field: Field, stop: Stop) -> None:
    first, second = field.given(spot=stop.spot, stops=True), field.given(lease_s=LONG_S)
    async with field.running(first) as paused:
        await field.send(stop.messages, f"at-{stop.spot.name}".replace(" ", "-"))
        await field.until(lambda: _is_stopped(paused), f"stopped {stop.spot}")
        holder = counts(field.url)
        assert holder.lease_owner == f"listener-{paused.pid}"
        async with field.running(second) as other:
            owner = f"listener-{other.pid}"
            await field.until(lambda: counts(field.url).lease_owner == owner, "taken over")
            await field.until_accepted()
            now = counts(field.url)
            assert now.fencing_token > holder.fencing_token
            send_signal(paused, signal.SIGCONT)
            refused = f"refused {stop.is_refused}"
            await field.until(lambda: stop.is_refused in _refused(first.trail), refused)
            await field.send(MORE, f"behind-{stop.spot.name}".replace(" ", "-"))
            await field.until_accepted()
            after = counts(field.url)
            assert (after.lease_owner, after.fencing_token) == (owner, now.fencing_token)
            await field.ended_in_order(paused, first)
            await field.ended_in_order(other, second)


def _is_stopped(process: BaseProcess) -> bool:
    status = Path(f"/proc/{process.pid}/stat").read_text()
    return status.rpartition(")")[2].split()[0] == "T"


def _refused(trail: Path) -> set[str]:
    """What it was refused; "" if that was anything."""
    found = {name.removeprefix(REFUSED) for name in read_trail(trail) if name.startswith(REFUSED)}
    return found | {""} if found else found


async def pause_at_each(url: str, end: FarEnd, folder: Path, stops: Sequence[Stop]) -> None:
    async with a_field(url, end, folder) as field:
        for stop in stops:
            await pause_at(field, stop)
        await field.judged(0)


@pytest.mark.timeout(300)
async def test_two_on_nats(nats: NewEnd, sqlite_url: str, tmp_path: Path) -> None:
    await pause_at_each(sqlite_url, nats(), tmp_path, (OFFERING, RENEWING))


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "source",
    [
        pytest.param("nats", marks=pytest.mark.middle),
        pytest.param("kafka", marks=pytest.mark.middle),
        pytest.param("pubsub", marks=pytest.mark.long),  # each stop waits for a deadline of 10 s
    ],
)
async def test_wherever_it_stops(
    source: str, stores: list[str], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    new_end: NewEnd = request.getfixturevalue(source)
    async with asyncio.TaskGroup() as group:
        for url in stores:
            group.create_task(pause_at_each(url, new_end(), tmp_path, STOPS))
