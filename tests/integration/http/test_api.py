"""What each noun of the HTTP door takes and answers, and what it refuses."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx

from tape.settings import Limits, Settings
from tests.integration.http.conftest import TOKENS, Serving, door
from tests.integration.http.some_of_everything import TRACE, fill


async def test_an_event_is_recorded_and_found(store_url: str, serving: Serving) -> None:
    async with door(serving, store_url) as client:
        event = {
            "event_type": "order.placed", "payload": {"n": [1, 2.5, "ä", None]},
            "entity_type": "order", "entity_id": "7", "idempotency_key": "k",
            "caused_by": "me", "source": "test", "occurred_at_ms": 5, "schema_version": 3,
        }  # fmt: skip
        first = (await client.post("/api/events/record", json=event)).json()
        again = (await client.post("/api/events/record", json=event)).json()
        assert again == {**first, "duplicate": True}
        found = (await client.get(f"/api/events/{first['global_seq']}")).json()
        assert {name: found[name] for name in event} == event
        assert found["event_id"] == first["event_id"]
        many = {"events": [{"event_type": "a"}, {"event_type": "b"}]}
        results = (await client.post("/api/events/record", json=many)).json()["results"]
        assert [result["global_seq"] for result in results] == [2, 3]


async def test_a_refused_event_refuses_its_request(sqlite_url: str, serving: Serving) -> None:
    async with door(serving, sqlite_url) as client:
        deep: Any = None
        for _ in range(100):
            deep = [deep]
        for event, status, field in (
            ({"event_type": ""}, 400, "events[1].event_type"),
            ({"event_type": "a\0"}, 400, "event_type"),
            ({"event_type": "a", "more": 1}, 400, "events[1].more"),
            ({"event_type": "a", "schema_version": 0}, 400, "events[1].schema_version"),
            ({"event_type": "a", "payload": deep}, 413, "payload"),
            ({"event_type": "a" * 600}, 413, "event_type"),
        ):
            body = {"events": [{"event_type": "good"}, event]}
            refused = await client.post("/api/events/record", json=body)
            assert refused.status_code == status
            error = refused.json()["error"]
            assert error["field"] == field
            assert "events[1]" in error["message"]
        assert (await client.get("/api/events/recent")).json()["events"] == []


async def test_what_is_not_json(sqlite_url: str, serving: Serving) -> None:
    async with door(serving, sqlite_url) as client:
        for text in ("NaN", "[Infinity]", '{"a":', "1e999", '"\\ud800"', "[" * 5000):
            refused = await client.post(
                "/api/events/record",
                content=f'{{"event_type": "a", "payload": {text}}}',
                headers={"content-type": "application/json"},
            )
            assert refused.status_code == 400, text
            assert refused.json()["error"]["reason"] == "INVALID_ARGUMENT"


async def test_100_producers_retry_one_key(sqlite_url: str, serving: Serving) -> None:
    async with door(serving, sqlite_url) as client:
        event = {"event_type": "paid", "idempotency_key": "invoice-1"}

        async def produce(number: int) -> list[dict[str, Any]]:
            body = {**event, "payload": number}
            return [(await client.post("/api/events/record", json=body)).json() for _ in range(3)]

        told = [one for each in await asyncio.gather(*map(produce, range(100))) for one in each]
        assert len({answer["event_id"] for answer in told}) == 1
        assert sum(not answer["duplicate"] for answer in told) == 1
        assert len((await client.get("/api/events/recent")).json()["events"]) == 1


async def test_only_json_from_here(sqlite_url: str, serving: Serving) -> None:
    async with door(serving, sqlite_url) as client:
        for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
            headers = {"content-type": kind} if kind else {}
            refused = await client.post(
                "/api/events/record", content=b'{"event_type": "a"}', headers=headers
            )
            assert refused.status_code == 415
        for host in ("evil.example", "evil.example:7879", "127.0.0.1.evil.example", "localhost.x"):
            refused = await client.get("/api/events/recent", headers={"host": host})
            assert refused.status_code == 421
            assert refused.json()["error"]["reason"] == "MISDIRECTED_REQUEST"
        for host in ("localhost", "LOCALHOST:1", "[::1]:80", "127.0.0.1:9"):
            assert (await client.get("/healthz", headers={"host": host})).status_code == 200
        preflight = await client.options(
            "/api/events/record",
            headers={"origin": "https://evil.example", "access-control-request-method": "POST"},
        )
        assert preflight.status_code == 405
        assert not [name for name in preflight.headers if name.startswith("access-control")]


async def test_a_body_of_which_nothing_is_needed_may_be_left_out(
    sqlite_url: str, serving: Serving
) -> None:
    async with door(serving, sqlite_url) as client:
        unknown = await client.post("/api/events/drain")
        assert (unknown.status_code, unknown.json()["error"]["reason"]) == (404, "NOT_FOUND")
        new = {"event_type_glob": "a.*", "workflow_type": "app"}
        await client.put("/api/event-subscriptions/s", json=new)
        assert (await client.post("/api/events/drain")).json()["processed"] == 0
        typed = await client.post("/api/events/drain", headers={"content-type": "application/json"})
        assert typed.status_code == 200
        for path in ("drainers/x/resume", "runs/x/resume", "runs/x/cancel"):
            assert (await client.post(f"/api/{path}")).status_code == 404
        foreign = {"origin": "https://evil.example"}
        for headers in (foreign, foreign | {"content-type": "text/plain"}):
            refused = await client.post("/api/events/drain", headers=headers)
            assert refused.status_code == 415
        assert (await client.post("/api/events/drain", content=b"{}")).status_code == 415
        assert (await client.post("/api/drainers/x/skip")).status_code == 415


async def test_a_host_is_free_where_there_are_tokens(sqlite_url: str, serving: Serving) -> None:
    async with door(serving, sqlite_url, tokens=TOKENS) as client:
        headers = {"host": "tape.example", "authorization": "Bearer reader-token"}
        assert (await client.get("/api/runs", headers=headers)).status_code == 200


async def test_a_body_is_read_up_to_the_limit(sqlite_url: str, serving: Serving) -> None:
    limits = replace(Limits(), request_bytes=1_000)
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while sent < 50_000_000:
            sent += 10_000
            yield b" " * 10_000

    async with door(serving, sqlite_url, settings=Settings(limits=limits)) as client:
        headers = {"content-type": "application/json"}
        whole = await client.post("/api/events/record", content=b" " * 1_001, headers=headers)
        assert whole.status_code == 413
        assert whole.json()["error"]["reason"] == "TOO_LARGE"
        try:
            chunked = await client.post("/api/events/record", content=endless(), headers=headers)
            assert chunked.status_code == 413
        except httpx.NetworkError:  # the answer came and the connection was closed
            pass
        assert sent < 50_000_000


async def test_roles_are_asked_for_before_a_body_is_read(sqlite_url: str, serving: Serving) -> None:
    async with door(serving, sqlite_url, tokens=TOKENS) as client:
        for path, body, role in (
            ("/api/events/record", b"{", "writer"),
            ("/api/tasks/drop", b"{", "admin"),
            ("/api/drainers/x/skip", b"{", "admin"),
            ("/api/execute", b"{", "writer"),
        ):
            for token in ("", "reader", "writer", "admin"):
                answer = await client.post(
                    path,
                    content=body,
                    headers={
                        "content-type": "application/json",
                        "authorization": f"Bearer {token}-token",
                    },
                )
                order = ["", "reader", "writer", "admin"]
                allowed = order.index(token) >= order.index(role)
                assert answer.status_code == (400 if allowed else 403 if token else 401)


async def test_recent_pages_and_filters(store_url: str, serving: Serving) -> None:
    addresses = await serving(store_url)
    await fill(addresses)
    async with httpx.AsyncClient(base_url=f"http://{addresses.http}", timeout=60) as client:

        async def recent(**params: Any) -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = []
            before: int | None = 0
            while before is not None:
                asked = await client.get("/api/events/recent", params={**params, "before": before})
                page = asked.json()
                found += page["events"]
                before = page["before"]
            return found

        everything = await recent(limit=2)
        numbers = [event["global_seq"] for event in everything]
        assert numbers == list(range(len(numbers), 0, -1))
        (placed,) = (e["event_id"] for e in everything if e["event_type"] == "order.placed")
        for params, wanted in (
            ({"event_type": "order.filled"}, {"order.filled"}),
            ({"event_type": "*ed", "limit": 1}, {"order.placed", "order.routed", "order.filled"}),
            ({"entity_type": "order", "entity_id": "7"}, {"order.placed", "order.filled"}),
            ({"trace_id": TRACE, "where": "kind == 'event' && payload != null"}, {"order.placed"}),
            ({"subject": "/tape/event/recorded/order.routed/**"}, {"order.routed"}),
            ({"subject": "/tape/value/*/*/0"}, {""}),
            ({"event_type": "nothing"}, set()),
            ({"source": "router"}, {"order.routed"}),
            ({"caused_by": placed}, {"order.routed"}),
            ({"where": f"source == 'router' && caused_by == '{placed}'"}, {"order.routed"}),
            ({"where": "entity_type == 'order' && idempotency_key == 'fill-7'"}, {"order.filled"}),
        ):  # fmt: skip
            assert {event["event_type"] for event in await recent(**params)} == wanted
        asked = await client.get("/api/events/recent", params={"where": "payload.order == 7"})
        page = asked.json()
        assert [event["event_type"] for event in page["events"]] == ["order.placed"]
        assert page["skipped"] > 0
        assert "entry" in page["error"]


async def test_a_chain_of_causes(sqlite_url: str, serving: Serving) -> None:
    async with door(serving, sqlite_url) as client:
        cause, told = "", []
        for name in ("first", "second", "third"):
            event = {"event_type": name, "caused_by": cause, "trace_id": TRACE}
            told.append((await client.post("/api/events/record", json=event)).json())
            cause = told[-1]["event_id"]
        await client.post("/api/events/record", json={"event_type": "other", "trace_id": TRACE})
        chain = (await client.get("/api/events/2/chain")).json()
        names = {
            part: [event["event_type"] for event in chain[part]]
            for part in ("causes", "effects", "trace")
        }
        assert chain["event"]["event_type"] == "second"
        assert names == {
            "causes": ["first"],
            "effects": ["third"],
            "trace": ["first", "second", "third", "other"],
        }
        assert chain["complete"]
        last = (await client.get("/api/events/3/chain")).json()
        assert [event["event_type"] for event in last["causes"]] == ["second", "first"]


async def test_values(sqlite_url: str, serving: Serving) -> None:
    async with door(serving, sqlite_url) as client:
        path = "/api/values/n%2Fs/a%2Fb%25"
        assert (await client.get(path)).status_code == 404
        made = await client.put(path, json={"value": {"limit": 5}, "if_version": 0, "writer": "me"})
        assert made.json()["version"] == 1
        assert made.json()["key"] == "a/b%"
        stale = await client.put(path, json={"value": 1, "if_version": 0})
        assert (stale.status_code, stale.json()["error"]["reason"]) == (409, "VERSION_MISMATCH")
        assert (await client.get(path)).json()["value"] == {"limit": 5}
        await client.put("/api/values/n%2Fs/c", json={"value": None})
        first = (await client.get("/api/values/n%2Fs", params={"limit": 1})).json()
        rest = (await client.get("/api/values/n%2Fs", params={"after": first["after"]})).json()
        assert [v["key"] for v in first["values"] + rest["values"]] == ["a/b%", "c"]
        assert rest["after"] is None
        named = (await client.get("/api/values")).json()
        assert named == {"namespaces": ["n/s"], "after": None}
        assert (await client.delete(path)).json() == {"deleted": True, "version": 2}
        assert (await client.delete(path)).json()["deleted"] is False
        assert (await client.get(path)).status_code == 404
