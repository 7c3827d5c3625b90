"""Postgres is killed with -9 under a server that listens: what is acknowledged is in the journal.

How soon fetching stops and goes on is measured at the source: NATS counts what it has delivered and
what was acknowledged, whatever the listener says.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest

import tape
from tests.crash.audited import check_audit
from tests.integration.sources.far_sides import NatsSide
from tests.integration.subscriptions.listened import (
    BOUND_S,
    ENVIRONMENT,
    LOOK_S,
    activate,
    publish,
    settings_file,
)
from tests.servers.nats import NatsServer
from tests.servers.postgres import PostgresServer
from tests.servers.tape_server import ServerProcess

KILLS = 5
STOPS_S = 2.0
GOES_ON_S = 5.0
EVERY_S = 0.05
TOGETHER = 10
"""So many messages are sent every so often: 200 a second."""
pytestmark = [pytest.mark.middle, pytest.mark.timeout(300)]


class Moment(NamedTuple):
    """What NATS had delivered then, and up to which message everything was acknowledged."""

    at: float
    delivered: int
    acknowledged: int


class Watch:
    """Looks at the durable again and again."""

    def __init__(self) -> None:
        self.moments: list[Moment] = []

    @property
    def last(self) -> Moment:
        return self.moments[-1]

    async def run(self, side: NatsSide) -> None:
        async with side.client() as nats:
            while True:
                found = await nats.jetstream().consumer_info(side.stream, "tape")
                assert found.delivered is not None
                assert found.ack_floor is not None
                floor = found.ack_floor.stream_seq
                self.moments.append(Moment(time.monotonic(), found.delivered.consumer_seq, floor))
                await asyncio.sleep(LOOK_S)

    async def until_delivered(self, more: int) -> Moment:
        """The first look that finds so many more than now."""
        wanted = self.last.delivered + more
        async with asyncio.timeout(BOUND_S):
            while self.last.delivered < wanted:  # noqa: ASYNC110 - NATS is asked
                await asyncio.sleep(LOOK_S)
        return next(moment for moment in self.moments if moment.delivered >= wanted)

    async def until_acknowledged(self, upto: int) -> None:
        async with asyncio.timeout(BOUND_S):
            while self.last.acknowledged < upto:  # noqa: ASYNC110 - NATS is asked
                await asyncio.sleep(LOOK_S)

    def stopped_at(self, since: float) -> float:
        """When it last found more than before."""
        grown = [
            after.at
            for before, after in zip(self.moments, self.moments[1:], strict=False)
            if after.delivered > before.delivered
        ]
        return max([since, *grown])


class Sender:
    """Sends messages all the time."""

    def __init__(self) -> None:
        self.sent = 0
        self.has_ended = asyncio.Event()

    async def run(self, side: NatsSide, stop: asyncio.Event) -> None:
        while not stop.is_set():
            numbers = range(self.sent, self.sent + TOGETHER)
            await publish(side.server, side, [(b"", {"n": number}) for number in numbers])
            self.sent += TOGETHER
            await asyncio.sleep(EVERY_S)
        self.has_ended.set()


@pytest.fixture
def postgres() -> Iterator[PostgresServer]:
    """One to be killed."""
    with PostgresServer() as server:
        yield server


async def test_what_is_acknowledged_is_in_the_journal(
    postgres: PostgresServer, nats_server: NatsServer, tmp_path: Path
) -> None:
    side = NatsSide(nats_server)
    await side.make(ack_wait=30)
    url = postgres.create_database("listened")
    with ServerProcess(url, "--config", settings_file(tmp_path), env=ENVIRONMENT) as server:
        async with tape.connect_async(server.url) as client:
            await activate(client, side, "stored")
        watch, sender = Watch(), Sender()
        async with working(side, watch, sender) as stop:
            for kill in range(KILLS):
                await watch.until_acknowledged(sender.sent + 2 * TOGETHER)  # in mid-stream
                postgres.kill()
                killed_at = time.monotonic()
                await asyncio.sleep(2 * STOPS_S)  # so long it is away
                stopped_s = watch.stopped_at(killed_at) - killed_at
                acknowledged = watch.last.acknowledged
                await asyncio.to_thread(postgres.start)
                back_at = time.monotonic()
                assert missing(url, acknowledged) == []
                went_on_s = (await watch.until_delivered(1)).at - back_at
                print(f"kill {kill}: stopped {stopped_s:.2f} s, went on {went_on_s:.2f} s after")
                assert stopped_s <= STOPS_S
                assert went_on_s <= GOES_ON_S
            stop.set()
            await sender.has_ended.wait()
            await watch.until_acknowledged(sender.sent)
        assert missing(url, sender.sent) == []
        assert len(run_places(url)) == sender.sent
        async with tape.connect_async(server.url) as client:
            counts = (await client.subscription("stored")).listener
        print(f"{counts.accepted} accepted, {counts.redelivered} redelivered")
        assert (counts.accepted, counts.dead_lettered) == (sender.sent, 0)
    await asyncio.to_thread(check_audit, url)


@asynccontextmanager
async def working(side: NatsSide, watch: Watch, sender: Sender) -> AsyncIterator[asyncio.Event]:
    """Messages come until the event is set, and the durable is looked at."""
    stop = asyncio.Event()
    watching = asyncio.create_task(watch.run(side))
    sending = asyncio.create_task(sender.run(side, stop))
    try:
        while not watch.moments:  # noqa: ASYNC110 - NATS is asked
            await asyncio.sleep(LOOK_S)
        yield stop
    finally:
        for task in (watching, sending):
            task.cancel()
        await asyncio.gather(watching, sending, return_exceptions=True)


def missing(url: str, upto: int) -> list[int]:
    """The messages up to that one that are no run."""
    there = {int(place.rpartition("/")[2]) for place in run_places(url)}
    return sorted(set(range(1, upto + 1)) - there)


def run_places(url: str) -> list[str]:
    """Read by none of Tape's code."""
    with psycopg.connect(url) as db:
        rows = db.execute("SELECT invocation_id FROM tape_runs WHERE session_id = 'stored'")
        return [place for (place,) in rows]
