"""One trace from the producer through the entry into the handler, each in its own process."""

from itertools import pairwise
from pathlib import Path

import pytest

import tape
from tests.crash import watching
from tests.crash.watching import await_true
from tests.integration.telemetry.conftest import OtlpEndpoint
from tests.integration.telemetry.processes import PRODUCER, run, sending_to
from tests.servers.tape_server import ServerProcess
from tests.servers.tape_worker import WorkerProcess

HANDLER = """
import sys, tape
from tape.reactions import run_dispatcher

@tape.on("/tape/event/recorded/order.placed/**", reaction_id="in-a-thread")
def ship(envelope):
    with tape.connect(sys.argv[1]) as client:
        client.record("order.shipped", caused_by=envelope["event_id"])

@tape.on("/tape/event/recorded/order.placed/**", reaction_id="on-the-loop")
async def refuse(envelope):
    raise tape.GiveUp("no")

run_dispatcher(sys.argv[1])
"""


# The first run may build a Collector.
@pytest.mark.timeout(600)
def test_a_handler_goes_on_with_the_trace_of_its_entry(
    sqlite_url: str, tmp_path: Path, otlp: OtlpEndpoint
) -> None:
    with ServerProcess(sqlite_url, env=sending_to(otlp)) as server:
        worker = WorkerProcess(
            "-c", HANDLER, server.url, log=tmp_path / "worker.log", env=sending_to(otlp)
        )
        with worker:
            await_true(
                lambda: len(watching.query(sqlite_url, "SELECT 1 FROM tape_reactions")) == 2,
                60,
                lambda: worker.said,
            )
            run(PRODUCER, server.url, otlp, "producer")
            await_true(
                lambda: len(watching.query(sqlite_url, "SELECT 1 FROM tape_task_ended")) == 2,
                60,
                lambda: worker.said,
            )
            assert worker.stop() == 0
        chain = ("order", "record order.placed", "react ship", "record order.shipped")
        received = otlp.wait_for(*chain, "react refuse")
        with tape.connect(server.url) as client:
            found = {entry.event_type: entry for entry in client.follow(live=False)}
    spans = [received[name] for name in chain]
    assert {span.trace_id for span in spans} == {spans[0].trace_id}
    for parent, child in pairwise(spans):
        assert child.parent_span_id == parent.span_id
    placed, shipped = found["order.placed"], found["order.shipped"]
    assert (placed.trace_id, placed.span_id) == (spans[1].trace_id, spans[1].span_id)
    assert (shipped.trace_id, shipped.span_id) == (spans[3].trace_id, spans[3].span_id)
    handled = spans[2]
    assert (handled.service, handled.kind, handled.failed) == ("tape-worker", "CONSUMER", False)
    assert handled.attributes["tape.task_id"] == f"in-a-thread/0/{placed.global_seq}"
    refused = received["react refuse"]
    assert (refused.trace_id, refused.parent_span_id) == (placed.trace_id, placed.span_id)
    assert refused.failed
