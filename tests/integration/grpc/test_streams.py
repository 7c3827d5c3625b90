"""Streams: what they cost a server, how they end, and what a quiet one says."""

import asyncio
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

import tape
from tape.api.auth import Tokens
from tape.api.grpc import streams
from tape.api.grpc.server import DRAIN_S, GrpcServer
from tape.bus import Bus, FollowQuery
from tape.journal.follow import Page
from tape.model.entry import Entry
from tape.model.value import Author
from tape.programs.connect import open_bus
from tape.settings import MIB, DoorSettings, Limits
from tape.wire.v1 import tape_pb2 as pb
from tape.wire.v1.tape_pb2_grpc import TapeStub
from tests.integration.grpc.conftest import QUICK
from tests.integration.grpc.running import begun

BY_SUBJECT = pb.SubscribeBySubjectRequest(subject_pattern="/**")
BY_BATCH = pb.FollowEntriesRequest(subject_pattern="/**")


class Watched:
    """Operations whose followers are counted, and what they have handed out."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.open = 0
        self.pages = 0
        self.moved = asyncio.Condition()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bus, name)

    async def follow(self, query: FollowQuery) -> AsyncGenerator[Page, None]:
        await self._move(open_by=1)
        following = self._bus.follow(query)
        try:
            async for page in following:
                self.pages += 1
                yield page
        finally:
            await following.aclose()
            await self._move(open_by=-1)

    async def _move(self, open_by: int) -> None:
        async with self.moved:
            self.open += open_by
            self.moved.notify_all()

    async def until_open(self, count: int) -> None:
        async with self.moved:
            await self.moved.wait_for(lambda: self.open == count)


@pytest.fixture
async def watched(sqlite_url: str) -> AsyncGenerator[Watched, None]:
    bus = await open_bus(sqlite_url)
    yield Watched(bus)
    await bus.close()


@pytest.fixture
async def server(watched: Watched) -> AsyncGenerator[GrpcServer, None]:
    server = GrpcServer(watched, Limits(), Tokens())
    yield server
    await server.stop()


async def record(watched: Watched, count: int, payload: str = "null") -> None:
    for _ in range(count // 1_000 or 1):
        event = tape.NewEvent("a", payload)
        await watched.record_events([event] * min(count, 1_000))


async def read_on(call: Any) -> None:
    async for _ in call:
        pass


async def settled(before: set[Any]) -> None:
    """Until the tasks are the ones there were, but for gRPC's own that accept calls."""
    while new := {
        task
        for task in asyncio.all_tasks() - before
        if not task.get_coro().__qualname__.startswith("AioServer.")  # type: ignore[union-attr]
    }:
        await asyncio.wait(new)


@pytest.mark.parametrize("by", ["SubscribeBySubject", "FollowEntries", "cut"])
async def test_cancelling_closes_the_follower(
    watched: Watched, server: GrpcServer, by: str
) -> None:
    await record(watched, 1)
    channel = grpc.aio.insecure_channel(await server.start("127.0.0.1:0"))
    stub: Any = TapeStub(channel)
    await stub.GetJournalInfo(pb.GetJournalInfoRequest())
    before = asyncio.all_tasks()
    call = (
        stub.FollowEntries(BY_BATCH)
        if by == "FollowEntries"
        else stub.SubscribeBySubject(BY_SUBJECT)
    )
    await call.read()
    assert watched.open == 1
    if by == "cut":
        await channel.close()
    else:
        call.cancel()
    await watched.until_open(0)
    await settled(before)
    await channel.close()


async def test_cancelling_a_reader_that_never_reads(watched: Watched, server: GrpcServer) -> None:
    """The follower then waits for flow control, not for entries. The channel's own window stays as
    small as it begins: by default it grows with what comes, and holds more than a server does."""
    await record(watched, 5_000, '"' + "x" * 1_000 + '"')
    address, fixed_window = await server.start("127.0.0.1:0"), [("grpc.http2.bdp_probe", 0)]
    async with grpc.aio.insecure_channel(address, options=fixed_window) as channel:
        stub: Any = TapeStub(channel)
        await stub.GetJournalInfo(pb.GetJournalInfoRequest())
        before = asyncio.all_tasks()
        call = stub.SubscribeBySubject(BY_SUBJECT)
        await call.read()
        for _ in range(100):
            await stub.GetJournalInfo(pb.GetJournalInfoRequest())
        assert watched.pages * DoorSettings().stream_bytes <= MIB
        call.cancel()
        await watched.until_open(0)
        await settled(before)


