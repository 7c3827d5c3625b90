"""Where the spans of a test arrive: through a real Collector where there is one, and without."""

from collections.abc import Iterator

import pytest

from tests.servers.collector import Collector, SpanReceiver, collector_binary

OtlpEndpoint = Collector | SpanReceiver


@pytest.fixture(
    params=[
        # Building it takes minutes where it is not in the user's cache yet.
        pytest.param("opentelemetry-collector", marks=pytest.mark.middle),
        "receiver-in-the-test",
    ]
)
def otlp(request: pytest.FixtureRequest) -> Iterator[OtlpEndpoint]:
    """The test's name says which one it was; a Collector that cannot be had is a visible skip."""
    if request.param == "receiver-in-the-test":
        with SpanReceiver() as receiver:
            yield receiver
        return
    binary = collector_binary()
    if isinstance(binary, str):
        pytest.skip(f"the OpenTelemetry Collector {binary}")
    with Collector(binary) as collector:
        yield collector
