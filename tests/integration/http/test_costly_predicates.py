"""Predicates that take long: a search ends its page, and a server goes on answering and ends."""

import asyncio
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import httpx

from tape.settings import PredicateSettings, Settings
from tests.crash.predicate_attacks import ATTACKS, fill
from tests.integration.http.conftest import Serving, door
from tests.servers.tape_server import ServerProcess

MACROS = ATTACKS[0]
EVENTS = 4_000
READERS = 3
LOOKS = 15
HELD_UP_S = 30


async def test_a_search_ends_its_page_when_it_has_had_its_time(
    store_url: str, serving: Serving
) -> None:
    settings = Settings(predicates=PredicateSettings(request_s=0.3, share=1.0))
    async with door(serving, store_url, settings=settings) as client:
        # So many that no machine decides about all of them in that time.
        events = [{"event_type": "ord.inary"}] * EVENTS
        await client.post("/api/events/record", json={"events": events})
        page = (await client.get(MACROS.path)).json()
        assert page["events"] == []
        assert 0 < page["skipped"] < EVENTS
        assert page["before"] == EVENTS + 1 - page["skipped"]
        assert "the page ends early" in page["error"]
        assert f"before={page['before']}" in page["error"]
        assert "more work than one evaluation may" in page["error"]
        quick = (await client.get("/api/events/recent?limit=5&where=global_seq>3")).json()
        newest = [*range(EVENTS, EVENTS - 5, -1)]
        assert [event["global_seq"] for event in quick["events"]] == newest
        assert (quick["before"], quick["error"]) == (newest[-1], "")


async def test_only_what_costs_waits_for_what_costs(sqlite_url: str, serving: Serving) -> None:
    # A request that need not wait for credit has ten times as long, also on busy cores.
    settings = Settings(predicates=PredicateSettings(request_s=0.2, share=0.000_1))
    async with door(serving, sqlite_url, settings=settings) as client:
        events = [{"event_type": "ord.inary"}] * 60
        await client.post("/api/events/record", json={"events": events})
        for _ in range(2):  # from the first one on, predicates that cost would wait for minutes
            page = (await client.get(MACROS.path, timeout=60)).json()
            assert "the page ends early" in page["error"]
        for asked in ("", "&where=global_seq>3", "&where=kind=='event'%26%26subject!=''"):
            path = f"/api/events/recent?limit=5{asked}"
            listed = (await client.get(path, timeout=60)).json()
            assert [event["global_seq"] for event in listed["events"]] == [60, 59, 58, 57, 56]
            assert listed["error"] == ""


async def test_a_follower_goes_on_past_what_takes_too_long(
    sqlite_url: str, serving: Serving
) -> None:
    settings = Settings(predicates=PredicateSettings(share=1.0))
    async with door(serving, sqlite_url, settings=settings) as client:
        events = [{"event_type": "ord.inary"}] * 5 + [{"event_type": "wanted"}]
        await client.post("/api/events/record", json={"events": events})
        where = f"event_type == 'wanted' || {MACROS.where}"
        params: dict[str, str | int] = {"after": 0, "where": where}
        async with client.stream("GET", "/api/events/stream", params=params) as stream:
            async with asyncio.timeout(30):
                async for line in stream.aiter_lines():
                    if line.startswith("id:"):
                        assert line == "id: 6"
                        break


def _ask(http: str, enough: threading.Event) -> None:
    """Ask for what takes long, and leave in the middle of it, again and again."""
    while not enough.is_set():
        try:
            httpx.get(f"http://{http}{MACROS.path}", timeout=1.5)
        except httpx.ConnectError:
            return  # the server has ended
        except httpx.HTTPError:
            continue


def test_a_server_answers_and_ends_whatever_is_asked(sqlite_url: str) -> None:
    """Each of these searches kept a server from anything else for HELD_UP_S."""
    with (
        ServerProcess(sqlite_url) as server,
        ThreadPoolExecutor(READERS) as readers,
        ExitStack() as stack,
    ):
        fill(server.http, small=200, large=0)
        enough = threading.Event()
        stack.callback(enough.set)
        asked = [readers.submit(_ask, server.http, enough) for _ in range(READERS)]
        took_s = []
        with httpx.Client(base_url=f"http://{server.http}", timeout=30) as client:
            for _ in range(LOOKS):
                began = time.perf_counter()
                assert client.get("/healthz").status_code == 200
                event = {"event_type": "other"}
                client.post("/api/events/record", json=event).raise_for_status()
                took_s.append(time.perf_counter() - began)
        assert sorted(took_s)[LOOKS // 2] < HELD_UP_S / 10
        assert not any(search.done() for search in asked), "nothing was asked meanwhile"
        began = time.perf_counter()
        assert server._end(signal.SIGTERM) == 0
        assert time.perf_counter() - began < HELD_UP_S / 2
