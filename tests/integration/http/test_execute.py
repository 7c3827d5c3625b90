"""Runs that are begun within somebody's trace, and once for each key."""

import asyncio
from typing import Any

import httpx
import orjson
import pytest

from tests.integration.http.conftest import Serving, door

TRACE_ID, SPAN_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACE = {
    "traceparent": f"00-{TRACE_ID}-{SPAN_ID}-01",
    "tracestate": "vendor=1, other=2",
    "baggage": "tenant=acme;p=1",
}


async def run(http: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    answer = await http.post("/api/execute", json={"workflow_type": "route", **fields})
    assert answer.status_code == 200, answer.text
    said: dict[str, Any] = answer.json()
    return said


async def entries(http: httpx.AsyncClient, **filters: str) -> list[dict[str, Any]]:
    found = (await http.get("/api/events/recent", params=filters)).json()["events"]
    return list(reversed(found))


async def test_a_run_joins_the_trace_that_is_given(store_url: str, serving: Serving) -> None:
    async with door(serving, store_url) as http:
        begun = await run(http, trace=TRACE)
        (entry,) = await entries(http, run_id=begun["run_id"])
        assert (entry["trace_id"], entry["parent_span_id"]) == (TRACE_ID, SPAN_ID)
        assert entry["payload"]["trace"] == {
            "traceparent": TRACE["traceparent"],
            "tracestate": "vendor=1,other=2",
            "baggage": "tenant=acme",
        }
        cancelled = await http.post(f"/api/runs/{begun['run_id']}/cancel", json={"reason": "no"})
        assert cancelled.status_code == 200
        later = (await entries(http, run_id=begun["run_id"]))[1:]
        assert {entry["trace_id"] for entry in later} == {TRACE_ID}
        plain = await run(http)
        (entry,) = await entries(http, run_id=plain["run_id"])
        assert "trace" not in entry["payload"]


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"trace": {"traceparent": "no"}}, "trace.traceparent"),
        ({"trace": {}}, "trace.traceparent"),
        ({"trace": {**TRACE, "tracestate": "novalue"}}, "trace.tracestate"),
        ({"trace": {**TRACE, "baggage": "a b=1"}}, "trace.baggage"),
        ({"trace": {**TRACE, "more": ""}}, "trace.more"),
        ({"trace": "00"}, "trace"),
        ({"dedup": {"window_secs": 60}}, "dedup.key"),
        ({"dedup": {"key": "", "window_secs": 60}}, "dedup.key"),
        ({"dedup": {"key": "a\0", "window_secs": 60}}, "dedup.key"),
        ({"dedup": {"key": "k" * 513, "window_secs": 60}}, "dedup.key"),
        ({"dedup": {"key": "k"}}, "dedup.window_secs"),
        ({"dedup": {"key": "k", "window_secs": 0}}, "dedup.window_secs"),
        ({"dedup": {"key": "k", "window_secs": 31 * 86_400 + 1}}, "dedup.window_secs"),
    ],
)
async def test_what_is_refused_begins_nothing(
    sqlite_url: str, serving: Serving, given: dict[str, Any], field: str
) -> None:
    async with door(serving, sqlite_url) as http:
        good, bad = {"workflow_type": "route"}, {"workflow_type": "route", **given}
        refused = await http.post("/api/execute", json=bad)
        assert refused.status_code == (413 if "k" * 513 in str(given) else 400)
        assert refused.json()["error"]["field"] == field
        batch = await http.post("/api/execute/batch", json={"items": [good, bad, good]})
        results = batch.json()["results"]
        assert [result["error"] and result["error"]["field"] for result in results] == [
            None, field, None,
        ]  # fmt: skip
        assert len((await http.get("/api/runs")).json()["runs"]) == 2


async def test_a_key_begins_one_run_however_many_ask(store_url: str, serving: Serving) -> None:
    async with door(serving, store_url) as http:
        dedup = {"key": "order/7 é", "window_secs": 60}
        answers = await asyncio.gather(*(run(http, input=n, dedup=dedup) for n in range(12)))
        assert len({answer["run_id"] for answer in answers}) == 1
        fresh = [answer for answer in answers if not answer["resumed"]]
        assert [answer["duplicate"] for answer in fresh] == [False]
        assert sum(answer["duplicate"] for answer in answers) == 11
        told = await entries(http, subject="/tape/subscription/run_deduplicated/**")
        assert len(told) == 11
        assert {entry["subject"] for entry in told} == {
            "/tape/subscription/run_deduplicated/execute%2Froute"
        }
        assert {entry["payload"]["run_id"] for entry in told} == {fresh[0]["run_id"]}
        assert {entry["payload"]["key"] for entry in told} == {"order/7 é"}
        for changed in (
            {"dedup": {**dedup, "key": "other"}},
            {"workflow_type": "x", "dedup": dedup},
        ):
            assert not (await run(http, **changed))["resumed"]


async def test_in_a_batch_each_item_has_its_own(sqlite_url: str, serving: Serving) -> None:
    async with door(serving, sqlite_url) as http:
        dedup = {"key": "k", "window_secs": 60}
        items: list[Any] = [
            {"workflow_type": "a", "dedup": dedup, "trace": TRACE},
            {"workflow_type": "a", "dedup": dedup},
            {"workflow_type": "b", "dedup": {"key": "k", "window_secs": "60"}},
            {"workflow_type": "a", "invocation_id": "named", "dedup": {**dedup, "key": "other"}},
            {"workflow_type": "a"},
        ]
        first = (await http.post("/api/execute/batch", json={"items": items})).json()["results"]
        again = (await http.post("/api/execute/batch", json={"items": items})).json()["results"]
        assert [r["result"] and r["result"]["duplicate"] for r in first] == [
            False, True, None, False, False,
        ]  # fmt: skip
        assert first[2]["error"]["field"] == "dedup.window_secs"
        assert first[0]["result"]["run_id"] == first[1]["result"]["run_id"]
        told = [r["result"] and (r["result"]["resumed"], r["result"]["duplicate"]) for r in again]
        assert told == [(True, True), (True, True), None, (True, False), (False, False)]


async def test_a_run_of_that_name_counts_more_than_a_key(sqlite_url: str, serving: Serving) -> None:
    async with door(serving, sqlite_url) as http:
        dedup = {"key": "k", "window_secs": 60}
        first = await run(http, invocation_id="a", dedup=dedup)
        assert (await run(http, invocation_id="b", dedup=dedup))["run_id"] == first["run_id"]
        other = await run(http, invocation_id="c", dedup={**dedup, "key": "other"})
        again = await run(http, invocation_id="c", dedup=dedup)
        assert (again["run_id"], again["duplicate"]) == (other["run_id"], False)


async def test_a_duplicate_waits_for_the_run_that_it_found(
    sqlite_url: str, serving: Serving
) -> None:
    async with door(serving, sqlite_url) as http:
        dedup = {"key": "k", "window_secs": 60}
        first = await run(http, dedup=dedup)
        cancelled = await http.post(f"/api/runs/{first['run_id']}/cancel", json={"reason": "no"})
        assert cancelled.json()["status"] == "cancelled"
        again = await run(http, dedup=dedup, wait_s=30)
        assert (again["status"], again["duplicate"]) == ("cancelled", True)
        assert orjson.dumps(again["error"]).startswith(b"{")
