"""The outbox's truth: what was committed is published, and nothing else, whatever is killed.

Transactions of eight producers, a third of them rolled back; the leader of three relays is killed
with -9 again and again, NATS too, and Postgres is restarted. The long form has the full numbers.
"""

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.crash.outbox_checks import check_leadership, check_truth
from tests.crash.outbox_world import HUNG_S, LEAD_RETRY_S, Witness, World, a_world, until

SEED = int(os.environ.get("TAPE_SEED", "20261116"))
PROCESSES, THREADS = 2, 4


class Size(NamedTuple):
    transactions: int
    faults: str
    """R kills the leading relay, N kills NATS, P restarts Postgres; in this order."""


SHORT = Size(1_600, "RNRP")
LONG = Size(20_000, "RRNRRPRRNRRNRR")
SHORT_ON_SQLITE = Size(400, "RN")
LONG_ON_SQLITE = Size(10_000, "RRNRRRNRRR")


@pytest.mark.parametrize(
    "size",
    [
        pytest.param(SHORT, id="short", marks=pytest.mark.middle),
        pytest.param(LONG, id="long", marks=pytest.mark.long),
    ],
)
@pytest.mark.timeout(1_800)
def test_published_is_committed(tmp_path: Path, size: Size) -> None:
    play(tmp_path, size)


@pytest.mark.parametrize(
    "size",
    [
        pytest.param(SHORT_ON_SQLITE, id="short"),
        pytest.param(LONG_ON_SQLITE, id="long", marks=pytest.mark.long),
    ],
)
@pytest.mark.timeout(1_800)
def test_published_is_committed_on_sqlite(tmp_path: Path, size: Size) -> None:
    play(tmp_path, size, on_sqlite=True)


def play(folder: Path, size: Size, *, on_sqlite: bool = False) -> None:
    with a_world(folder, on_sqlite=on_sqlite) as world:
        for _ in range(3):
            world.start_relay()
        term, _pid = world.await_leader(0)
        until(lambda: stream_is_there(world))
        with Witness(f"nats://{world.nats.address}") as it:
            world.start_producers(PROCESSES, THREADS, size.transactions, SEED)
            expected = size.transactions * 4 // 3  # about: two thirds commit, two events each
            term -= 1
            for number, fault in enumerate(size.faults, 1):
                wanted = expected * number // (len(size.faults) + 1)
                until(lambda: published(world) >= wanted)  # noqa: B023 - asked at once
                term = inflict(world, fault, term)
            rolled_back = world.await_producers()
            assert size.transactions / 4 < rolled_back < size.transactions / 2
            await_all(world, it)
        figures = check_truth(world, it.got)
        terms = check_leadership(world)
        assert terms > size.faults.count("R") + size.faults.count("P")
        print(f"\n{figures}, {rolled_back} transactions rolled back, {terms} terms")


def published(world: World) -> int:
    ((count,),) = world.rows(f"SELECT count(*) FROM {world.outbox} WHERE published_to_nats")
    return int(count)


def stream_is_there(world: World) -> bool:
    return any("stream crash-bus: created" in relay.said for relay in world.relays)


def inflict(world: World, fault: str, term: int) -> int:
    """The term that was seen last."""
    match fault:
        case "R":
            return world.kill_leader(term)
        case "N":
            world.nats.kill()
            time.sleep(0.3)  # relays and the consumer find nobody there
            world.nats.start()
        case "P":
            assert world.postgres is not None
            world.postgres.stop(signal.SIGINT)
            world.postgres.start()
    return term


def await_all(world: World, it: Witness) -> None:
    def all_is_marked() -> bool:
        ((waiting,),) = world.rows(
            f"SELECT count(*) FROM {world.outbox} WHERE NOT published_to_nats"
        )
        return bool(waiting == 0)

    until(all_is_marked, 300)
    ((committed,),) = world.rows("SELECT count(*) FROM orders")
    with contextlib.suppress(AssertionError):  # then what is missing is told with the rest
        until(lambda: len(it.seen) >= committed)


@pytest.mark.middle
@pytest.mark.timeout(120)
def test_a_leader_that_hangs_is_replaced_and_does_no_harm_when_it_wakes(tmp_path: Path) -> None:
    with a_world(tmp_path) as world:
        for _ in range(2):
            world.start_relay()
        first_term, first_pid = world.await_leader(0)
        until(lambda: stream_is_there(world))
        with Witness(f"nats://{world.nats.address}") as it:
            world.start_producers(1, 4, 2_000, SEED)
            until(lambda: published(world) > 200)
            os.kill(first_pid, signal.SIGSTOP)
            try:
                stopped_at = time.monotonic()
                second_term, second_pid = world.await_leader(first_term)
                replaced_s = time.monotonic() - stopped_at
                assert second_pid != first_pid
                world.await_producers()
                await_all(world, it)
            finally:
                os.kill(first_pid, signal.SIGCONT)
            assert replaced_s < HUNG_S + LEAD_RETRY_S + 1.0
            (woken,) = [relay for relay in world.relays if relay.pid == first_pid]
            until(lambda: "has lost the lead" in woken.said)
            assert world.leader() == (second_term, second_pid)
            # It is as good as any other: when the leader is gone it leads again, and publishes.
            (other,) = [relay for relay in world.relays if relay.pid != first_pid]
            other.stop()
            world.relays.remove(other)
            assert world.await_leader(second_term) == (second_term + 1, first_pid)
        check_truth(world, it.got)
        assert check_leadership(world) == 3
        print(f"\nreplaced after {replaced_s:.2f} s")
