"""Streams that outlive their server: their readers wait for it and go on from their cursors."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from tape.client.retries import pauses
from tape.client.server import Server
from tape.errors import StoreUnavailable
from tape.telemetry.retrying import Retrying
from tape.wire.v1 import tape_pb2 as pb

A = TypeVar("A")

log = logging.getLogger("tape.client")


async def resumed_stream(
    server: Server, rpc: grpc.aio.UnaryStreamMultiCallable[Any, A], request: Message
) -> AsyncGenerator[A, None]:
    """Messages for ever. When the server is back it is asked anew: the caller moves the cursor of
    its request as it reads.
    """
    waits = pauses()
    retrying = Retrying(log, "following")
    is_away = False
    while True:
        try:
            if is_away:  # a stream without messages would not tell that the server is back
                await server.call(server.rpc.GetJournalInfo, pb.GetJournalInfoRequest())
                retrying.succeeded()
            async with aclosing(server.stream(rpc, request)) as messages:
                async for message in messages:
                    waits = pauses()
                    yield message
        except StoreUnavailable as error:
            is_away = True
            retrying.failed(error)
        await asyncio.sleep(next(waits))
