"""The connection to a server: one call, one stream, and what to make of either failing."""

import asyncio
import os
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from typing import TypeVar

import grpc

from tape.client.address import Address
from tape.errors import Closed, InvalidArgument, OutcomeUnknown, StoreUnavailable, TapeError
from tape.wire.channel import CALLS_AT_ONCE, CLIENT_OPTIONS
from tape.wire.errors import from_rpc_error, is_ours
from tape.wire.v1.tape_pb2_grpc import TapeStub

Q = TypeVar("Q")
A = TypeVar("A")

# What gRPC says when there was no connection to send on, or the server took no notice (HTTP/2's
# REFUSED_STREAM).
_NEVER_DONE = (
    "failed to connect to all addresses",
    "DNS resolution failed",
    "Received RST_STREAM with error code 7",
)

# gRPC's threads are not there in a forked child; it would abort the process there.
_PID = os.getpid()


class Server:
    def __init__(self, address: Address, token: str) -> None:
        if os.getpid() != _PID:
            raise Closed("gRPC does not survive a fork: start the child with spawn instead")
        if not (token.isascii() and token.isprintable()):
            raise InvalidArgument("is not printable ASCII", field="token")
        self.address = address
        self._channel = address.channel(CLIENT_OPTIONS)
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self._closed = asyncio.Event()
        self._turns = asyncio.Semaphore(CALLS_AT_ONCE)
        self.rpc = TapeStub(self._channel)

    async def call(
        self, rpc: grpc.aio.UnaryUnaryMultiCallable[Q, A], request: Q, *, writes: bool = False
    ) -> A:
        """The answer, or the error an embedded caller would get.

        A call that `writes` and was cut off may have been done, unless it surely was not.
        """
        async with self._turns:
            with self._open():
                try:
                    return await rpc(request, metadata=self._metadata)
                except grpc.aio.AioRpcError as failed:
                    raise _error_of(failed, writes=writes) from None

    async def stream(
        self, rpc: grpc.aio.UnaryStreamMultiCallable[Q, A], request: Q
    ) -> AsyncGenerator[A, None]:
        """The messages. StoreUnavailable means: ask again."""
        with self._open():
            call = rpc(request, metadata=self._metadata)
            try:
                async for message in call:
                    yield message
            except grpc.aio.AioRpcError as failed:
                raise _error_of(failed, writes=False) from None
            finally:
                call.cancel()

    async def close(self) -> None:
        self._closed.set()
        await self._channel.close()

    @contextmanager
    def _open(self) -> Iterator[None]:
        """Closing cancels what is under way: that is no cancellation of the caller's task."""
        if self._closed.is_set():
            raise Closed
        try:
            yield
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._closed.is_set() and not (task and task.cancelling()):
                raise Closed from None
            raise


def _error_of(failed: grpc.aio.AioRpcError, *, writes: bool) -> TapeError:
    error = from_rpc_error(failed)
    if isinstance(error, Closed):  # the server's own end, not this client's
        return StoreUnavailable(f"{error}; nothing of this request was written")
    if not writes or is_ours(failed) or type(error) is not StoreUnavailable:
        return error
    said = failed.details() or ""
    if any(text in said for text in _NEVER_DONE):
        return error
    return OutcomeUnknown(
        f"the connection was lost during the call, which the server may have executed: {said}"
    )
