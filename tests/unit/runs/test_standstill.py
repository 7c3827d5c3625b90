"""A process that stood still asks the store before it gives up a lease, however long it stood."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

import tape
from tape.errors import StaleLease
from tape.model.run import Run, RunStatus
from tape.runs.declare import Apps
from tape.runs.driving.context import Context
from tape.runs.driving.lease_keeper import LeaseKeeper
from tape.settings import ReactorSettings
from tests.unit.runs.driven import soon

TTL_S, HEARTBEAT_S = 30.0, 10.0
GIVES_UP_S = TTL_S - HEARTBEAT_S / 2

Jump = Callable[[float], None]
BLOCKS_S = [
    GIVES_UP_S - HEARTBEAT_S / 40,
    GIVES_UP_S,
    GIVES_UP_S + HEARTBEAT_S / 40,
    GIVES_UP_S + HEARTBEAT_S / 10,
    2 * TTL_S,
]


@pytest.fixture
async def jump(monkeypatch: pytest.MonkeyPatch) -> Jump:
    """Move the loop's clock at once, as it moves for a loop that was held up."""
    loop = asyncio.get_running_loop()
    real, ahead = loop.time, [0.0]
    monkeypatch.setattr(loop, "time", lambda: real() + ahead[0])

    def jumped(seconds: float) -> None:
        ahead[0] += seconds

    return jumped


class Lease:
    """A lease in a store that answers at once, and what its holder is told."""

    def __init__(self, refusal: Exception | None = None) -> None:
        self.refusal = refusal
        self.is_asked = asyncio.Event()
        self.renewed = asyncio.Event()
        self.lost: list[BaseException] = []
        self.is_lost = asyncio.Event()
        self.settings = ReactorSettings(TTL_S, HEARTBEAT_S)
        self.keeper = LeaseKeeper(self, self.settings)  # type: ignore[arg-type]

    def hold(self, asked_at: float | None = None) -> None:
        run = Run("r", "app", "", "", "1", "shared", RunStatus.RUNNING, 1, "me", "", 0, 1, 0, 0)
        self.keeper.hold(run, self._lose, lambda _run: self.renewed.set(), asked_at)
        self.run = run

    async def heartbeat_run(self, _run_id: str, _token: int, _ttl_ms: int) -> Run:
        self.is_asked.set()
        await asyncio.sleep(0)
        if self.refusal is not None:
            raise self.refusal
        return self.run

    def _lose(self, error: BaseException) -> None:
        self.lost.append(error)
        self.is_lost.set()


@pytest.mark.parametrize("blocked_s", BLOCKS_S)
async def test_a_lease_that_is_still_there_is_kept(jump: Jump, blocked_s: float) -> None:
    lease = Lease()
    lease.hold()
    await asyncio.sleep(0)
    jump(blocked_s)
    await soon(lease.renewed)
    await lease.keeper.close()
    assert lease.lost == []


@pytest.mark.parametrize("blocked_s", BLOCKS_S)
async def test_one_that_another_has_is_lost_to_it(jump: Jump, blocked_s: float) -> None:
    lease = Lease(StaleLease("taken over"))
    lease.hold()
    await asyncio.sleep(0)
    jump(blocked_s)
    await soon(lease.is_lost)
    await lease.keeper.close()
    assert lease.lost == [lease.refusal]


@pytest.mark.parametrize("late_s", [GIVES_UP_S - HEARTBEAT_S / 2, GIVES_UP_S, 2 * TTL_S])
@pytest.mark.parametrize("refusal", [None, StaleLease("taken over")])
async def test_a_grant_that_was_long_on_its_way_is_asked_for_again(
    late_s: float, refusal: StaleLease | None
) -> None:
    lease = Lease(refusal)
    lease.hold(asyncio.get_running_loop().time() - late_s)
    await soon(lease.renewed if refusal is None else lease.is_lost)
    await lease.keeper.close()
    assert lease.lost == ([] if refusal is None else [refusal])


async def test_a_store_that_stays_away_is_waited_for_half_a_heartbeat(jump: Jump) -> None:
    lease = Lease(OSError("no route"))
    loop = asyncio.get_running_loop()
    lease.hold()
    await asyncio.sleep(0)
    jump(GIVES_UP_S + HEARTBEAT_S / 40)
    await soon(lease.is_asked)
    assert lease.lost == []
    (held,) = lease.keeper._held
    assert held.give_up_at <= loop.time() + HEARTBEAT_S / 2
    jump(held.give_up_at - loop.time())
    await soon(lease.is_lost)
    await lease.keeper.close()
    assert lease.lost == [lease.refusal]


@pytest.mark.parametrize("blocked_s", BLOCKS_S)
async def test_what_was_done_meanwhile_is_not_done_again(
    jump: Jump, tmp_path: Path, blocked_s: float
) -> None:
    apps, acts = Apps(), []

    @tape.effect(registry=apps)
    async def charge() -> str:
        acts.append(tape.idempotency_key())
        jump(blocked_s)
        return "charged"

    @tape.app("shop", registry=apps)
    async def shop(ctx: Context) -> str:
        return await charge()

    async with tape.connect_async(f"sqlite:{tmp_path}/tape.db") as client:
        assert await client.run(shop) == "charged"
    assert len(acts) == 1
