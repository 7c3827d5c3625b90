"""W3C traces on entries, by way of OpenTelemetry.

A write is a span of its own, a child of the writer's current span, and the entry carries its ids.
What a reaction does with that entry is a child of that span, however much later and wherever it
happens. So a trace goes from the producer through the journal into the handler, and on through
whatever the handler writes.

The ids alone are on the entry, not the sampling flag: a handler's span counts its parent as
sampled. Without an SDK nothing is created, and an entry carries the ids of the current span.
"""

import contextvars
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

from opentelemetry import trace
from opentelemetry.context import Context

from tape.model.entry import NO_TRACE, Trace
from tape.settings import VERSION

log = logging.getLogger(__name__)

TRACER = trace.get_tracer("tape", VERSION)
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")

_UNTRACED: AbstractContextManager[Trace] = nullcontext(NO_TRACE)
_SAMPLED = trace.TraceFlags(trace.TraceFlags.SAMPLED)


def in_span() -> bool:
    """Whether `recording` would have a parent."""
    current = trace.get_current_span()
    return current is not trace.INVALID_SPAN and current.get_span_context().is_valid


def recording(name: str) -> AbstractContextManager[Trace]:
    """Around a write: a child of the current span, and the ids for the entry."""
    return _producing(name, trace.get_current_span().get_span_context()) if in_span() else _UNTRACED


@contextmanager
def _producing(name: str, parent: trace.SpanContext) -> Iterator[Trace]:
    child = TRACER.start_span(name, kind=trace.SpanKind.PRODUCER)
    trace_id = trace.format_trace_id(parent.trace_id)
    parent_id = trace.format_span_id(parent.span_id)
    own = child.get_span_context().span_id
    if own == parent.span_id:  # no SDK
        yield Trace(trace_id, parent_id)
        return
    with trace.use_span(child, end_on_exit=True):
        yield Trace(trace_id, trace.format_span_id(own), parent_id)


@contextmanager
def handling(
    name: str,
    trace_id: str,
    parent_span_id: str,
    attributes: Mapping[str, str | int | float | bool] | None = None,
) -> Iterator[contextvars.Context]:
    """Around a handler: a child of the span that is named, current in the body.

    An exception that leaves the body is recorded on the span and makes it an error. A function that
    runs in a thread has the span current by way of the yielded context: `context.run(function)`.
    `asyncio.to_thread` does that by itself.
    """
    span = TRACER.start_span(
        name, _remote(trace_id, parent_span_id), trace.SpanKind.CONSUMER, dict(attributes or {})
    )
    with trace.use_span(span, end_on_exit=True):
        yield contextvars.copy_context()


@contextmanager
def driving(
    name: str, begun: Trace, attributes: Mapping[str, str | int | float | bool]
) -> Iterator[Trace]:
    """Around a run while it is driven: a child of the span that began it, current in the body, and
    the ids for the entries that its driver writes.
    """
    if not is_tracing(begun.trace_id):
        yield NO_TRACE
        return
    parent_id = begun.span_id or begun.parent_span_id
    parent = _remote(begun.trace_id, parent_id)
    span = TRACER.start_span(name, parent, trace.SpanKind.CONSUMER, dict(attributes))
    own = span.get_span_context()
    with trace.use_span(span, end_on_exit=True):
        if not own.is_valid:
            yield NO_TRACE
            return
        span_id = trace.format_span_id(own.span_id)
        yield Trace(
            trace.format_trace_id(own.trace_id), span_id, "" if span_id == parent_id else parent_id
        )


def acting(name: str, attributes: Mapping[str, str]) -> AbstractContextManager[object]:
    """Around an act of a run: a child of the current span, if there is one."""
    if not in_span():
        return nullcontext()
    return TRACER.start_as_current_span(name, attributes=dict(attributes))


def note_fact(name: str, fact: int) -> None:
    """Say of the current span what became known only within it."""
    trace.get_current_span().set_attribute(name, fact)


def mark_failed(words: str) -> None:
    """Say of the current span that what it stands for has failed."""
    trace.get_current_span().set_status(trace.StatusCode.ERROR, words)


def below_remote(
    name: str, trace_id: str, parent_span_id: str, attributes: Mapping[str, str]
) -> trace.Span:
    """A span below one of another program, for what is written for it; the caller ends it."""
    parent = _remote(trace_id, parent_span_id)
    return TRACER.start_span(name, parent, trace.SpanKind.PRODUCER, dict(attributes))


def has_sdk() -> bool:
    """Whether spans are made at all."""
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def is_tracing(trace_id: str) -> bool:
    """Whether `handling` would do anything: a trace to go on with, or an SDK to begin one."""
    return bool(trace_id) or has_sdk()


def _remote(trace_id: str, span_id: str) -> Context:
    """A context in which that span is current; without one, the start of a new trace."""
    if not (trace_id and span_id):
        return Context()
    parent = trace.SpanContext(int(trace_id, 16), int(span_id, 16), True, _SAMPLED)
    return trace.set_span_in_context(trace.NonRecordingSpan(parent), Context())


def export_spans(service_name: str) -> Callable[[], None]:
    """Send this process's spans where the OTEL_* variables say; what to call at the end.

    Without an endpoint, or where the program has set OpenTelemetry up itself, it does nothing.
    """
    endpoint = next(filter(os.environ.get, ENDPOINTS), None)
    if endpoint is None or not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return _send_no_spans
    protocol = next(filter(None, map(os.environ.get, PROTOCOLS)), "grpc")
    if protocol != "grpc":
        log.warning("no spans are sent: OTLP is supported over grpc, not over %s", protocol)
        return _send_no_spans
    try:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError as missing:
        log.warning("%s is set, but no spans are sent: %s; the extra `otel` installs it",
                    endpoint, missing)  # fmt: skip
        return _send_no_spans
    own = Resource.create({"service.name": service_name, "service.version": VERSION})
    provider = TracerProvider(resource=own.merge(OTELResourceDetector().detect()))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return provider.shutdown


def _send_no_spans() -> None:
    pass
