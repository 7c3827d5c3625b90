"""Somebody who sends orders by NATS, and knows nothing of Tape.

It sends an order again until the stream has it. Each has an id of its own, so the stream keeps one.
"""

import asyncio
import contextlib
import json
import secrets
from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple

import nats
from nats.errors import Error as NatsError
from nats.js.api import AckPolicy, ConsumerConfig, StreamConfig

STREAM, CONSUMER, SUBJECT = "ORDERS", "orders-listener", "orders.placed"
IN_FLIGHT = 32
ANSWER_S = 1.0
PAUSE_S = 0.05
ACK_WAIT_S = 1.0  # so soon NATS delivers again what it knows of no acknowledgement of
EVERY_URGENT = 10
NOT_ON_THE_LIST = 7  # the number of an order that asks for an app that nobody allows


class Order(NamedTuple):
    number: int
    trace_id: str

    @property
    def is_urgent(self) -> bool:
        return self.number % EVERY_URGENT == 0

    @property
    def headers(self) -> dict[str, str]:
        said = {
            "Nats-Msg-Id": f"order-{self.number}",
            "traceparent": f"00-{self.trace_id}-{secrets.token_hex(8)}-01",
        }
        if self.is_urgent:
            said |= {"X-Route": "place_urgent_order", "X-Priority": "urgent"}
        if self.number == NOT_ON_THE_LIST:
            said["X-Route"] = "pay_everybody"
        return said


def orders(count: int) -> list[Order]:
    return [Order(number, secrets.token_hex(16)) for number in range(1, count + 1)]


class Sender:
    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._stream = connection.jetstream(timeout=ANSWER_S)
        self.sent = 0

    async def make_stream(self) -> None:
        """The stream and the durable consumer, as whoever runs NATS makes them."""
        await self._stream.add_stream(StreamConfig(name=STREAM, subjects=[SUBJECT]))
        durable = ConsumerConfig(
            durable_name=CONSUMER,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=ACK_WAIT_S,
            max_deliver=-1,
        )
        await self._stream.add_consumer(STREAM, durable)

    async def send(self, wanted: Sequence[Order]) -> None:
        """Return once the stream has them all."""
        left = iter(wanted)

        async def send_next() -> None:
            for order in left:
                await self._send(order)

        await asyncio.gather(*(send_next() for _ in range(IN_FLIGHT)))

    async def await_acknowledged(self) -> None:
        """Wait until NATS has nothing left that it would deliver."""
        while True:
            with contextlib.suppress(NatsError, TimeoutError):
                consumer = await self._stream.consumer_info(STREAM, CONSUMER)
                if not (consumer.num_pending or consumer.num_ack_pending):
                    return
            await asyncio.sleep(PAUSE_S)

    async def _send(self, order: Order) -> None:
        body = json.dumps({"number": order.number, "cents": 100 * order.number}).encode()
        while True:
            try:
                await self._stream.publish(SUBJECT, body, headers=order.headers)
            except (NatsError, OSError, TimeoutError):
                await asyncio.sleep(PAUSE_S)
            else:
                break
        self.sent += 1


@contextlib.asynccontextmanager
async def sending(address: str, user: str, password: str) -> AsyncIterator[Sender]:
    connection = await nats.connect(
        f"nats://{address}", user=user, password=password,
        reconnect_time_wait=0.1, max_reconnect_attempts=-1, error_cb=_pass_over,
    )  # fmt: skip
    try:
        yield Sender(connection)
    finally:
        await connection.close()


async def _pass_over(_error: Exception) -> None:
    """That the server is away is a part of the tour, and told there."""
