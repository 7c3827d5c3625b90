"""Listeners of declared subscriptions."""

import asyncio
from math import ceil
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tape.errors import StoreUnavailable
from tape.settings import Settings
from tape.subscriptions.keep_listening import KeepListening
from tape.subscriptions.operations import (
    AcceptedMessage,
    AcceptMessagesRequest,
    HoldSubscription,
    SubscriptionHold,
)
from tests.integration.settings.demonstrating import Demonstration, Demonstrations, first_wait
from tests.unit.subscriptions.sources import FarSide
from tests.unit.subscriptions.subscribed import Subscribed, document, message, subscribed

MIB = 1 << 20


def _keeper(found: Subscribed, far_side: FarSide, settings: Settings) -> KeepListening:
    return KeepListening(
        found.subscriptions, far_side.open, lambda _row: True, settings.listeners, owner="me"
    )


async def _listened(settings: Settings, folder: Path) -> tuple[set[int], list[int]]:
    """For how long the hold is taken, and how many long messages are fetched at once."""
    leases: set[int] = set()
    far_side = FarSide(*(message(n, b'"%s"' % (b"x" * MIB)) for n in range(1, 12)))
    async with subscribed(f"sqlite:{folder / 'tape.db'}", settings) as found:
        hold = found.subscriptions.hold_subscription

        async def noting(request: HoldSubscription) -> SubscriptionHold:
            leases.add(request.ttl_ms)
            return await hold(request)

        dispatch = {"playbook": "desk", "payload_from": "message.attributes"}
        await found.subscriptions.register_subscription(
            document(runtime={"batch": 100}, dispatch=dispatch)
        )
        await found.subscriptions.move_subscription("orders", "activate")
        far_side.waiting, later = far_side.waiting[:1], far_side.waiting[1:]
        stop = asyncio.Event()
        with patch.object(found.subscriptions, "hold_subscription", noting):
            task = asyncio.create_task(_keeper(found, far_side, settings).run(stop))
            await far_side.until_acked(1)  # how long its messages are is known now
            far_side.send(*later)
            await far_side.until_acked(11)
            stop.set()
            await task
    return leases, far_side.fetches


async def _looks(settings: Settings, folder: Path) -> float:
    """How long it waits between two looks."""
    async with subscribed(f"sqlite:{folder / 'tape.db'}", settings) as found:
        return await first_wait(
            _keeper(found, FarSide(), settings).run(asyncio.Event()), "asyncio.sleep"
        )


async def _gives_back(settings: Settings, folder: Path) -> list[int]:
    """How long what is in hand may take once the listener is to stop."""
    waits: list[int] = []
    real = asyncio.wait
    far_side = FarSide(message(1))

    async def noting(tasks: Any, **options: Any) -> Any:
        if "timeout" in options:
            waits.append(ceil(round(options["timeout"], 1)))  # busy cores take some of it
            options["timeout"] = 0.01
        return await real(tasks, **options)

    async with subscribed(f"sqlite:{folder / 'tape.db'}", settings) as found:
        await found.subscriptions.register_subscription(document())
        await found.subscriptions.move_subscription("orders", "activate")
        refused = asyncio.Event()

        async def away(_request: AcceptMessagesRequest) -> list[AcceptedMessage]:
            refused.set()
            raise StoreUnavailable

        stop = asyncio.Event()
        with (
            patch.object(found.subscriptions, "accept_messages", away),
            patch("asyncio.wait", noting),
        ):
            task = asyncio.create_task(_keeper(found, far_side, settings).run(stop))
            await refused.wait()
            waits.clear()
            stop.set()
            await task
    return sorted(set(waits))


OF_LISTENING: Demonstrations = {
    "listeners.lease_s": Demonstration((3.0, 4.0), _listened),
    "listeners.hand_bytes": Demonstration((2 * MIB, 8 * MIB), _listened),
    "listeners.look_s": Demonstration((3.0, 4.0), _looks),
    "listeners.grace_s": Demonstration((3.0, 4.0), _gives_back),
}
