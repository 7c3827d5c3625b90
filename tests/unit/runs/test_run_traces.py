"""Everything of a run is in the trace that began it, with an SDK and without, driven by anybody."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import tape
from tape.bus import FollowQuery
from tape.model.entry import Entry
from tape.model.run import RunStatus
from tape.runs.declare import App, Apps
from tape.runs.driving.context import Context
from tape.runs.driving.sync_context import SyncContext
from tape.telemetry import tracing
from tape.testing.runs import AppKit, app_kit

REMOTE = trace.SpanContext(
    0x0AF7651916CD43DD8448EB211C80319C, 0x00F067AA0BA902B7, is_remote=True,
    trace_flags=trace.TraceFlags(trace.TraceFlags.SAMPLED),
)  # fmt: skip
TRACE_ID = "0af7651916cd43dd8448eb211c80319c"


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "TRACER", provider.get_tracer("tape"))
    yield exporter
    provider.shutdown()


def shopping(apps: Apps, *, on_the_loop: bool) -> App[Any]:
    @tape.app("child", registry=apps)
    async def child(ctx: Context) -> int:
        return 1

    @tape.effect(registry=apps)
    def charge(cents: int) -> int:
        return cents

    @tape.effect(registry=apps, dispatch="outbox")
    async def ship(what: str) -> str:
        return what

    if on_the_loop:

        @tape.app("shop", registry=apps)
        async def shop(ctx: Context) -> Any:
            tape.now()
            await ctx.call(charge, 5)
            await ctx.call(ship, "box")
            await ctx.record("paid")
            await ctx.set_value("desk", "paid", 1)
            await ctx.delete_value("desk", "paid")
            await ctx.gate("go")
            return await ctx.result(await ctx.start(child))

    else:

        @tape.app("shop", registry=apps)
        def shop(ctx: SyncContext) -> Any:
            tape.now()
            charge(5)
            ctx.call(ship, "box")
            ctx.record("paid")
            ctx.set_value("desk", "paid", 1)
            ctx.delete_value("desk", "paid")
            ctx.gate("go")
            return ctx.result(ctx.start(child))

    return shop


async def driven(kit: AppKit, app: App[Any]) -> list[Entry]:
    """All entries of a store in which one run was started in a trace, and driven twice."""
    with trace.use_span(trace.NonRecordingSpan(REMOTE)):
        run = await kit.start_run(app)
    await kit.settle(run.run_id)
    await kit.send_signal(run.run_id, "go")
    ended = await kit.settle(run.run_id)
    assert ended is not None
    assert ended.status == RunStatus.TERMINAL
    return await every_entry(kit)


async def every_entry(kit: AppKit) -> list[Entry]:
    return (await anext(kit._operations.follow(FollowQuery()))).entries


@pytest.mark.parametrize("on_the_loop", [True, False])
async def test_every_entry_is_in_the_trace_and_below_what_began_the_run(
    tmp_path: Path, spans: InMemorySpanExporter, on_the_loop: bool
) -> None:
    apps = Apps()
    async with app_kit(tmp_path, apps=apps) as kit:
        entries = await driven(kit, shopping(apps, on_the_loop=on_the_loop))
    assert {entry.trace_id for entry in entries} == {TRACE_ID}
    assert all(entry.span_id or entry.parent_span_id for entry in entries)
    kinds = {entry.subject.split("/")[2] for entry in entries}
    assert kinds == {"run", "decision", "effect", "event", "value", "gate"}
    by_id = {_span_id(span): span for span in spans.get_finished_spans()}
    names = {span.name for span in by_id.values()}
    assert names >= {
        "start_run shop", "run shop", "effect charge", "record paid", "set_value desk",
        "delete_value desk", "start_run child", "run child",
    }  # fmt: skip

    def parent(name: str) -> str:
        found = next(span for span in by_id.values() if span.name == name)
        assert found.parent is not None
        above = by_id.get(trace.format_span_id(found.parent.span_id))
        return above.name if above else "outside"

    assert parent("start_run shop") == "outside"
    assert parent("run shop") == "start_run shop"
    assert parent("effect charge") == parent("record paid") == "run shop"
    assert parent("start_run child") == "run shop"
    assert parent("run child") == "start_run child"
    drives = [span for span in by_id.values() if span.name == "run shop"]
    assert len(drives) > 1
    assert len({span.parent.span_id for span in drives if span.parent}) == 1
    paid = next(entry for entry in entries if entry.event_type == "paid")
    assert by_id[paid.span_id].name == "record paid"
    pending = next(e for e in entries if e.subject.startswith("/tape/effect/pending/charge"))
    assert by_id[pending.span_id].name in ("run shop", "start_run shop")


async def test_without_an_sdk_the_trace_goes_on_all_the_same(tmp_path: Path) -> None:
    apps = Apps()
    async with app_kit(tmp_path, apps=apps) as kit:
        entries = await driven(kit, shopping(apps, on_the_loop=True))
    assert {entry.trace_id for entry in entries} == {TRACE_ID}


async def test_without_an_sdk_what_the_reactors_call_is_in_the_trace(tmp_path: Path) -> None:
    apps, seen = Apps(), dict[str, str]()

    def note(what: str) -> None:
        seen[what] = trace.format_trace_id(trace.get_current_span().get_span_context().trace_id)

    def unship(response: str) -> None:
        note("compensator")

    @tape.effect(registry=apps, dispatch="outbox", compensate=unship)
    async def ship(what: str) -> str:
        note("effect")
        return what

    @tape.app("ships", registry=apps)
    async def ships(ctx: Context) -> None:
        await ctx.call(ship, "box")
        raise ValueError("broken")

    async with app_kit(tmp_path, apps=apps) as kit:
        with trace.use_span(trace.NonRecordingSpan(REMOTE)):
            run = await kit.start_run(ships)
        await kit.settle(run.run_id)
    assert seen == {"effect": TRACE_ID, "compensator": TRACE_ID}


async def test_a_run_that_nobody_traced_carries_nothing(tmp_path: Path) -> None:
    apps = Apps()
    app = shopping(apps, on_the_loop=True)
    async with app_kit(tmp_path, apps=apps) as kit:
        run = await kit.start_run(app)
        await kit.settle(run.run_id)
        entries = await every_entry(kit)
    assert {(entry.trace_id, entry.span_id) for entry in entries} == {("", "")}


async def test_a_run_in_the_callers_process_too(
    tmp_path: Path, spans: InMemorySpanExporter
) -> None:
    apps = Apps()

    @tape.app("small", registry=apps)
    async def small(ctx: Context) -> int:
        await ctx.record("paid")
        return 1

    async with tape.connect_async(f"sqlite:{tmp_path}/tape.db") as client:
        with trace.use_span(trace.NonRecordingSpan(REMOTE)):
            assert await client.run(small) == 1
        entries = [entry async for entry in client.follow(live=False)]
    assert {entry.trace_id for entry in entries} == {TRACE_ID}
    names = [span.name for span in spans.get_finished_spans()]
    assert names == ["record paid", "run small", "start_run small"]


def _span_id(span: ReadableSpan) -> str:
    context = span.get_span_context()
    assert context is not None
    return trace.format_span_id(context.span_id)
