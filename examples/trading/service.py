"""What the services share: a database, a bus, and messages that are handled once."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import asyncpg

import tape
from tape.consumers import Consumer, Message, consume
from tape.settings import ConsumerSettings

STREAM = "gordon-bus"

Connection = Any
"""A connection of asyncpg that is in a transaction."""


class Desk(NamedTuple):
    """Where the services meet."""

    pool: "asyncpg.Pool[Any]"
    nats_url: str
    stop: asyncio.Event


Handler = Callable[[Connection, Message], Awaitable[None]]


async def serve(
    desk: Desk, durable: str, subject: str, handler: Handler, *, in_order: bool = False
) -> None:
    """Handle what comes on a subject, each message in one transaction and once."""

    async def handle(message: Message) -> None:
        async with new_message(desk, durable, message.message_id) as connection:
            if connection is not None:
                await handler(connection, message)

    consumer = Consumer(
        desk.nats_url,
        stream=STREAM,
        durable=durable,
        subject=subject,
        in_order=in_order,
        settings=ConsumerSettings(fetch=20),
    )
    await consume(consumer, handle, stop=desk.stop)


@asynccontextmanager
async def new_message(
    desk: Desk, durable: str, message_id: str
) -> AsyncIterator[Connection | None]:
    """A transaction in which a message counts as handled; None if it was handled before."""
    async with desk.pool.acquire() as connection, connection.transaction():
        is_new = await tape.processed_within(connection, durable, message_id)
        yield connection if is_new else None


async def tell(connection: Connection, what: str) -> None:
    """Wake whoever watches the tables; what is told is in them."""
    await connection.execute("SELECT pg_notify('bot_events', $1)", what)
