"""What a listener has in hand is bounded, in messages and in bytes."""

import asyncio

from tape.ports.source import ReceivedMessage
from tape.subscriptions.in_hand import InHand
from tests.unit.subscriptions.subscribed import message

MIB = 1 << 20


def received(number: int, size: int = 8) -> ReceivedMessage:
    return ReceivedMessage(message(number, b"x" * size), str(number))


async def test_no_more_is_fetched_than_may_be_in_hand() -> None:
    hand = InHand(5, 64 * MIB)
    assert hand.room(100) == 5
    hand.put([received(n) for n in range(3)])
    assert hand.room(100) == 2
    hand.put([received(n) for n in range(3, 5)])
    assert hand.room(100) == 0
    waiting = asyncio.create_task(hand.wait_for_room(100))
    taken = await hand.take(4, MIB)
    assert [each.receipt for each in taken] == ["0", "1", "2", "3"]
    await asyncio.sleep(0)
    assert not waiting.done()  # what is taken stays in hand
    hand.settle(taken)
    assert await waiting == 4


async def test_long_messages_are_fetched_a_few_at_a_time() -> None:
    hand = InHand(1_000, 8 * MIB)
    assert hand.room(100) == 100  # nothing is known of them
    hand.put([received(0, MIB)])
    assert 5 <= hand.room(100) <= 7
    hand.put([received(n, MIB) for n in range(1, 7)])
    assert hand.room(100) == 0
    hand.settle(await hand.take(7, 64 * MIB))
    assert 6 <= hand.room(100) <= 8


async def test_one_message_that_is_longer_than_all_may_be_is_taken() -> None:
    hand = InHand(10, MIB)
    hand.put([received(0, 4 * MIB), received(1)])
    assert hand.room(1) == 0
    taken = await hand.take(10, MIB)
    assert [each.receipt for each in taken] == ["0"]
    hand.settle(taken)
    hand.settle(await hand.take(10, MIB))
    assert hand.room(1) == 1


async def test_it_ends_once_all_is_taken() -> None:
    hand = InHand(10, MIB)
    hand.put([received(0)])
    hand.close()
    assert len(await hand.take(10, MIB)) == 1
    assert await hand.take(10, MIB) == []
