"""Live tails: nothing missing and nothing twice, also across a restart of the server."""

import asyncio
import time
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

import tape
from tape.errors import StoreUnavailable
from tape.journal.retention import Bound, plan_prune, prune
from tape.settings import Settings
from tape.stores.by_url import open_store
from tests.integration.http.conftest import Serving, door
from tests.integration.http.following import events
from tests.servers.tape_server import ServerProcess

PATH = "/api/events/stream"


async def record(client: httpx.AsyncClient, *types: str, **fields: Any) -> None:
    body = {"events": [{"event_type": name, **fields} for name in types]}
    (await client.post("/api/events/record", json=body)).raise_for_status()


async def take(address: str, path: str, count: int, last_event_id: str = "") -> list[Any]:
    """So many events with data."""
    found = []
    async with aclosing(events(address, path, last_event_id)) as stream, asyncio.timeout(20):
        async for sent in stream:
            if sent.data is not None:
                assert sent.id == str(sent.data["global_seq"])
                found.append(sent.data)
            if len(found) == count:
                break
    return found


async def test_where_a_stream_begins(store_url: str, serving: Serving) -> None:
    async with door(serving, store_url) as client:
        address = client.base_url.netloc.decode()
        await record(client, "a", "b", "c")

        async def types(path: str, count: int, last_event_id: str = "") -> list[str]:
            return [one["event_type"] for one in await take(address, path, count, last_event_id)]

        assert await types(f"{PATH}?after=0", 3) == ["a", "b", "c"]
        assert await types(f"{PATH}?after=1", 2) == ["b", "c"]
        assert await types(f"{PATH}?after=0", 1, "2") == ["c"]
        async with aclosing(events(address, PATH)) as stream:
            await anext(stream)  # it says how soon to come back: it follows the head now
            await record(client, "d")
            assert (await anext(stream)).data["event_type"] == "d"


async def test_filters_of_a_stream(sqlite_url: str, serving: Serving) -> None:
    async with door(serving, sqlite_url) as client:
        address = client.base_url.netloc.decode()
        for number in range(5):
            await record(client, "x.a", "x.b", "y.a", entity_id=str(number), payload={"n": number})
        everything = await take(address, f"{PATH}?after=0", 15)
        for query, wanted in (
            ("event_type=x.*", lambda e: e["event_type"].startswith("x.")),
            ("event_type=y.a&entity_id=3", lambda e: e["global_seq"] == 12),
            ("subject=/tape/event/recorded/x.b/**", lambda e: e["event_type"] == "x.b"),
            ("where=payload.n%3E3", lambda e: e["payload"]["n"] > 3),
        ):
            expected = list(filter(wanted, everything))
            assert await take(address, f"{PATH}?after=0&{query}", len(expected)) == expected


async def test_what_a_stream_refuses(sqlite_url: str, serving: Serving) -> None:
    async with door(serving, sqlite_url) as client:
        for path, header, field in (
            (f"{PATH}?after=9", "", "after"),
            (f"{PATH}?after=-1", "", "after"),
            (PATH, "nonsense", "last-event-id"),
            (PATH, "99999", "after"),
            (f"{PATH}?subject=nonsense", "", "subject"),
            (f"{PATH}?where=1%2B", "", "where"),
            (f"{PATH}?event_type=%5B*", "", "event_type"),
            (f"{PATH}?unknown=1", "", "unknown"),
        ):
            headers = {"last-event-id": header} if header else {}
            refused = await client.get(path, headers=headers)
            assert refused.status_code == 400, path
            assert refused.json()["error"]["field"] == field


@pytest.mark.middle
async def test_readers_that_stop_reading_cost_little_and_hold_up_no_end(sqlite_url: str) -> None:
    with ServerProcess(sqlite_url) as server:
        async with tape.connect_async(sqlite_url) as client:
            for _ in range(40):
                await client.record_many([tape.event("large", "x" * 100_000)] * 10)
        first = await take(server.http, f"{PATH}?after=0", 400)
        before = server.resident_bytes()
        async with AsyncExitStack() as stalled:
            for _ in range(20):
                stream = await stalled.enter_async_context(
                    aclosing(events(server.http, f"{PATH}?after=0"))
                )
                await anext(stream)
            assert await take(server.http, f"{PATH}?after=0", 400) == first
            assert server.resident_bytes() - before < 300_000_000
            begun = time.monotonic()
            assert await asyncio.to_thread(server.stop) == 0
            assert time.monotonic() - begun < 15


async def test_what_has_been_pruned_is_gone_and_no_gap(store_url: str, serving: Serving) -> None:
    async with door(serving, store_url) as client:
        await record(client, *("a" for _ in range(20)))
        store = await open_store(store_url, Settings())
        try:
            await prune(store, await plan_prune(store, 0, [Bound("this test", 10)]))
        finally:
            await store.close()
        for path in (f"{PATH}?after=5", PATH):
            headers = {"last-event-id": "5"} if path == PATH else {}
            gone = await client.get(path, headers=headers)
            assert (gone.status_code, gone.json()["error"]["reason"]) == (410, "PRUNED")
        kept = await take(client.base_url.netloc.decode(), f"{PATH}?after=10", 10)
        assert [one["global_seq"] for one in kept] == list(range(11, 21))
        oldest = await take(client.base_url.netloc.decode(), f"{PATH}?after=0", 10)
        assert oldest == kept
        assert (await client.get("/api/events/5")).status_code == 404
        recent = (await client.get("/api/events/recent")).json()
        assert (len(recent["events"]), recent["before"]) == (10, None)


