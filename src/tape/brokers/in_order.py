"""Many messages at once, yet one after the other within a key.

A client that takes message 2 while message 1 is still on its way can see 1 fail and 2 succeed. So
each ordering key is a lane (`ports/lanes.py`): its next message leaves when the one before it is
acknowledged, and after a failure the rest of the lane is not tried.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from tape.errors import BrokerError, BrokerUnavailable
from tape.ports.broker import Outgoing
from tape.ports.lanes import run_in_lanes

Results = list[BrokerError | None]
PublishLane = Callable[[Sequence[Outgoing]], Awaitable[Results]]

# After this long nothing new is started: a broker that answers nobody is not asked for each lane.
PUBLISH_S = 30.0


async def publish_by_key(
    messages: Sequence[Outgoing], publish_lane: PublishLane, *, in_flight: int
) -> Results:
    """The result of each message. `publish_lane` gets messages of one key and must not raise a
    BrokerError."""
    give_up = asyncio.get_running_loop().time() + PUBLISH_S

    async def publish(lane: Sequence[Outgoing]) -> Results:
        if asyncio.get_running_loop().time() > give_up:
            return [BrokerUnavailable("the broker is too slow: not tried")] * len(lane)
        return await publish_lane(lane)

    return await run_in_lanes(
        messages, lambda message: message.ordering_key, publish, at_once=in_flight
    )


def one_by_one(send: Callable[[Outgoing], Awaitable[None]]) -> PublishLane:
    """A lane whose messages are sent singly; `send` raises a BrokerError."""

    async def publish_lane(messages: Sequence[Outgoing]) -> Results:
        give_up = asyncio.get_running_loop().time() + PUBLISH_S
        for sent, message in enumerate(messages):
            try:
                if asyncio.get_running_loop().time() > give_up:
                    raise BrokerUnavailable("the broker is too slow: not tried")
                await send(message)
            except BrokerError as error:
                return [*[None] * sent, *[error] * (len(messages) - sent)]
        return [None] * len(messages)

    return publish_lane