def counting(read: Any, sizes: list[int]) -> Any:
    """A store's read, and the bytes of the payloads that each call has brought."""

    async def read_and_count(*arguments: Any) -> Any:
        found = await read(*arguments)
        sizes.append(sum(len(entry.payload_json) for entry in found))
        return found

    return read_and_count


@pytest.mark.parametrize("what", ["run", "value"])
async def test_a_page_of_a_run_or_value_is_bounded_by_bytes(
    watched: Watched, server: GrpcServer, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    large = '"' + "x" * 100_000 + '"'
    address, fixed_window = await server.start("127.0.0.1:0"), [("grpc.http2.bdp_probe", 0)]
    async with grpc.aio.insecure_channel(address, options=fixed_window) as channel:
        stub: Any = TapeStub(channel)
        ask: Any
        if what == "run":
            run = (await begun(stub)).run
            ours = {"run_id": run.run_id, "fencing_token": run.fencing_token}
            events = [pb.NewEvent(event_type="a", payload_json=large, **ours)] * 20
            await stub.RecordEvents(pb.RecordEventsRequest(events=events))
            subscribe, ask = stub.SubscribeRun, pb.SubscribeRunRequest(run_id=run.run_id)
        else:
            for _ in range(10):
                await watched.values.write_value("n", "k", large, -1, Author())
            subscribe, ask = stub.WatchValue, pb.WatchValueRequest(namespace="n", key="k")
        sizes: list[int] = []
        name = "read_run" if what == "run" else "read_value_history"
        store = watched._bus._store
        monkeypatch.setattr(store, name, counting(getattr(store, name), sizes))
        call = subscribe(ask)
        await call.read()
        for _ in range(100):
            await stub.GetJournalInfo(pb.GetJournalInfoRequest())
        call.cancel()
    most = DoorSettings().stream_bytes + 3 * len(large)
    assert max(sizes) <= most
    assert sum(sizes) <= 2 * most  # a reader that does not read gets no further


async def test_shutting_down_sends_readers_away(watched: Watched, server: GrpcServer) -> None:
    await record(watched, 2_000, '"' + "x" * 1_000 + '"')
    async with grpc.aio.insecure_channel(await server.start("127.0.0.1:0")) as channel:
        stub: Any = TapeStub(channel)
        waiting = stub.FollowEntries(
            pb.FollowEntriesRequest(subject_pattern="/**", from_global_seq=2_000)
        )
        stuck = stub.SubscribeBySubject(BY_SUBJECT)
        await watched.until_open(2)
        await asyncio.wait_for(server.stop(), DRAIN_S / 2)
        for call in (waiting, stuck):
            with pytest.raises(grpc.aio.AioRpcError):
                await read_on(call)
            assert await call.code() == grpc.StatusCode.UNAVAILABLE
        assert watched.open == 0


async def test_a_quiet_stream_tells_its_cursor(
    watched: Watched, server: GrpcServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "QUIET_ENTRIES", 100)
    monkeypatch.setattr(streams, "QUIET_S", 0.2)
    request = pb.FollowEntriesRequest(
        subject_pattern="/tape/value/**", predicate_cel="payload.x > 1"
    )
    async with grpc.aio.insecure_channel(await server.start("127.0.0.1:0")) as channel:
        call: Any = TapeStub(channel).FollowEntries(request)
        await watched.until_open(1)
        await record(watched, 100)
        far = await call.read()
        assert (list(far.entries), far.cursor) == ([], 100)
        await record(watched, 1)
        late = await call.read()  # it comes although nothing happens after that one entry
        assert (list(late.entries), late.cursor) == ([], 101)
        await watched.values.write_value("n", "k", "1", -1, Author())
        undecided = await call.read()
        assert (undecided.cursor, undecided.skipped) == (102, 1)
        assert "entry 102" in undecided.last_error


def test_a_page_is_cut_into_messages_that_anyone_accepts() -> None:
    big = Entry(1, "", 0, "event", "/tape/event/recorded/a/_/_", '"' + "x" * 400_000 + '"', 1, "",
                "", "", 1, "e", "a", "", "", "", "", 1, "")  # fmt: skip
    entries = [big._replace(global_seq=n) for n in range(1, 6)]
    parts = list(streams._batches(Page(entries, 9, 2, "why")))
    assert [[e.global_seq for e in part.entries] for part in parts] == [[1], [2], [3], [4], [5]]
    assert [part.cursor for part in parts] == [1, 2, 3, 4, 9]
    assert [(part.skipped, part.last_error) for part in parts] == [(0, "")] * 4 + [(2, "why")]
    small = [e._replace(payload_json="1") for e in entries]
    assert len(list(streams._batches(Page(small, 9)))) == 1
    assert [part.cursor for part in streams._batches(Page([], 7))] == [7]


SERVE = """
import asyncio, sys
from tape.programs.serve import ServeOptions, serve
async def main():
    stop = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, stop.set)
    options = ServeOptions(sys.argv[1], "127.0.0.1:0")
    await serve(options, on_ready=lambda addresses: print(addresses.grpc, flush=True), stop=stop)
asyncio.run(main())
"""


def resident_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096 / 2**20


async def test_a_slow_reader_costs_a_server_bounded_memory(sqlite_url: str) -> None:
    bus = await open_bus(sqlite_url)
    for _ in range(50):
        await bus.record_events([tape.NewEvent("a", '"' + "x" * 2_000 + '"')] * 1_000)
    await bus.close()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SERVE, sqlite_url, stdin=PIPE, stdout=PIPE, stderr=PIPE
    )
    assert process.stdout is not None
    address = (await process.stdout.readline()).decode().strip()
    async with grpc.aio.insecure_channel(address) as channel:
        stub: Any = TapeStub(channel)
        await stub.GetJournalInfo(pb.GetJournalInfoRequest())
        before = resident_mib(process.pid)
        readers = [stub.SubscribeBySubject(BY_SUBJECT) for _ in range(4)]
        readers += [stub.FollowEntries(BY_BATCH) for _ in range(4)]
        for reader in readers:
            await reader.read()
        for _ in range(300):
            await stub.GetJournalInfo(pb.GetJournalInfoRequest())
        grown = resident_mib(process.pid) - before
        for reader in readers:
            reader.cancel()
    _, complaints = await process.communicate(b"stop\n")
    assert (process.returncode, complaints) == (0, b"")
    assert grown < 100  # eight readers of 100 MB each


