"""Lanes: one after the other within a key, side by side between keys, bounded in all."""

import asyncio
from collections import Counter

import pytest

from tape.brokers import in_order
from tape.brokers.in_order import one_by_one, publish_by_key
from tape.errors import BrokerRefused, BrokerUnavailable
from tape.ports.broker import Outgoing
from tests.conformance.broker import outgoing


async def test_one_message_of_a_key_at_a_time_and_a_bounded_number_in_all() -> None:
    busy: Counter[str] = Counter()
    most, sent = 0, list[str]()

    async def send(message: Outgoing) -> None:
        nonlocal most
        busy[message.ordering_key] += 1
        assert busy[message.ordering_key] == 1
        most = max(most, busy.total())
        await asyncio.sleep(0)
        sent.append(message.message_id)
        busy[message.ordering_key] -= 1

    messages = [outgoing(number, f"k{number % 10}") for number in range(100)]
    assert await publish_by_key(messages, one_by_one(send), in_flight=4) == [None] * 100
    assert most == 4
    for key in range(10):
        wanted = [message.message_id for message in messages[key::10]]
        assert [each for each in sent if each in wanted] == wanted


async def test_after_a_failure_the_rest_of_the_key_is_not_tried() -> None:
    tried: list[str] = []
    refusal = BrokerRefused("no")

    async def send(message: Outgoing) -> None:
        tried.append(message.message_id)
        if message.message_id == "event-00002":
            raise refusal

    messages = [outgoing(number, "ab"[number % 2]) for number in range(6)]
    results = await publish_by_key(messages, one_by_one(send), in_flight=8)
    assert results == [None, None, refusal, None, refusal, None]
    assert sorted(tried) == ["event-00000", "event-00001", "event-00002", "event-00003",
                             "event-00005"]  # fmt: skip


async def test_a_broker_that_is_too_slow_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_order, "PUBLISH_S", -1.0)
    sent: list[str] = []

    async def send(message: Outgoing) -> None:
        sent.append(message.message_id)

    by_key = await publish_by_key([outgoing(1)], one_by_one(send), in_flight=1)
    one_lane = await one_by_one(send)([outgoing(1), outgoing(2)])
    assert all(isinstance(result, BrokerUnavailable) for result in by_key + one_lane)
    assert sent == []


async def test_an_error_that_is_no_brokers_ends_the_others() -> None:
    started = asyncio.Event()
    ended: list[str] = []

    async def send(message: Outgoing) -> None:
        if message.ordering_key == "b":
            await started.wait()
            raise RuntimeError("a fault of ours")
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(message.ordering_key)

    messages = [outgoing(1, "a"), outgoing(2, "b")]
    with pytest.raises(RuntimeError, match="a fault of ours"):
        await publish_by_key(messages, one_by_one(send), in_flight=2)
    await asyncio.sleep(0)
    assert ended == ["a"]
