"""The relay dies with kill -9 again and again: all arrives, the cursor is never ahead."""

import asyncio
import json
import random
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

import pytest

import tape
from tape.model.entry import Entry
from tests.conformance.broker import Received
from tests.integration.brokers.far_sides import NatsFarSide
from tests.integration.brokers.receiver_process import ReceiverProcess
from tests.integration.brokers.relaying import check_arrival, make_journal
from tests.integration.cli.command import clean_environment
from tests.servers.nats import NatsServer
from tests.servers.webhook import SECRET

PATIENCE_S = 60.0


class RelayProcess:
    """`tape relay` on a journal, started as often as it takes."""

    def __init__(self, store: str, target: str, cursor: Path) -> None:
        self._command = [
            sys.executable, "-m", "tape.cli", "relay", "--store", store, "--sink", target,
            "--cursor", str(cursor),
        ]  # fmt: skip
        self.store = store
        self._cursor = cursor
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.process = subprocess.Popen(
            self._command, env=clean_environment(TAPE_WEBHOOK_SECRET=SECRET)
        )

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(30)
            self.process = None

    def stop(self) -> int:
        assert self.process is not None
        self.process.terminate()
        code = self.process.wait(30)
        self.process = None
        return code

    @property
    def position(self) -> int:
        try:
            found: int = json.loads(self._cursor.read_bytes())["last_global_seq"]
        except FileNotFoundError:
            return 0
        return found

    async def until(self, position: int) -> None:
        give_up = time.monotonic() + PATIENCE_S
        while self.position < position:
            assert self.process is not None
            assert self.process.poll() is None, "the relay ended by itself"
            assert time.monotonic() < give_up
            await asyncio.sleep(0.002)


@pytest.fixture
def relays() -> Iterator[list[RelayProcess]]:
    started: list[RelayProcess] = []
    yield started
    for relay in started:
        relay.kill()


async def kill_often(
    relay: RelayProcess,
    entries: Sequence[Entry],
    kills: int,
    received: Callable[[int], Awaitable[list[Received]]],
) -> list[Entry]:
    """Kill it and start it again until all is sent; the entries that should have arrived."""
    chance = random.Random(len(entries))
    for _ in range(kills):
        relay.start()
        await relay.until(min(relay.position + 1, len(entries)))
        await asyncio.sleep(chance.uniform(0, 0.1))
        relay.kill()
        position = relay.position
        arrived = {message.event_id for message in await received(position)}
        assert arrived >= {entry.event_id for entry in entries[:position]}
    relay.start()
    async with tape.connect_async(relay.store) as client:  # who takes it is up, and can be told
        await client.record("order.moved", {"n": -1}, entity_type="order", entity_id="0")
        last = [entry async for entry in client.follow(after=len(entries), live=False)]
    await relay.until(len(entries) + len(last))
    assert relay.stop() == 0
    return [*entries, *last]


@pytest.mark.parametrize(
    ("count", "kills"),
    [
        (600, 1),
        pytest.param(3_000, 3, marks=pytest.mark.middle),
        pytest.param(60_000, 40, marks=pytest.mark.long),
    ],
)
async def test_to_nats(
    nats_server: NatsServer, sqlite_url: str, tmp_path: Path, relays: list[RelayProcess],
    count: int, kills: int,
) -> None:  # fmt: skip
    far_side = NatsFarSide(nats_server)
    await far_side.make_stream()
    entries = await make_journal(sqlite_url, count)
    relay = RelayProcess(sqlite_url, far_side.target, tmp_path / "cursor")
    relays.append(relay)
    sent = await kill_often(relay, entries, kills, far_side.received)
    assert check_arrival(sent, await far_side.received(len(sent))) == 0


@pytest.mark.parametrize(
    ("count", "kills"),
    [
        (300, 1),
        pytest.param(1_500, 2, marks=pytest.mark.middle),
        pytest.param(20_000, 30, marks=pytest.mark.long),
    ],
)
async def test_to_a_webhook(
    sqlite_url: str, tmp_path: Path, relays: list[RelayProcess], count: int, kills: int
) -> None:
    entries = await make_journal(sqlite_url, count)
    with ReceiverProcess(tmp_path / "deliveries") as receiver:

        async def received(_count: int) -> list[Received]:
            return receiver.received()

        relay = RelayProcess(sqlite_url, receiver.target, tmp_path / "cursor")
        relays.append(relay)
        sent = await kill_often(relay, entries, kills, received)
        check_arrival(sent, receiver.received())


async def test_a_second_relay_on_the_cursor_is_refused(
    sqlite_url: str, tmp_path: Path, relays: list[RelayProcess]
) -> None:
    await make_journal(sqlite_url, 1)
    cursor = tmp_path / "cursor"
    first = RelayProcess(sqlite_url, "log:", cursor)
    relays.append(first)
    first.start()
    await first.until(1)
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "tape.cli", "relay", "--store", sqlite_url, "--sink", "log:",
         "--cursor", str(cursor)],
        capture_output=True, text=True, env=clean_environment(), timeout=30, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "another relay is working with" in done.stderr
    assert first.stop() == 0
