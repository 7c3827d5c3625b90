"""Programs that send spans, each in a process of its own as in life."""

import os
import subprocess
import sys

from tests.integration.telemetry.conftest import OtlpEndpoint

PRODUCER = """
import sys, tape
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)
own = {"trace_id": "0af7651916cd43dd8448eb211c80319c", "span_id": "00f067aa0ba902b7"}
with tape.connect(sys.argv[1]) as client:
    client.record("before")
    client.create_session("desk", "me", "s")
    with trace.get_tracer("producer").start_as_current_span("order"):
        client.record("order.placed", {"n": 1})
        client.record_many([tape.event("leg.one"), tape.event("leg.two", **own)])
        client.set_value("prices", "gold", 1)
        client.delete_value("prices", "gold")
        client.append_event("desk", "me", "s", {"content": "hello"})
        client.create_session("desk", "me", "t")
        client.delete_session("desk", "me", "t")
    client.record("after")
provider.shutdown()
"""

HANDLER = """
import asyncio, sys, tape
from tape.telemetry.tracing import export_spans, handling

async def main():
    async with tape.connect_async(sys.argv[1]) as client:
        stream = client.follow("/tape/event/recorded/order.placed/**", live=False)
        cause = [entry async for entry in stream][0]
        with handling("handle order.placed", cause.trace_id, cause.span_id, {"tape.attempt": 1}):
            await client.record("order.handled", caused_by=cause.event_id)
        try:
            with handling("handle badly", cause.trace_id, cause.span_id):
                raise ValueError("no")
        except ValueError:
            pass

end = export_spans("worker")
asyncio.run(main())
end()
"""


def run(program: str, url: str, otlp: OtlpEndpoint, service: str = "") -> None:
    """Run it to its end, its spans sent to `otlp`."""
    subprocess.run(
        [sys.executable, "-c", program, url],
        env={**os.environ, **sending_to(otlp, service)},
        check=True,
        timeout=60,
    )


def sending_to(otlp: OtlpEndpoint, service: str = "") -> dict[str, str]:
    """The environment by which OpenTelemetry's own exporter finds its way."""
    named = {"OTEL_SERVICE_NAME": service} if service else {}
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": otlp.endpoint, **named}
