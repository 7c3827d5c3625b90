"""The operations at a server, made of the rows of the table of calls.

Readers of streams outlive their server: they wait for it to come back and go on from their cursor,
so nothing is skipped or repeated. A write is sent again only where its row says that a repeat does
no harm.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import aclosing
from functools import partial
from types import SimpleNamespace
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar, cast

from google.protobuf.message import Message

from tape.calls.call import ByFunction, Call, Noun, Pages, Repeat, StreamCall
from tape.calls.parameters import Parameters
from tape.calls.replies import ReplyCodec
from tape.client.representable import representable
from tape.client.resumed_stream import resumed_stream
from tape.client.retries import call_with_retries
from tape.client.server import Server
from tape.errors import NotFound
from tape.runs.operations import PAGE

N = TypeVar("N")
P = ParamSpec("P")
R = TypeVar("R")

Method = Callable[..., Any]
Mapped = ByFunction[...] | Parameters


class Sender(NamedTuple):
    """Sends requests, and sends them again as their rows allow."""

    server: Server
    retry_for_s: float

    async def send(self, name: str, request: Message, repeat: Repeat) -> Any:
        rpc = getattr(self.server.rpc, name)
        if repeat is Repeat.FREELY:
            return await self.server.call(rpc, request)
        if repeat is Repeat.NEVER:
            return await self.server.call(rpc, request, writes=True)
        return await call_with_retries(
            lambda: self.server.call(rpc, request, writes=True),
            self.retry_for_s,
            most_times=2 if repeat is Repeat.TWICE else 0,
        )


class HandWritten(NamedTuple):
    """A method of an operation that no row can make."""

    name: str
    method: Method


def by_hand(operation: Callable[Concatenate[Any, P], R], method: Callable[P, R]) -> HandWritten:
    return HandWritten(operation.__name__, method)


def remote(noun: Noun[N], sender: Sender, *written: HandWritten, **attributes: object) -> N:
    """The operations of a noun, each at the server. What is written by hand counts."""
    methods: dict[str, Method] = {}
    for row in noun.rows:
        if isinstance(row, Call) and row.request is not None and row.reply is not None:
            methods[row.method] = _calling(sender, row, row.request, row.reply)
        elif isinstance(row, StreamCall):
            methods[row.method] = _following(sender.server, row)
    methods |= {each.name: each.method for each in written}
    return cast("N", SimpleNamespace(**methods, **attributes))


def _calling(
    sender: Sender, row: Call[Any, ..., Any], mapping: Mapped, reply: ReplyCodec[Any]
) -> Callable[..., Coroutine[Any, Any, Any]]:
    async def call(*args: Any, **kwargs: Any) -> Any:
        if row.empty_if is not None and row.empty_if(*args, **kwargs):
            return []
        with representable():
            request: Any = mapping.to_wire(*args, **kwargs)
        if row.pages is not None:
            send = partial(sender.send, row.name, request, row.repeat)
            return await _all_pages(send, request, row.pages, reply)
        try:
            answer = await sender.send(row.name, request, row.may_repeat(*args, **kwargs))
        except NotFound:
            if row.none_if_missing:
                return None
            raise
        return reply.from_wire(answer)

    return call


async def _all_pages(
    send: Callable[[], Awaitable[Any]], request: Any, pages: Pages, reply: ReplyCodec[list[Any]]
) -> list[Any]:
    """An answer holds no more than a message does, so the rest is asked for."""
    after, key, limited = pages
    most = (min(request.limit, PAGE) if request.limit > 0 else PAGE) if limited else 0
    found: list[Any] = []
    while True:
        if limited:
            request.limit = most - len(found)
        answer = await send()
        found += reply.from_wire(answer)
        if not answer.more:
            return found
        setattr(request, after, key(found[-1]))


def _following(
    server: Server, row: StreamCall[Any, ..., Any]
) -> Callable[..., AsyncGenerator[Any, None]]:
    field, place_of = row.cursor

    async def follow(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
        with representable():
            request = row.request.to_wire(*args, **kwargs)
        rpc = getattr(server.rpc, row.name)
        async with aclosing(resumed_stream(server, rpc, request)) as messages:
            async for message in messages:
                setattr(request, field, place_of(message))
                yield row.item(message, request)
                if row.is_last is not None and row.is_last(message, request):
                    return

    return follow