async def test_a_payload_with_line_ends_is_one_event(sqlite_url: str, serving: Serving) -> None:
    async with door(serving, sqlite_url) as client:
        text = '{"event_type": "a", "payload": {"text": "1\\n2\\r\\u2028",\r\n\n "more": 1}}'
        headers = {"content-type": "application/json"}
        await client.post("/api/events/record", content=text, headers=headers)
        grpc = tape.event("b")._replace(payload_json='{\r\n\n"id": 1}')
        async with tape.connect_async(sqlite_url) as other:
            await other.record_many([grpc])
        found = await take(client.base_url.netloc.decode(), f"{PATH}?after=0", 2)
        assert found[0]["payload"] == {"text": "1\n2\r\u2028", "more": 1}
        assert found[1]["payload"] == {"id": 1}


async def test_a_quiet_stream_is_alive_and_brings_its_cursor_on(
    sqlite_url: str, serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tape.api.http.stream.HEARTBEAT_S", 0.05)
    async with door(serving, sqlite_url) as client:
        address = client.base_url.netloc.decode()
        path = f"{PATH}?event_type=nothing"
        async with aclosing(events(address, path)) as stream, asyncio.timeout(20):
            await anext(stream)
            await record(client, "a", "b")
            async for sent in stream:
                assert sent.data is None
                if sent.id == "2":
                    break


@dataclass
class Follower:
    """Comes back with the last id it has seen, as a browser does."""

    address: str
    last_id: str
    seen: list[int] = field(default_factory=list)
    connections: int = 0
    moved: asyncio.Event = field(default_factory=asyncio.Event)

    async def follow(self, until: "asyncio.Future[int]") -> None:
        while not (until.done() and self.seen and self.seen[-1] >= until.result()):
            try:
                async with aclosing(events(self.address, PATH, self.last_id)) as stream:
                    self.connections += 1
                    async for sent in stream:
                        self.last_id = sent.id
                        if sent.data is not None:
                            self.seen.append(sent.data["global_seq"])
                            self.moved.set()
                        if until.done() and self.seen and self.seen[-1] >= until.result():
                            return
            except (OSError, asyncio.IncompleteReadError):
                pass
            await asyncio.sleep(0.05)


async def produce(store_url: str, stop: asyncio.Event) -> int:
    """Record, in this process, while the server is there and while it is not; the last number."""
    last = 0
    async with tape.connect_async(store_url) as client:
        while not stop.is_set():
            try:
                recorded = await client.record_many([tape.event("tick", {"n": last})] * 5)
            except StoreUnavailable:
                continue
            last = recorded[-1].global_seq
            await asyncio.sleep(0.02)
    return last


async def restart_under_followers(store_url: str, followers: int, restarts: int) -> None:
    with ServerProcess(store_url) as server:
        end: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        stop = asyncio.Event()
        tails = [Follower(server.http, "0") for _ in range(followers)]
        following = asyncio.gather(*(tail.follow(end) for tail in tails))
        producing = asyncio.create_task(produce(store_url, stop))
        for number in range(restarts):
            await _all(tails, connections=number + 1)
            await (asyncio.to_thread(server.kill) if number % 2 else asyncio.to_thread(server.stop))
            await asyncio.to_thread(server.start)
        await _all(tails, connections=restarts + 1)
        stop.set()
        last = await producing
        end.set_result(last)
        async with tape.connect_async(store_url) as client:
            await client.record("the end")
        await following
        for tail in tails:
            assert tail.seen[:last] == list(range(1, last + 1))


async def _all(tails: list[Follower], connections: int) -> None:
    """Everybody is connected for so many times, and has seen something new since."""

    async def moves(tail: Follower) -> None:
        while tail.connections < connections:
            tail.moved.clear()
            await tail.moved.wait()
        tail.moved.clear()
        await tail.moved.wait()

    await asyncio.gather(*map(moves, tails))


@pytest.mark.parametrize("count", [20, pytest.param(200, marks=pytest.mark.middle)])
async def test_clients_miss_nothing_across_a_restart(sqlite_url: str, count: int) -> None:
    async with asyncio.timeout(100):
        await restart_under_followers(sqlite_url, count, 1)


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_200_clients_miss_nothing_across_many_restarts(store_url: str) -> None:
    await restart_under_followers(store_url, 200, 10)


async def test_streams_end_with_their_server(sqlite_url: str) -> None:
    with ServerProcess(sqlite_url) as server:
        async with aclosing(events(server.http, PATH)) as stream, asyncio.timeout(20):
            await anext(stream)
            stopping = asyncio.create_task(asyncio.to_thread(server.stop))
            async for _ in stream:
                pass
            assert await stopping == 0


@pytest.mark.long
async def test_a_reader_goes_on_at_another_server(postgres_url: str) -> None:
    with ServerProcess(postgres_url) as one, ServerProcess(postgres_url) as other:
        async with httpx.AsyncClient(base_url=f"http://{one.http}", timeout=60) as client:
            await record(client, "a", "b", "c")
            first = await take(one.http, f"{PATH}?after=0", 3)
            seen = [event["global_seq"] for event in first]
            for turn in range(20):
                await record(client, "d")
                address, last = (one, other)[turn % 2].http, str(seen[-1])
                seen += [event["global_seq"] for event in await take(address, PATH, 1, last)]
            assert seen == list(range(1, 24))
