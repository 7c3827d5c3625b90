"""Recording by stream: in order, several in flight, each answered once durable."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from tape.api.auth import Tokens
from tape.api.grpc import record_stream
from tape.api.grpc.server import GrpcServer
from tape.model.event import NewEvent, Recorded
from tape.settings import Limits
from tape.wire.v1 import tape_pb2 as pb


def batch(*kinds: str) -> pb.RecordEventsRequest:
    return pb.RecordEventsRequest(events=[pb.NewEvent(event_type=kind) for kind in kinds])


async def test_batches_are_answered_in_order(rpc: Any) -> None:
    async def batches() -> AsyncIterator[pb.RecordEventsRequest]:
        for i in range(200):
            yield batch(*["a"] * (i % 5))

    call = rpc.RecordEventStream(batches())
    answers = [[result.global_seq for result in answer.results] async for answer in call]
    assert [len(answer) for answer in answers] == [i % 5 for i in range(200)]
    assert [seq for answer in answers for seq in answer] == list(range(1, 401))


async def test_a_refusal_ends_the_stream_after_what_came_before(rpc: Any) -> None:
    call = rpc.RecordEventStream()
    await call.write(batch("a"))
    await call.write(batch("b", ""))
    assert len((await call.read()).results) == 1
    with pytest.raises(grpc.aio.AioRpcError, match=r"events\[1\]\.event_type"):
        await call.read()
    assert await call.code() == grpc.StatusCode.INVALID_ARGUMENT


class Held:
    """Operations that record when they are told to."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.arrived = asyncio.Condition()
        self.released = asyncio.Event()

    async def record_events(self, events: list[NewEvent]) -> list[Recorded]:
        async with self.arrived:
            self.started += [event.event_type for event in events]
            self.arrived.notify_all()
        await self.released.wait()
        return [Recorded(event.event_type, 1, 0, False) for event in events]

    async def until_started(self, count: int) -> None:
        async with self.arrived:
            await self.arrived.wait_for(lambda: len(self.started) >= count)


async def serve_held(dial: Any) -> tuple[Held, GrpcServer, Any]:
    held = Held()
    server = GrpcServer(held, Limits(), Tokens())  # type: ignore[arg-type]
    address = await server.start("127.0.0.1:0")
    return held, server, (await dial(address)).RecordEventStream()


async def test_what_is_in_flight_is_bounded(dial: Any) -> None:
    held, server, call = await serve_held(dial)
    count = 3 * record_stream.IN_FLIGHT
    writing = asyncio.create_task(write_all(call, count))
    await held.until_started(record_stream.IN_FLIGHT)
    assert len(held.started) == record_stream.IN_FLIGHT
    held.released.set()
    answers = [answer.results[0].event_id async for answer in call]
    await writing
    assert answers == [str(i) for i in range(count)] == held.started
    await server.stop()


async def test_shutting_down_answers_what_was_taken(dial: Any) -> None:
    held, server, call = await serve_held(dial)
    await call.write(batch("a"))
    await call.write(batch("b"))
    await held.until_started(2)
    stopping = asyncio.create_task(server.stop())
    held.released.set()
    assert [(await call.read()).results[0].event_id for _ in range(2)] == ["a", "b"]
    with pytest.raises(grpc.aio.AioRpcError, match="shutting down"):
        await call.read()
    assert await call.code() == grpc.StatusCode.UNAVAILABLE
    await stopping


async def write_all(call: Any, count: int) -> None:
    for i in range(count):
        await call.write(batch(str(i)))
    await call.done_writing()
