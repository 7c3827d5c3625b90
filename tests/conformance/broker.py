"""The contract of `ports.broker`, as tests. A suite for a broker subclasses it and provides one
fixture, `far_side`: the system that is published to, seen from its other end."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import pytest

from tape.errors import BrokerError, BrokerRefused, BrokerUnavailable
from tape.model.entry import Entry
from tape.ports.broker import Broker, Outgoing

BOUND_S = 60.0  # of any single call, whatever the far side does
CLOSE_S = 4.0


class Received(NamedTuple):
    """A message as it arrived; `attempt` is 1 where it carries no mark."""

    event_id: str
    key: str
    attempt: int
    data: bytes


class FarSide(Protocol):
    """`drops_repeats`: the same message id is taken once."""

    drops_repeats: bool

    async def open(self) -> Broker:
        """A broker object of its own on this far side."""

    async def received(self, count: int) -> list[Received]:
        """What arrived so far, in order per key, once there are `count` of them."""

    def unwelcome(self, message: Outgoing) -> Outgoing | None:
        """The message made such that it is refused; None where everything is taken."""

    async def go_away(self) -> None: ...

    async def come_back(self) -> None: ...


def outgoing(number: int, key: str = "k", *, payload: str = "", attempt: int = 1) -> Outgoing:
    event_id = f"event-{number:05d}"
    entry = Entry(
        global_seq=number + 1, run_id="", seq=0, kind="event",
        subject=f"/tape/event/recorded/order.placed/order/{key}",
        payload_json=payload or f'{{"number": {number},  "ä": "\\u00e4€"}}', schema_version=1,
        trace_id="", span_id="", parent_span_id="", ts_ms=1_700_000_000_000, event_id=event_id,
        event_type="order.placed", entity_type="order", entity_id=key, caused_by="",
        source="/shop", occurred_at_ms=1_700_000_000_000, idempotency_key="",
    )  # fmt: skip
    return Outgoing(entry, event_id, key, attempt)


async def publish(broker: Broker, messages: Sequence[Outgoing]) -> list[BrokerError | None]:
    return await asyncio.wait_for(broker.publish(messages), BOUND_S)


def ids_by_key(received: Sequence[Received]) -> dict[str, list[str]]:
    """The ids of each key in the order of their first arrival."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for message in received:
        found[message.key].setdefault(message.event_id)
    return {key: list(ids) for key, ids in found.items()}


class BrokerContract:
    async def test_nothing_is_published_at_once(self, far_side: FarSide) -> None:
        broker = await far_side.open()
        assert await publish(broker, []) == []
        await broker.close()

    async def test_an_acknowledged_message_has_arrived_as_it_was(self, far_side: FarSide) -> None:
        broker = await far_side.open()
        message = outgoing(1)
        assert await publish(broker, [message]) == [None]
        (found,) = await far_side.received(1)
        assert found == Received("event-00001", "k", 1, message.entry.payload_json.encode())
        await broker.close()

    async def test_the_order_of_each_key_is_kept(self, far_side: FarSide) -> None:
        broker = await far_side.open()
        messages = [outgoing(number, f"key {number % 7}") for number in range(300)]
        for start in range(0, 300, 100):
            assert await publish(broker, messages[start : start + 100]) == [None] * 100
        received = await far_side.received(300)
        assert len(received) == 300
        wanted = {f"key {n}": [m.message_id for m in messages[n::7]] for n in range(7)}
        assert ids_by_key(received) == wanted
        await broker.close()

    async def test_a_repeat_is_marked_or_dropped(self, far_side: FarSide) -> None:
        broker = await far_side.open()
        repeat, other = outgoing(1, attempt=2), outgoing(2)
        assert await publish(broker, [outgoing(1)]) == [None]
        assert await publish(broker, [repeat, other]) == [None, None]
        received = await far_side.received(2 if far_side.drops_repeats else 3)
        arrived = [(message.event_id, message.attempt) for message in received]
        repeats = [] if far_side.drops_repeats else [("event-00001", 2)]
        assert arrived == [("event-00001", 1), *repeats, ("event-00002", 1)]
        await broker.close()

    async def test_a_refusal_stops_its_key(self, far_side: FarSide) -> None:
        unwelcome = far_side.unwelcome(outgoing(1, "a"))
        if unwelcome is None:
            pytest.skip("takes everything")
        broker = await far_side.open()
        first, last = outgoing(0, "a"), outgoing(2, "a")
        assert await publish(broker, [first]) == [None]
        refused, behind, beside = await publish(broker, [unwelcome, last, outgoing(3, "b")])
        assert isinstance(refused, BrokerRefused)
        assert behind is refused
        assert beside is None or isinstance(beside, BrokerUnavailable)
        assert await publish(broker, [last, outgoing(3, "b", attempt=2)]) == [None, None]
        received = await far_side.received(3)
        assert ids_by_key(received) == {"a": ["event-00000", "event-00002"], "b": ["event-00003"]}
        await broker.close()

    async def test_publishing_side_by_side(self, far_side: FarSide) -> None:
        broker = await far_side.open()
        calls = [publish(broker, [outgoing(number, f"key {number}")]) for number in range(40)]
        assert await asyncio.gather(*calls) == [[None]] * 40
        received = await far_side.received(40)
        assert {message.event_id for message in received} == {f"event-{n:05d}" for n in range(40)}
        await broker.close()

    async def test_while_away_and_once_back(self, far_side: FarSide) -> None:
        broker = await far_side.open()
        assert await publish(broker, [outgoing(0)]) == [None]
        await far_side.received(1)
        await far_side.go_away()
        results = await publish(broker, [outgoing(n, f"key {n % 3}") for n in range(1, 7)])
        assert all(isinstance(result, BrokerUnavailable) for result in results)
        await far_side.come_back()
        async with asyncio.timeout(BOUND_S):
            while await publish(broker, [outgoing(9, attempt=2)]) != [None]:
                pass
        assert "event-00009" in {message.event_id for message in await far_side.received(2)}
        await broker.close()

    async def test_closing_takes_no_time_even_while_away(self, far_side: FarSide) -> None:
        used, unused = await far_side.open(), await far_side.open()
        assert await publish(used, [outgoing(0)]) == [None]
        await far_side.go_away()
        started = time.monotonic()
        await used.close()
        await unused.close()
        assert time.monotonic() - started < CLOSE_S
