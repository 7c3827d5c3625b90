"""Two clients that count with compare-and-set lose no count, whatever they call themselves."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest

import tape
from tape.errors import OutcomeUnknown, VersionMismatch
from tape.wire.v1 import tape_pb2 as pb
from tests.integration.grpc.conftest import Serving

EACHES = pytest.mark.parametrize("each", [15, pytest.param(240, marks=pytest.mark.long)])
Put = Callable[[int, int], Awaitable[None]]
"""Set the value to the first number if it is at the version of the second."""


async def count(each: int, read: Callable[[], Awaitable[int]], put: Put) -> None:
    for _ in range(each):
        while True:
            now = await read()
            try:
                await put(now + 1, now)
            except VersionMismatch:
                continue
            break


async def counted(client: tape.AsyncTapeClient, *counters: Awaitable[None]) -> tuple[int, int]:
    await asyncio.gather(*counters)
    found = await client.get_value("desk", "count")
    assert found is not None
    return found.version, found.value


def by_client(each: int, client: tape.AsyncTapeClient, writer: str) -> Awaitable[None]:
    async def read() -> int:
        found = await client.get_value("desk", "count")
        return found.version if found else 0

    async def put(number: int, version: int) -> None:
        await client.set_value("desk", "count", number, if_version=version, writer=writer)

    return count(each, read, put)


def by_stub(each: int, stub: Any) -> Awaitable[None]:
    async def read() -> int:
        found = await stub.GetValue(pb.GetValueRequest(namespace="desk", key="count"))
        return int(found.value.version)

    async def put(number: int, version: int) -> None:
        request = pb.WriteValueRequest(
            namespace="desk", key="count", value_json=str(number), if_version=version
        )
        try:
            await stub.WriteValue(request)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.ABORTED:
                raise VersionMismatch from None
            raise

    return count(each, read, put)


@EACHES
@pytest.mark.parametrize("writer", ["", "desk"])
async def test_two_stores_in_process(store_url: str, writer: str, each: int) -> None:
    async with tape.connect_async(store_url) as one, tape.connect_async(store_url) as other:
        version = await counted(one, by_client(each, one, writer), by_client(each, other, writer))
    assert version == (2 * each, 2 * each)


@EACHES
@pytest.mark.parametrize("writer", ["", "desk"])
async def test_two_clients_of_a_server(
    store_url: str, serving: Serving, writer: str, each: int
) -> None:
    server = await serving(store_url)
    async with tape.connect_async(server.url) as one, tape.connect_async(server.url) as other:
        version = await counted(one, by_client(each, one, writer), by_client(each, other, writer))
    assert version == (2 * each, 2 * each)


@EACHES
async def test_stubs_that_name_nobody(
    store_url: str, serving: Serving, dial: Any, each: int
) -> None:
    server = await serving(store_url)
    stubs = [await dial(server.address) for _ in range(2)]
    async with tape.connect_async(server.url) as client:
        assert await counted(client, *(by_stub(each, stub) for stub in stubs)) == (
            2 * each,
            2 * each,
        )


class CutOff:
    """A WriteValue whose first answers do not arrive."""

    def __init__(self, rpc: Any, times: int) -> None:
        self._rpc = rpc
        self._times = times
        self.requests: list[pb.WriteValueRequest] = []

    async def __call__(self, request: pb.WriteValueRequest, **options: Any) -> pb.ValueRecord:
        self.requests.append(request)
        answer: pb.ValueRecord = await self._rpc(request, **options)
        if len(self.requests) <= self._times:
            raise grpc.aio.AioRpcError(
                grpc.StatusCode.UNAVAILABLE,
                grpc.aio.Metadata(),
                grpc.aio.Metadata(),
                "Socket closed",
            )
        return answer


async def test_a_cut_off_call_is_sent_again_with_its_id(
    sqlite_url: str, serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await serving(sqlite_url)
    async with tape.connect_async(server.url) as client:
        rpc = client._operations._rpc  # type: ignore[attr-defined]
        cut_off = CutOff(rpc.WriteValue, times=1)
        monkeypatch.setattr(rpc, "WriteValue", cut_off)
        written = await client.set_value("desk", "limit", 5, if_version=0)
        assert written.version == 1
        assert len({request.request_id for request in cut_off.requests}) == 1
        assert len(cut_off.requests) == 2

        # Its version was replaced by another before it was asked again: that is no mismatch.
        async def replaced(request: pb.WriteValueRequest, **options: Any) -> Any:
            if again:
                return await cut_off._rpc(request, **options)
            again.append(True)
            await cut_off._rpc(request, **options)
            await cut_off._rpc(
                pb.WriteValueRequest(namespace="desk", key="limit", value_json="7", if_version=-1),
                **options,
            )
            raise grpc.aio.AioRpcError(
                grpc.StatusCode.UNAVAILABLE,
                grpc.aio.Metadata(),
                grpc.aio.Metadata(),
                "Socket closed",
            )

        again: list[bool] = []
        monkeypatch.setattr(rpc, "WriteValue", replaced)
        with pytest.raises(OutcomeUnknown):
            await client.set_value("desk", "limit", 6, if_version=1)
