"""A durable consumer of a JetStream stream as the server describes it: found, never made.

A stream that is deleted and made again counts its messages from 1 again. So a place has the time at
which the stream was made, and what makes this stream and this consumer themselves is compared
whenever a message does not follow the one before it (`follows`).
"""

from datetime import datetime
from typing import Any, NamedTuple

from tape.brokers.jetstream import (
    NO_CONSUMER,
    NO_STREAM,
    NS,
    JetStreamError,
    call_jetstream,
)
from tape.brokers.nats_connection import NatsConnection
from tape.errors import BrokerUnavailable, SourceRefused
from tape.model.message import nats_origin

_NO_JETSTREAM = (10039, 10076)
_DEFAULT_ACK_WAIT_S = 30.0


class BoundDurable(NamedTuple):
    """`identity` is when the stream and the consumer were made. The limits of one pull are 0 where
    the consumer sets none. `delivered` is the number of its last delivery."""

    stream: str
    durable: str
    identity: tuple[str, str]
    origin: str
    ack_wait_s: float
    most_messages: int
    most_bytes: int
    most_wait_s: float
    delivered: int
    warnings: tuple[str, ...]


class ConsumerState(NamedTuple):
    """`waiting` were never delivered, `in_hand` were and are not acknowledged. `passed` is the
    sequence up to which everything is acknowledged."""

    waiting: int
    in_hand: int
    passed: int


async def find_durable(connection: NatsConnection, stream: str, durable: str) -> BoundDurable:
    """SourceRefused if it is not there, or cannot be one whose messages are acknowledged."""
    while True:
        consumer = await _consumer_info(connection, stream, durable)
        made = await _stream_made(connection, stream)
        if (await _consumer_info(connection, stream, durable))["created"] == consumer["created"]:
            return _bound(stream, durable, made, consumer)


async def consumer_state(connection: NatsConnection, stream: str, durable: str) -> ConsumerState:
    info = await _consumer_info(connection, stream, durable)
    return ConsumerState(
        info.get("num_pending", 0), info.get("num_ack_pending", 0), info["ack_floor"]["stream_seq"]
    )


def _bound(stream: str, durable: str, made: str, consumer: dict[str, Any]) -> BoundDurable:
    config = consumer["config"]
    _refuse_unusable(stream, durable, config)
    waits = [config.get("ack_wait", 0), *(config.get("backoff") or [])]
    return BoundDurable(
        stream,
        durable,
        (made, consumer["created"]),
        nats_origin(stream, int(datetime.fromisoformat(made).timestamp() * 1000)),
        min((wait / NS for wait in waits if wait > 0), default=_DEFAULT_ACK_WAIT_S),
        max(config.get("max_batch", 0), 0),
        max(config.get("max_bytes", 0), 0),
        max(config.get("max_expires", 0), 0) / NS,
        consumer["delivered"]["consumer_seq"],
        tuple(_warnings(durable, config)),
    )


def _refuse_unusable(stream: str, durable: str, config: dict[str, Any]) -> None:
    if config.get("deliver_subject"):
        raise SourceRefused(
            f"consumer: {durable} of the stream {stream} is a push consumer; name a pull consumer"
        )
    policy = config.get("ack_policy", "none")
    if policy != "explicit":
        raise SourceRefused(
            f"consumer: {durable} of the stream {stream} has the ack policy {policy}, with which "
            "messages could be lost; name a consumer whose ack policy is explicit"
        )


def _warnings(durable: str, config: dict[str, Any]) -> list[str]:
    found = []
    if (most := config.get("max_deliver", -1)) > 0:
        found.append(
            f"the consumer {durable} has max_deliver {most}: a message that was delivered so often "
            "and not acknowledged does not come again, and is lost; set it to -1"
        )
    if config.get("headers_only"):
        found.append(f"the consumer {durable} has headers_only: the bodies of messages are empty")
    return found


async def _consumer_info(connection: NatsConnection, stream: str, durable: str) -> dict[str, Any]:
    return await _ask(connection, f"CONSUMER.INFO.{stream}.{durable}", stream, durable)


async def _stream_made(connection: NatsConnection, stream: str) -> str:
    return str((await _ask(connection, f"STREAM.INFO.{stream}", stream, ""))["created"])


async def _ask(
    connection: NatsConnection, method: str, stream: str, durable: str
) -> dict[str, Any]:
    try:
        return await call_jetstream(connection, method)
    except JetStreamError as error:
        if error.code == NO_STREAM:
            raise SourceRefused(f"stream: there is no stream {stream}") from None
        if error.code == NO_CONSUMER:
            raise SourceRefused(
                f"consumer: the stream {stream} has no consumer {durable}; make a durable pull "
                "consumer of that name"
            ) from None
        raise BrokerUnavailable(f"JetStream: {error}") from None
    except BrokerUnavailable as away:
        told = away.__cause__
        if isinstance(told, JetStreamError) and told.code in _NO_JETSTREAM:
            raise SourceRefused(
                f"auth: the account of this login has no JetStream ({told})"
            ) from None
        raise
