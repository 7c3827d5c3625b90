"""Waiting for the lease of a subscription: whoever holds it is alive if it renews it."""

import asyncio
from collections.abc import Callable

from tape.errors import LeaseHeld, NotFound
from tape.model.subscription import Listener
from tape.subscriptions.operations import SubscriptionOperations


async def until_free(
    operations: SubscriptionOperations,
    name: str,
    owner: str,
    *,
    look_s: float,
    note: Callable[[str], None],
) -> None:
    """Wait until the lease of another owner has ended; LeaseHeld if that one renews it."""
    first: Listener | None = None
    while (row := await _held_by_another(operations, name, owner)) is not None:
        if first is None or first.fencing_token != row.fencing_token:
            first = row
            note(f"{name}: {row.lease_owner} holds it; waiting to see whether that one is alive")
        elif row.lease_expires_at_ms > first.lease_expires_at_ms:
            raise LeaseHeld(
                f"{row.lease_owner} listens for subscription {name!r}, and one at a time does. End "
                "that process, or leave the messages to it; if it is a server, --no-listen there "
                "leaves them to others"
            )
        await asyncio.sleep(look_s)


async def _held_by_another(
    operations: SubscriptionOperations, name: str, owner: str
) -> Listener | None:
    try:
        view = await operations.get_subscription(name)
    except NotFound:
        return None
    is_other = view.is_held and view.listener.lease_owner != owner
    return view.listener if is_other else None
