"""Spans of accepted messages: whose trace they join, and how many there are."""

from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tape.errors import StaleLease
from tape.model.entry import Entry, Trace
from tape.model.message import SourceMessage
from tape.telemetry import dispatch_spans, tracing
from tests.unit.subscriptions.subscribed import Subscribed, document, message

TRACE_ID, SPAN_ID = "0af7651916cd43dd8448eb211c80319c", "00f067aa0ba902b7"
SAMPLED, UNSAMPLED = f"00-{TRACE_ID}-{SPAN_ID}-01", f"00-{TRACE_ID}-{SPAN_ID}-00"
PROPAGATING = {"trace": {"propagate": "w3c", "baggage_allowlist": ["tenant"]}}
REROUTING = {"directives": [{"header": "x-app", "controls": "dispatch.playbook", "allowed": ["b"]}]}


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """An SDK for these tests alone: the one of a process can be set only once."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "TRACER", provider.get_tracer("tape"))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    yield exporter
    provider.shutdown()


def sent(
    number: int, traceparent: str, *more: tuple[str, bytes], body: bytes = b"{}"
) -> SourceMessage:
    return message(number, body, headers=(("Traceparent", traceparent.encode()), *more))


def ids(span: ReadableSpan) -> tuple[str, str, str]:
    context, parent = span.get_span_context(), span.parent
    assert context is not None
    return (
        trace.format_trace_id(context.trace_id),
        trace.format_span_id(context.span_id),
        trace.format_span_id(parent.span_id) if parent is not None else "",
    )


async def first_entries(desk: Subscribed) -> dict[str, Entry]:
    """Of each run by its place."""
    found = {
        run.invocation_id: await desk.store.read_run(run.run_id, 0, 1) for run in await desk.runs()
    }
    return {place: entries[0] for place, entries in found.items()}


async def traces(desk: Subscribed) -> list[Trace]:
    entries = (await first_entries(desk)).values()
    return [Trace(entry.trace_id, entry.span_id, entry.parent_span_id) for entry in entries]


async def test_a_sampled_message_has_a_span_in_its_trace(
    desk: Subscribed, spans: InMemorySpanExporter
) -> None:
    await desk.listen(document(headers={**PROPAGATING, **REROUTING}))
    (accepted,) = await desk.accept(sent(1, SAMPLED, ("x-app", b"b")))
    own, batch = spans.get_finished_spans()
    trace_id, span_id, parent_id = ids(own)
    assert own.name == batch.name == "tool.dispatch.subscription"
    assert own.kind is trace.SpanKind.PRODUCER
    assert (trace_id, parent_id) == (TRACE_ID, SPAN_ID)
    assert await traces(desk) == [Trace(TRACE_ID, span_id, SPAN_ID)]
    assert own.attributes == {
        "tape.subscription": "orders", "tape.place": accepted.place, "tape.outcome": "accepted",
        "tape.run_id": accepted.run_id,
    }  # fmt: skip
    (audit,) = await desk._entries("/tape/subscription/message_directives_applied/")
    assert (audit.trace_id, audit.span_id) == (TRACE_ID, span_id)


async def test_a_batch_has_one_span_and_no_more_than_its_messages_ask_for(
    desk: Subscribed, spans: InMemorySpanExporter
) -> None:
    await desk.listen(document(headers=PROPAGATING))
    plain = [message(number) for number in range(1, 200)]
    unsampled = [sent(number, UNSAMPLED) for number in range(200, 300)]
    await desk.accept(*plain, *unsampled)
    (batch,) = spans.get_finished_spans()
    assert batch.attributes == {"tape.subscription": "orders", "tape.messages": 299}
    assert ids(batch)[2] == ""
    found = await traces(desk)
    assert found == [Trace()] * 199 + [Trace(TRACE_ID, "", SPAN_ID)] * 100  # joined all the same


@pytest.mark.parametrize(
    "traceparent",
    ["", "00-0-0-01", f"00-{'0' * 32}-{SPAN_ID}-01", f"ff-{TRACE_ID}-{SPAN_ID}-01", SAMPLED + "-x"],
)
async def test_a_wrong_traceparent_is_ignored(
    desk: Subscribed, spans: InMemorySpanExporter, traceparent: str
) -> None:
    await desk.listen(document(headers=PROPAGATING))
    await desk.accept(sent(1, traceparent, ("tracestate", b"a=1"), ("baggage", b"tenant=x")))
    assert len(spans.get_finished_spans()) == 1
    (entry,) = (await first_entries(desk)).values()
    assert entry.trace_id == entry.parent_span_id == ""
    block = entry.payload["input"]["message"]["trace"]
    assert not any(block.values())


async def test_what_is_not_propagated_is_not_joined(
    desk: Subscribed, spans: InMemorySpanExporter
) -> None:
    await desk.listen()
    await desk.accept(sent(1, SAMPLED))
    assert len(spans.get_finished_spans()) == 1
    assert await traces(desk) == [Trace()]


async def test_a_message_that_comes_again_keeps_the_first_span(
    desk: Subscribed, spans: InMemorySpanExporter
) -> None:
    await desk.listen(document(headers=PROPAGATING))
    await desk.accept(sent(1, SAMPLED))
    (before,) = await traces(desk)
    await desk.accept(sent(1, SAMPLED))
    assert await traces(desk) == [before]
    outcomes = [span.attributes["tape.outcome"] for span in spans.get_finished_spans()
                if span.attributes and "tape.outcome" in span.attributes]  # fmt: skip
    assert outcomes == ["accepted", "redelivered"]


async def test_a_refusal_is_on_the_spans(desk: Subscribed, spans: InMemorySpanExporter) -> None:
    await desk.listen(document(headers=PROPAGATING))
    desk.token += 1
    with pytest.raises(StaleLease):
        await desk.accept(sent(1, SAMPLED))
    own, batch = spans.get_finished_spans()
    assert own.status.status_code is batch.status.status_code is trace.StatusCode.ERROR


async def test_a_replayed_letter_joins_its_trace(
    desk: Subscribed, spans: InMemorySpanExporter
) -> None:
    await desk.listen(document(headers=PROPAGATING))
    await desk.accept(sent(1, SAMPLED, body=b"not json"))
    assert len(spans.get_finished_spans()) == 1
    text = document(
        headers=PROPAGATING, dispatch={"playbook": "desk", "payload_from": "message.body"}
    )
    await desk.subscriptions.register_subscription(text)
    assert await desk.subscriptions.settle_subscription_dead_letters("orders", "replay") == 1
    own = spans.get_finished_spans()[1]
    assert await traces(desk) == [Trace(TRACE_ID, ids(own)[1], SPAN_ID)]


async def test_without_an_sdk_nothing_is_looked_at(
    desk: Subscribed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begin(*_args: object) -> None:
        raise AssertionError

    monkeypatch.setattr(dispatch_spans.DispatchSpans, "begin", begin)
    await desk.listen(document(headers=PROPAGATING))
    await desk.accept(sent(1, SAMPLED))
    assert await traces(desk) == [Trace(TRACE_ID, "", SPAN_ID)]
