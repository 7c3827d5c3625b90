"""Spans of messages that are accepted, all by the name `tool.dispatch.subscription`.

Messages that are accepted together share one span, the root of a trace. A message has a span of its
own only if its trace is propagated and its `traceparent` says that it is sampled: a child of the
span that it comes from, and the parent of whatever its run does. So what a firehose costs is up to
who samples it. Without an SDK nothing is made, and a run names the span that its message is of.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from opentelemetry import trace
from opentelemetry.context import Context

from tape.model.accept_messages import AcceptedMessage, PlannedMessage
from tape.model.entry import Trace
from tape.telemetry import tracing

NAME: Final = "tool.dispatch.subscription"


class DispatchSpans:
    """`planned` are the messages, their runs below the spans."""

    def __init__(self, planned: Sequence[PlannedMessage]) -> None:
        self.planned = planned
        self._spans: dict[int, trace.Span] = {}

    def begin(self, subscription: str) -> None:
        traced = list(self.planned)
        for number, one in enumerate(traced):
            if one.is_sampled and one.run is not None:
                below = one.run.trace
                facts = {"tape.subscription": subscription, "tape.place": one.place}
                span = tracing.below_remote(NAME, below.trace_id, below.parent_span_id, facts)
                self._spans[number] = span
                own = trace.format_span_id(span.get_span_context().span_id)
                if own != below.parent_span_id:
                    trace_ids = Trace(below.trace_id, own, below.parent_span_id)
                    traced[number] = one._replace(run=one.run._replace(trace=trace_ids))
        self.planned = traced

    def note(self, accepted: Sequence[AcceptedMessage] | None) -> None:
        """What became of each; None if nothing did."""
        for number, span in self._spans.items():
            if accepted is not None:
                span.set_attribute("tape.outcome", accepted[number].outcome.value)
                span.set_attribute("tape.run_id", accepted[number].run_id)

    def end(self, failed: BaseException | None = None) -> None:
        for span in self._spans.values():
            if failed is not None:
                span.record_exception(failed)
                span.set_status(trace.StatusCode.ERROR, str(failed))
            span.end()


@contextmanager
def dispatching(subscription: str, planned: Sequence[PlannedMessage]) -> Iterator[DispatchSpans]:
    """Around the acceptance of messages."""
    spans = DispatchSpans(planned)
    if not tracing.has_sdk():
        yield spans
        return
    facts: dict[str, str | int] = {
        "tape.subscription": subscription, "tape.messages": len(planned),
    }  # fmt: skip
    with tracing.TRACER.start_as_current_span(NAME, Context(), attributes=facts):
        spans.begin(subscription)
        try:
            yield spans
        except BaseException as error:
            spans.end(error)
            raise
        spans.end()
