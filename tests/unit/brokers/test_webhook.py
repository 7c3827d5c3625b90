"""Webhooks: signed as Standard Webhooks says, answered as HTTP says."""

import asyncio
import json

import pytest

from tape.brokers.targets import WebhookTarget, parse_target
from tape.brokers.webhook import WebhookBroker, event_name
from tape.errors import BrokerError, BrokerRefused, BrokerUnavailable, InvalidArgument
from tape.ports.broker import Outgoing
from tests.conformance.broker import outgoing
from tests.servers.webhook import SECRET, Delivery, WebhookReceiver


def broker_for(target: str, secret: str = SECRET, answer_s: float = 5) -> WebhookBroker:
    parsed = parse_target(target)
    assert isinstance(parsed, WebhookTarget)
    return WebhookBroker(parsed, secret=secret, answer_s=answer_s)


async def send(broker: WebhookBroker, message: Outgoing) -> BrokerError | None:
    (result,) = await broker.publish([message])
    await broker.close()
    return result


@pytest.mark.parametrize("secret", ["", "short", "whsec_!!!", "whsec_c2hvcnQ=", "x" * 65])
def test_a_bad_secret_is_refused_and_not_repeated(secret: str) -> None:
    with pytest.raises(InvalidArgument) as refusal:
        broker_for("https://hooks.example/", secret)
    assert secret == "" or secret not in str(refusal.value)


def test_the_secret_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    target = parse_target("https://hooks.example/")
    assert isinstance(target, WebhookTarget)
    monkeypatch.setenv("TAPE_WEBHOOK_SECRET", SECRET)
    WebhookBroker(target)
    monkeypatch.delenv("TAPE_WEBHOOK_SECRET")
    with pytest.raises(InvalidArgument, match="TAPE_WEBHOOK_SECRET"):
        WebhookBroker(target)


async def test_what_is_sent() -> None:
    entry = outgoing(1).entry._replace(run_id="run/1", seq=7)
    message = Outgoing(entry, "a.b c", "run/1", 2)
    with WebhookReceiver() as receiver:
        assert await send(broker_for(receiver.target), message) is None
    (delivery,) = receiver.taken
    assert delivery.headers["content-type"] == "application/cloudevents+json; charset=UTF-8"
    assert delivery.headers["webhook-id"] == "a%2Eb%20c"
    assert delivery.headers["x-tape-event-id"] == "run%2F1/7"
    assert delivery.event["tapeattempt"] == 2
    assert delivery.event["data"] == json.loads(entry.payload_json)
    assert receiver.refused == []


def test_entries_outside_a_run_are_named_by_their_id() -> None:
    assert event_name(outgoing(1).entry) == "event-00001"


async def test_another_secret_is_a_forgery() -> None:
    with WebhookReceiver() as receiver:
        result = await send(broker_for(receiver.target, "another secret " * 3), outgoing(1))
    assert isinstance(result, BrokerRefused)
    assert receiver.refused == ["forged"]


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 599])
async def test_answers_that_ask_for_another_try(status: int) -> None:
    assert isinstance(await answered(status), BrokerUnavailable)


@pytest.mark.parametrize("status", [301, 307, 400, 401, 404, 410, 422])
async def test_answers_that_refuse(status: int) -> None:
    assert isinstance(await answered(status), BrokerRefused)


async def answered(status: int) -> BrokerError | None:
    with WebhookReceiver() as receiver:
        receiver.fail = lambda _delivery: status
        result = await send(broker_for(receiver.target), outgoing(1))
        assert receiver.taken == []
    assert f"answered {status}" in str(result)
    return result


async def test_a_hang_up_is_tried_again() -> None:
    with WebhookReceiver() as receiver:
        receiver.fail = lambda _delivery: 0
        assert isinstance(await send(broker_for(receiver.target), outgoing(1)), BrokerUnavailable)


async def test_no_answer_in_time() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        broker = broker_for(f"http://127.0.0.1:{port}/", answer_s=0.2)
        assert "TimeoutError" in str(await send(broker, outgoing(1)))


async def test_an_answer_without_end_is_cut_off() -> None:
    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        try:
            while True:
                writer.write(b"1000\r\n" + b"x" * 4096 + b"\r\n")
                await writer.drain()
        except ConnectionError:
            writer.close()

    async with await asyncio.start_server(endless, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        broker = broker_for(f"http://127.0.0.1:{port}/")
        assert await asyncio.wait_for(send(broker, outgoing(1)), 5) is None


async def test_a_poison_message_holds_up_its_key_alone() -> None:
    def fail(delivery: Delivery) -> int | None:
        return 500 if delivery.event["id"] == "event-00001" else None

    with WebhookReceiver() as receiver:
        receiver.fail = fail
        broker = broker_for(receiver.target)
        results = await broker.publish([outgoing(1, "a"), outgoing(2, "a"), outgoing(3, "b")])
        await broker.close()
    assert [type(result) for result in results] == [BrokerUnavailable] * 2 + [type(None)]
    assert [delivery.event["id"] for delivery in receiver.taken] == ["event-00003"]
