"""Spans as a collector gets them are those that the entries name."""

from collections.abc import Iterator
from itertools import pairwise

import pytest

import tape
from tests.integration.telemetry.conftest import OtlpEndpoint
from tests.integration.telemetry.processes import HANDLER, PRODUCER, run, sending_to
from tests.servers.tape_server import ServerProcess

# The first run may build a Collector.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(params=["server", "in-process"])
def url(request: pytest.FixtureRequest, sqlite_url: str, otlp: OtlpEndpoint) -> Iterator[str]:
    if request.param == "in-process":
        yield sqlite_url
        return
    with ServerProcess(sqlite_url, env=sending_to(otlp, "tape")) as server:
        yield server.url
        assert server.stop() == 0


def entries(url: str) -> dict[str, tape.Entry]:
    """By event type, or kind and verb where there is none."""
    with tape.connect(url) as client:
        found = list(client.follow(live=False))
    return {entry.event_type or "/".join(entry.subject.split("/")[2:4]): entry for entry in found}


def test_a_write_is_a_child_of_the_producers_span(url: str, otlp: OtlpEndpoint) -> None:
    run(PRODUCER, url, otlp, "producer")
    spans = {
        "order.placed": "record order.placed",
        "leg.one": "record_many",
        "value/changed": "set_value prices",
        "value/deleted": "delete_value prices",
        "event/appended": "append_event desk",
        "session/created": "create_session desk",
        "session/deleted": "delete_session desk",
    }
    received = otlp.wait_for("order", *spans.values())
    order = received["order"]
    assert (order.service, order.parent_span_id) == ("producer", "")
    found = entries(url)
    for name, span_name in spans.items():
        entry, span = found[name], received[span_name]
        assert span.kind == "PRODUCER"
        assert (entry.trace_id, entry.span_id, entry.parent_span_id) == (
            span.trace_id,
            span.span_id,
            span.parent_span_id,
        )
        assert (span.trace_id, span.parent_span_id) == (order.trace_id, order.span_id)
    assert len({entry.span_id for entry in found.values() if entry.span_id}) == 8
    given = found["leg.two"]
    assert (given.trace_id, given.span_id, given.parent_span_id) == (
        "0af7651916cd43dd8448eb211c80319c",
        "00f067aa0ba902b7",
        "",
    )
    for name in ("before", "after"):
        assert (found[name].trace_id, found[name].span_id) == ("", "")
    assert len(otlp.received_spans()) == 8


def test_a_handler_is_a_child_of_the_entry(sqlite_url: str, otlp: OtlpEndpoint) -> None:
    run(PRODUCER, sqlite_url, otlp)
    run(HANDLER, sqlite_url, otlp)
    names = ("order", "record order.placed", "handle order.placed", "record order.handled")
    received = otlp.wait_for(*names, "handle badly")
    chain = [received[name] for name in names]
    assert {span.trace_id for span in chain} == {chain[0].trace_id}
    for parent, child in pairwise(chain):
        assert child.parent_span_id == parent.span_id
    handled = received["handle order.placed"]
    assert (handled.service, handled.kind, handled.failed) == ("worker", "CONSUMER", False)
    assert handled.attributes == {"tape.attempt": 1}
    assert received["handle badly"].failed
    written = entries(sqlite_url)["order.handled"]
    assert (written.span_id, written.parent_span_id) == (chain[3].span_id, handled.span_id)


def test_a_collector_that_is_away_costs_a_server_nothing(sqlite_url: str) -> None:
    away = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
    with ServerProcess(sqlite_url, env=away) as server:
        with tape.connect(server.url) as client:
            assert client.record("a").global_seq == 1
        assert server.stop() == 0
