"""Listeners to be killed: what they have accepted they acknowledge a little later, in a file.

They acknowledge no more in all than they may: whoever has accepted more waits with that in hand.
"""

import asyncio
import os
from pathlib import Path

from tape.errors import StaleLease, StoreUnavailable
from tape.model.message import SourceMessage
from tape.programs.connect import open_bus
from tape.settings import Settings, SqliteSettings
from tape.subscriptions.operations import AcceptMessagesRequest, HoldSubscription, Subscriptions

LEASE_MS = 400
ACK_AFTER_S = 0.01
SETTINGS = Settings(sqlite=SqliteSettings(poll_s=0.02))
DOCUMENT = """
apiVersion: tape/v1
kind: Subscription
metadata: {name: orders, path: subscriptions/orders}
spec:
  {source: nats, mode: pull, activation: continuous, auth: a, stream: S, consumer: c,
   dispatch: {playbook: desk}, dedup: {window_secs: 86400}}
"""


def message(number: int) -> SourceMessage:
    """Every seventh can be no run, and every tenth has the key of the one before it."""
    body = b"{" if number % 7 == 0 else b'{"n":%d}' % number
    sent = number - 1 if number % 10 == 0 else number
    return SourceMessage("nats", "nats/S@1", str(number), body, message_id=f"m{sent}")


def read_acks(path: Path) -> set[int]:
    """What was cut off by a kill has no dot behind it, and is no acknowledgement."""
    return {int(word[:-1]) for word in path.read_text().split() if word.endswith(".")}


def may_acknowledge(acks: Path, count: int) -> None:
    """From now on, so many messages in all."""
    beside = acks.with_suffix(".new")
    beside.write_text(str(count))
    beside.replace(acks.with_suffix(".most"))


def _most(acks: Path) -> int:
    return int(acks.with_suffix(".most").read_text())


def listen_for_ever(url: str, acks: str, count: int) -> None:
    async def work() -> None:
        bus = await open_bus(url, SETTINGS)
        while True:
            try:
                await _listen(bus.subscriptions, Path(acks), count)
            except (StaleLease, StoreUnavailable):
                """Another has taken over, or will."""

    asyncio.run(work())


async def _listen(subscriptions: Subscriptions, acks: Path, count: int) -> None:
    ask = HoldSubscription("orders", f"listener-{os.getpid()}", LEASE_MS)
    held = await subscriptions.hold_subscription(ask)
    if not held.is_granted:
        await asyncio.sleep(0.02)
        return
    ask = ask._replace(fencing_token=held.fencing_token)
    while True:
        known = read_acks(acks)
        waiting = [number for number in range(1, count + 1) if number not in known][:25]
        if waiting:
            messages = [message(number) for number in waiting]
            request = AcceptMessagesRequest("orders", held.revision, held.fencing_token, messages)
            accepted = await subscriptions.accept_messages(request)
            assert [one.place for one in accepted] == [one.place for one in messages]
        await asyncio.sleep(ACK_AFTER_S)
        while len(known) + len(waiting) > _most(acks):
            await subscriptions.hold_subscription(ask._replace(in_flight=len(waiting)))
            await asyncio.sleep(ACK_AFTER_S)
        with acks.open("a") as file:
            file.write("".join(f"\n{number}." for number in waiting) + "\n")
        await subscriptions.hold_subscription(ask._replace(in_flight=1))
