"""Callers that ask and do not take their answers."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from tape.api.grpc.calls_in_hand import CallsInHand
from tape.api.grpc.health import WATCHERS_OF_A_HOST
from tape.api.grpc.server import DRAIN_S
from tape.errors import Overloaded
from tape.settings import MIB, DoorSettings, Settings
from tape.wire.v1 import tape_pb2 as pb
from tests.crash import raw_http2
from tests.integration.grpc.conftest import QUICK

TEXT = '"' + "x" * 100_000 + '"'
GET = pb.GetValueRequest(namespace="n", key="k")
WRITE = pb.WriteValueRequest(namespace="n", key="k", value_json=TEXT, if_version=-1)


def quick(**fields: Any) -> Settings:
    return replace(QUICK, doors=DoorSettings(**fields))


@asynccontextmanager
async def not_taking(
    address: str, method: str, *requests: Message, service: str = "tape.v1.Tape"
) -> AsyncIterator[None]:
    """A client that makes calls and whose window stays shut."""
    host, port = address.split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(raw_http2.shut_window())
        for number, request in enumerate(requests):
            writer.write(raw_http2.call(number, method, request, service))
        await writer.drain()
        yield
    finally:
        writer.close()


async def until_refused(call: Any, request: Message) -> grpc.aio.AioRpcError:
    async with asyncio.timeout(20):
        while True:
            try:
                await call(request)
            except grpc.aio.AioRpcError as error:
                return error


async def until_answered(call: Any, request: Message) -> Any:
    async with asyncio.timeout(20):
        while True:
            try:
                return await call(request)
            except grpc.aio.AioRpcError:
                continue


async def test_answers_that_nobody_takes_are_bounded(
    sqlite_url: str, serving: Any, dial: Any
) -> None:
    """Without tokens a client is an address, so another one here has no room either."""
    server = await serving(sqlite_url, settings=quick(unread_bytes=MIB, write_s=0.2))
    rpc = await dial(server.address)
    await rpc.WriteValue(WRITE)
    async with not_taking(server.address, "GetValue", *[GET] * 100):
        for call, request in ((rpc.GetValue, GET), (rpc.WriteValue, WRITE)):
            refused = await until_refused(call, request)
            assert refused.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert "has not read" in (refused.details() or "")
        await rpc.RecordEvents(pb.RecordEventsRequest(events=[pb.NewEvent(event_type="small")]))
    await until_answered(rpc.GetValue, GET)


async def test_a_burst_of_large_answers_is_taken_in_turns(
    sqlite_url: str, serving: Any, dial: Any
) -> None:
    server = await serving(sqlite_url, settings=quick(unread_bytes=3 * len(TEXT)))
    rpc = await dial(server.address)
    await rpc.WriteValue(WRITE)
    found = await asyncio.gather(*(rpc.GetValue(GET) for _ in range(50)))
    assert {each.value.value_json for each in found} == {TEXT}


@pytest.mark.parametrize("method", ["GetValue", "RecordEventStream"])
async def test_a_server_does_not_wait_for_callers_that_take_nothing(
    sqlite_url: str, serving: Any, dial: Any, method: str
) -> None:
    server = await serving(sqlite_url, settings=quick(unread_bytes=MIB, write_s=60))
    rpc = await dial(server.address)
    await rpc.WriteValue(WRITE)
    event = pb.NewEvent(event_type="a")
    request = pb.RecordEventsRequest(events=[event]) if method == "RecordEventStream" else GET
    async with not_taking(server.address, method, *[request] * 50):
        if method == "RecordEventStream":
            async with asyncio.timeout(20):
                while (await rpc.GetJournalInfo(pb.GetJournalInfoRequest())).head_global_seq < 51:
                    pass
        else:
            late = await until_refused(partial(rpc.GetValue, timeout=1), GET)  # it has no room
            assert late.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        began = time.monotonic()
        await server.stop()
        assert time.monotonic() - began < DRAIN_S / 2


async def test_a_watcher_of_health_that_takes_nothing_does_not_keep_a_server_from_stopping(
    sqlite_url: str, serving: Any, dial: Any
) -> None:
    server = await serving(sqlite_url)
    watch = health_pb2.HealthCheckRequest()
    stalled = not_taking(server.address, "Watch", watch, service=health.SERVICE_NAME)
    async with stalled, grpc.aio.insecure_channel(server.address) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        assert (await stub.Check(watch)).status == health_pb2.HealthCheckResponse.SERVING
        watching = stub.Watch(watch)
        await watching.read()
        began = time.monotonic()
        await server.stop()
        assert time.monotonic() - began < DRAIN_S / 2
        assert (await watching.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING


async def test_watchers_of_health_are_bounded(sqlite_url: str, serving: Any) -> None:
    """They keep a connection open for ever, and need no token."""
    server = await serving(sqlite_url)
    async with grpc.aio.insecure_channel(server.address) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        watch = health_pb2.HealthCheckRequest()
        watching = [stub.Watch(watch) for _ in range(WATCHERS_OF_A_HOST)]
        for each in watching:
            await each.read()
        refused = stub.Watch(watch)
        with pytest.raises(grpc.aio.AioRpcError):
            await refused.read()
        assert await refused.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        for each in watching:
            each.cancel()


async def test_grpc_connections_are_bounded(sqlite_url: str, serving: Any, dial: Any) -> None:
    server = await serving(sqlite_url, settings=quick(connections=5, header_s=60))
    rpc = await dial(server.address)
    await rpc.GetJournalInfo(pb.GetJournalInfoRequest())
    host, port = server.address.split(":")
    opened = [await asyncio.open_connection(host, int(port)) for _ in range(5)]
    async with asyncio.timeout(20):
        ends = [asyncio.ensure_future(_closed(reader)) for reader, _ in opened]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    await rpc.GetJournalInfo(pb.GetJournalInfoRequest())
    for _, writer in opened:
        writer.close()
    await asyncio.wait(ends)


async def _closed(reader: asyncio.StreamReader) -> None:
    with suppress(ConnectionResetError):
        while await reader.read(1_000):
            pass


async def test_calls_of_a_client_are_bounded(sqlite_url: str, serving: Any, dial: Any) -> None:
    server = await serving(sqlite_url, settings=quick(calls_per_client=2))
    rpc = await dial(server.address)
    await rpc.RegisterReaction(
        pb.Reaction(reaction_id="r", subject_pattern="/**", handler_kind=pb.HANDLER_KIND_TASK)
    )
    claim = pb.ClaimTasksRequest(owner="me", reaction_id="r", lease_ms=1_000, wait_ms=20_000)
    waiting = [asyncio.ensure_future(rpc.ClaimTasks(claim)) for _ in range(2)]
    refused = await until_refused(rpc.GetJournalInfo, pb.GetJournalInfoRequest())
    assert refused.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    for each in waiting:
        each.cancel()
    await until_answered(rpc.GetJournalInfo, pb.GetJournalInfoRequest())


async def test_requests_of_a_client_are_bounded_by_bytes() -> None:
    in_hand = CallsInHand(DoorSettings(body_bytes=1_000))
    with in_hand.holding("me", 2_000):  # one alone is judged by the limits of a request
        with pytest.raises(Overloaded), in_hand.holding("me", 1):
            pass
        with in_hand.holding("other", 1_000):
            pass
    with in_hand.holding("me", 500), in_hand.holding("me", 500):
        pass