async def test_a_reader_that_takes_nothing_is_sent_away(
    sqlite_url: str, serving: Any, dial: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Its page is let go of; when it reads on it is told to come back."""
    settings = replace(QUICK, doors=DoorSettings(write_s=0.2))
    rpc = await dial((await serving(sqlite_url, settings=settings)).address)
    large = pb.NewEvent(event_type="a", payload_json='"' + "x" * 900_000 + '"')
    for _ in range(8):
        await rpc.RecordEvents(pb.RecordEventsRequest(events=[large]))
    stalled = rpc.FollowEntries(pb.FollowEntriesRequest(subject_pattern="/**"))
    await stalled.read()
    async with asyncio.timeout(20):
        while "its client read nothing for 0.2 s" not in caplog.text:
            await rpc.GetJournalInfo(pb.GetJournalInfoRequest())
        with suppress(grpc.aio.AioRpcError):
            while await stalled.read():
                pass
        assert await stalled.code() is grpc.StatusCode.UNAVAILABLE


async def test_streams_of_a_client_are_bounded(sqlite_url: str, serving: Any, dial: Any) -> None:
    settings = replace(QUICK, doors=DoorSettings(streams_per_client=2))
    rpc = await dial((await serving(sqlite_url, settings=settings)).address)
    await rpc.RecordEvents(pb.RecordEventsRequest(events=[pb.NewEvent(event_type="a")]))
    ask = pb.SubscribeBySubjectRequest(subject_pattern="/**")
    streams = [rpc.SubscribeBySubject(ask) for _ in range(2)]
    for stream in streams:
        await stream.read()
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await rpc.SubscribeBySubject(ask).read()
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    streams[0].cancel()
    async with asyncio.timeout(10):
        while True:
            try:
                await rpc.SubscribeBySubject(ask).read()
                break
            except grpc.aio.AioRpcError:
                continue
