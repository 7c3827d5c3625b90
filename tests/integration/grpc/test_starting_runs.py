"""Runs that a client starts once for each key, and in the trace of somebody, through every kind of
URL."""

import asyncio
from typing import Any

import pytest

import tape
from tape.errors import InvalidArgument
from tape.model.begin_once import MOST_WINDOW_MS
from tape.runs.declare import Apps
from tape.runs.driving.context import Context

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
CONTEXT = {
    "traceparent": f"00-{TRACE_ID}-00f067aa0ba902b7-01",
    "tracestate": "acme=7",
    "baggage": "tenant=3",
}


async def test_an_app_is_run_once_for_each_key(url: str) -> None:
    async with tape.connect_async(url) as client:
        asked = [client.start_run("pay", n, dedup=("order-7", 60)) for n in range(5)]
        (run_id,) = {run.run_id for run in await asyncio.gather(*asked)}
        other = await client.start_run("pay", 1, dedup=("order-8", 60.5))
        assert other.run_id != run_id
        named = await client.start_run("pay", 1, invocation_id="mine", dedup=("order-7", 60))
        assert named.run_id == run_id
        assert len(await client.list_runs(app_name="pay")) == 2


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"dedup": ("", 60)}, "dedup"),
        ({"dedup": ("k", 0)}, "dedup"),
        ({"dedup": ("k", MOST_WINDOW_MS)}, "dedup"),
        ({"trace": {"traceparent": "mine"}}, "trace.traceparent"),
        ({"trace": {"baggage": "a=1"}}, "trace.baggage"),
        ({"trace": {"traceparent": CONTEXT["traceparent"], "span": "1"}}, "trace.span"),
    ],
)
async def test_what_is_refused(sqlite_url: str, options: dict[str, Any], field: str) -> None:
    async with tape.connect_async(sqlite_url) as client:
        with pytest.raises(InvalidArgument) as refused:
            await client.start_run("pay", **options)
        assert refused.value.field == field
        assert await client.list_runs() == []


async def test_a_run_joins_the_trace_that_is_stated(url: str) -> None:
    apps = Apps()

    @tape.app("keep", registry=apps)
    async def keep(ctx: Context) -> int:
        return 1

    async with tape.connect_async(url) as client:
        started = await client.start_run("keep", trace=CONTEXT)
        keyed = await client.start_run("keep", trace=CONTEXT, dedup=("k", 60))
        assert await client.run(keep, invocation_id="here", trace=CONTEXT) == 1
        (here,) = [run for run in await client.list_runs() if run.invocation_id == "here"]
        for run in (started, keyed, here):
            entries = await client.read_run(run.run_id)
            assert {entry.trace_id for entry in entries} == {TRACE_ID}
            assert entries[0].payload["trace"] == CONTEXT
