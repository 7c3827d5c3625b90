"""Traces: what is a child of what, with an SDK and without."""

import asyncio
import contextvars
import logging
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from tape.model.entry import NO_TRACE, Trace
from tape.model.event import check_trace
from tape.telemetry import tracing
from tape.telemetry.tracing import export_spans, handling, recording

REMOTE = ("0af7651916cd43dd8448eb211c80319c", "00f067aa0ba902b7")


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """An SDK for these tests alone: the one of a process can be set only once."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "TRACER", provider.get_tracer("tape"))
    yield exporter
    provider.shutdown()


def hexes(span: trace.Span) -> tuple[str, str]:
    context = span.get_span_context()
    return trace.format_trace_id(context.trace_id), trace.format_span_id(context.span_id)


def current() -> tuple[str, str]:
    return hexes(trace.get_current_span())


def remote_span() -> trace.Span:
    parent = trace.SpanContext(int(REMOTE[0], 16), int(REMOTE[1], 16), is_remote=True)
    return trace.NonRecordingSpan(parent)


def test_without_a_span_nothing_is_made(spans: InMemorySpanExporter) -> None:
    with recording("write") as found:
        assert found is NO_TRACE
    assert spans.get_finished_spans() == ()


def test_a_write_is_a_child_of_the_current_span(spans: InMemorySpanExporter) -> None:
    with tracing.TRACER.start_as_current_span("order") as order:
        with recording("write") as found:
            inside = current()
        assert current() == hexes(order)
    written, _ = spans.get_finished_spans()
    assert (written.name, written.kind) == ("write", trace.SpanKind.PRODUCER)
    assert written.parent is not None
    assert found == Trace(*inside, hexes(order)[1])
    assert found.trace_id == hexes(order)[0]
    assert written.parent.span_id == order.get_span_context().span_id
    check_trace(*found)


def test_a_write_that_fails_is_seen(spans: InMemorySpanExporter) -> None:
    with (
        pytest.raises(ValueError, match="full"),
        tracing.TRACER.start_as_current_span("order"),
        recording("write"),
    ):
        raise ValueError("full")
    written, _ = spans.get_finished_spans()
    assert written.status.status_code is trace.StatusCode.ERROR


def test_without_an_sdk_the_current_span_is_the_entrys() -> None:
    with trace.use_span(remote_span()), recording("write") as found:
        assert current() == REMOTE
    assert found == Trace(*REMOTE, "")


def test_a_span_that_is_not_sampled_gives_ids_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    provider = TracerProvider(sampler=ALWAYS_OFF)
    monkeypatch.setattr(tracing, "TRACER", provider.get_tracer("tape"))
    with trace.use_span(remote_span()), recording("write") as found:
        assert (found.trace_id, found.parent_span_id) == REMOTE
        assert found.span_id not in ("", REMOTE[1])


def test_a_handler_is_a_child_of_what_it_is_told(spans: InMemorySpanExporter) -> None:
    with (
        tracing.TRACER.start_as_current_span("the dispatcher's own"),
        handling("handle", *REMOTE, {"tape.reaction": "r", "tape.attempt": 2}),
    ):
        trace_id, span_id = current()
        with recording("write") as written:
            pass
    handled = next(span for span in spans.get_finished_spans() if span.name == "handle")
    assert handled.kind is trace.SpanKind.CONSUMER
    assert handled.parent is not None
    assert (trace_id, trace.format_span_id(handled.parent.span_id)) == REMOTE
    assert handled.attributes == {"tape.reaction": "r", "tape.attempt": 2}
    assert (written.trace_id, written.parent_span_id) == (trace_id, span_id)


def test_a_handler_of_an_entry_without_a_trace_starts_one(spans: InMemorySpanExporter) -> None:
    with tracing.TRACER.start_as_current_span("the dispatcher's own"), handling("handle", "", ""):
        pass
    handled = next(span for span in spans.get_finished_spans() if span.name == "handle")
    assert handled.parent is None


def test_a_handler_that_fails_is_seen(spans: InMemorySpanExporter) -> None:
    with pytest.raises(KeyError), handling("handle", *REMOTE):
        raise KeyError("x")
    (handled,) = spans.get_finished_spans()
    assert handled.status.status_code is trace.StatusCode.ERROR
    assert [event.name for event in handled.events] == ["exception"]


def test_without_an_sdk_a_handler_still_hands_the_trace_on() -> None:
    with handling("handle", *REMOTE), recording("write") as found:
        assert found == Trace(*REMOTE, "")
    with handling("handle", "", ""), recording("write") as found:
        assert found is NO_TRACE


def test_a_handler_in_a_thread_has_the_span(spans: InMemorySpanExporter) -> None:
    with ThreadPoolExecutor(1) as pool, handling("handle", *REMOTE) as context:
        assert isinstance(context, contextvars.Context)
        assert pool.submit(context.run, current).result() == current()

    async def awaited() -> None:
        with handling("handle", *REMOTE):
            assert await asyncio.to_thread(current) == current()

    asyncio.run(awaited())


def test_handlers_at_the_same_time_keep_apart(spans: InMemorySpanExporter) -> None:
    async def handle(number: int, meet: asyncio.Barrier) -> None:
        with handling("handle", f"{number:032x}", REMOTE[1]):
            await meet.wait()
            assert current()[0] == f"{number:032x}"

    async def all_of_them() -> None:
        meet = asyncio.Barrier(5)
        await asyncio.gather(*(handle(number, meet) for number in range(1, 6)))
        assert trace.get_current_span() is trace.INVALID_SPAN

    asyncio.run(all_of_them())


@pytest.mark.parametrize("ids", [("0" * 32, "0" * 16), (REMOTE[0], ""), ("", REMOTE[1])])
def test_ids_that_name_no_span_start_a_trace(
    ids: tuple[str, str], spans: InMemorySpanExporter
) -> None:
    with handling("handle", *ids):
        pass
    (handled,) = spans.get_finished_spans()
    assert handled.parent is None


def test_nothing_is_sent_without_an_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*tracing.ENDPOINTS, *tracing.PROTOCOLS):
        monkeypatch.delenv(name, raising=False)
    export_spans("x")()
    assert isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def test_a_protocol_that_is_not_spoken_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    with caplog.at_level(logging.WARNING):
        export_spans("x")()
    assert "not over http/protobuf" in caplog.text


def test_a_missing_extra_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4317")
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_PROTOCOL", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.grpc.trace_exporter", None)
    with caplog.at_level(logging.WARNING):
        export_spans("x")()
    assert "OTEL_EXPORTER_OTLP_ENDPOINT is set, but no spans are sent" in caplog.text
    assert "`otel`" in caplog.text


def test_an_sdk_that_the_program_has_set_up_is_left_alone() -> None:
    code = """
import os
os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = "http://127.0.0.1:1"
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
mine = TracerProvider()
trace.set_tracer_provider(mine)
from tape.telemetry.tracing import export_spans
export_spans("x")()
assert trace.get_tracer_provider() is mine
"""
    subprocess.run([sys.executable, "-c", code], check=True)
