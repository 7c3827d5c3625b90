"""Each message becomes one thing, once, whoever accepts it and is killed before it says so.

Two processes listen to what stands for a source: messages that come again until they are
acknowledged, in a file. The one that holds the lease is stopped, and killed with -9 if the journal
has more than the file, so that what it had in hand comes again to the other.
"""

import os
import random
import signal
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NamedTuple

import pytest

from tape.bus import Bus
from tape.model.subscription import Listener
from tape.ports.runs import RunQuery
from tape.stores.by_url import open_store
from tape.subscriptions.operations import Subscriptions
from tests.conformance.reacting import until
from tests.crash.accepting_processes import (
    DOCUMENT,
    SETTINGS,
    listen_for_ever,
    may_acknowledge,
    message,
    read_acks,
)
from tests.crash.forks import FORKS

SEED = int(os.environ.get("TAPE_SEED", "20261118"))


class Size(NamedTuple):
    messages: int
    kills: int


SIZES = [
    pytest.param(Size(400, 4), id="short"),
    pytest.param(Size(20_000, 60), id="long", marks=pytest.mark.long),
]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("size", SIZES)
async def test_each_message_is_accepted_once(store_url: str, tmp_path: Path, size: Size) -> None:
    chance = random.Random(f"{SEED}/accepting")
    acks = tmp_path / "acks"
    acks.touch()
    bus = Bus(await open_store(store_url, SETTINGS), SETTINGS)  # the source is a file here
    await bus.subscriptions.register_subscription(DOCUMENT)
    await bus.subscriptions.move_subscription("orders", "activate")
    running: dict[str, BaseProcess] = {}

    def start() -> None:
        args = (store_url, str(acks), size.messages)
        process = FORKS.Process(target=listen_for_ever, args=args, daemon=True)
        process.start()
        running[f"listener-{process.pid}"] = process

    try:
        may_acknowledge(acks, 0)
        for _ in range(2):
            start()
        for kill in range(size.kills):
            share = size.messages // size.kills
            at_least = kill * share + chance.randrange(1, share)
            may_acknowledge(acks, at_least)
            looking = partial(_has_in_hand, bus.subscriptions, acks, at_least)
            owner = await until(partial(_stopped_in_hand, looking, running))
            process = running.pop(owner)
            process.kill()
            process.join(30)
            start()
        may_acknowledge(acks, size.messages)
        await until(partial(_is_done, acks, size.messages))
    finally:
        for process in running.values():
            process.kill()
            process.join(30)
    listener = await _listener(bus.subscriptions)
    expected = _expected(size.messages)
    letters = await bus.subscriptions.list_subscription_dead_letters("orders", limit=10_000)
    runs = await bus._store.runs.list_runs(RunQuery(limit=100_000))
    await bus.close()
    assert sorted(run.invocation_id for run in runs) == sorted(expected["accepted"])
    assert sorted(letter.place for letter in letters) == sorted(expected["dead_lettered"])
    assert listener.accepted == len(expected["accepted"]), f"seed {SEED}"
    assert listener.deduplicated == len(expected["deduplicated"])
    assert listener.dead_lettered == len(expected["dead_lettered"])
    assert listener.redelivered > 0
    print(f"{listener.redelivered} redelivered of {size.messages}")


def _expected(count: int) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {"accepted": [], "deduplicated": [], "dead_lettered": []}
    seen: set[str] = set()
    for number in range(1, count + 1):
        one = message(number)
        if one.body == b"{":
            found["dead_lettered"].append(one.place)
        elif one.message_id in seen:
            found["deduplicated"].append(one.place)
        else:
            seen.add(one.message_id)
            found["accepted"].append(one.place)
    return found


async def _listener(subscriptions: Subscriptions) -> Listener:
    return (await subscriptions.get_subscription("orders")).listener


async def _stopped_in_hand(
    looking: Callable[[], Awaitable[str]], running: Mapping[str, BaseProcess]
) -> str:
    """Stop the holder; its name, if it has something in hand even then."""
    process = running.get(await looking())
    if process is None or process.pid is None:
        return ""
    os.kill(process.pid, signal.SIGSTOP)
    if (owner := await looking()) and running.get(owner) is process:
        return owner
    os.kill(process.pid, signal.SIGCONT)
    return ""


async def _has_in_hand(subscriptions: Subscriptions, acks: Path, at_least: int) -> str:
    """Who holds it, while it has accepted more than it has acknowledged."""
    acknowledged = len(read_acks(acks))
    row = await _listener(subscriptions)
    written = row.accepted + row.deduplicated + row.dead_lettered
    return row.lease_owner if written >= at_least and written > acknowledged else ""


async def _is_done(acks: Path, count: int) -> bool:
    return len(read_acks(acks)) == count
