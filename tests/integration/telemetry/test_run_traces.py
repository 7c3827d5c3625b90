"""One trace from a client through a run, its event, a handler and an agent's run to its child."""

from itertools import pairwise
from pathlib import Path

import pytest

import tape
from tests.crash import watching
from tests.crash.watching import await_true
from tests.integration.telemetry.processes import run, sending_to
from tests.servers.collector import SpanReceiver
from tests.servers.tape_server import ServerProcess
from tests.servers.tape_worker import WorkerProcess

WORKER = """
import sys, tape
from tape.reactions import run_dispatcher

@tape.effect
def charge(cents):
    return cents

@tape.app("shop")
async def shop(ctx):
    await ctx.call(charge, 5)
    await ctx.record("paid")

@tape.on("/tape/event/recorded/paid/**", reaction_id="ships")
async def ships(envelope):
    async with tape.connect_async(sys.argv[1]) as client:
        await client.record("shipped", caused_by=envelope["event_id"])

@tape.on("/tape/event/recorded/shipped/**", agent="follow-up", reaction_id="follows")
def _(): ...

@tape.app("follow-up")
def follow_up(ctx, envelope):
    ctx.start("child")

@tape.app("child")
async def child(ctx):
    await ctx.set_value("desk", "done", 1)

run_dispatcher(sys.argv[1])
"""
CLIENT = """
import sys, tape
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)
with tape.connect(sys.argv[1]) as client:
    with trace.get_tracer("client").start_as_current_span("order"):
        client.start_run("shop")
provider.shutdown()
"""
CHAIN = (
    "order", "start_run shop", "run shop", "record paid", "react ships", "record shipped",
    "run follow-up", "start_run child", "run child", "set_value desk",
)  # fmt: skip
DONE = "SELECT 1 FROM tape_runs WHERE app_name = 'child' AND status = 4"


@pytest.mark.parametrize("door", ["embedded", "grpc"])
def test_one_trace_goes_all_the_way(sqlite_url: str, tmp_path: Path, door: str) -> None:
    tape.connect(sqlite_url).close()  # makes its tables
    with SpanReceiver() as otlp:
        if door == "embedded":
            _go(sqlite_url, sqlite_url, tmp_path, otlp)
        else:
            with ServerProcess(sqlite_url, env=sending_to(otlp)) as server:
                _go(server.url, sqlite_url, tmp_path, otlp)
        found = otlp.wait_for(*CHAIN, "effect charge")
    spans = [found[name] for name in CHAIN]
    assert {span.trace_id for span in spans} == {spans[0].trace_id}
    for parent, child in pairwise(spans):
        assert child.parent_span_id == parent.span_id, (parent.name, child.name)
    assert found["effect charge"].parent_span_id == found["run shop"].span_id
    assert found["run shop"].service == "tape-worker"
    with tape.connect(sqlite_url) as client:
        entries = list(client.follow(live=False))
    outside = [entry.subject for entry in entries if entry.trace_id != spans[0].trace_id]
    assert not outside


def _go(url: str, store_url: str, tmp_path: Path, otlp: SpanReceiver) -> None:
    log = tmp_path / "worker.log"
    with WorkerProcess("-c", WORKER, url, log=log, env=sending_to(otlp)) as worker:
        await_true(
            lambda: len(watching.query(store_url, "SELECT 1 FROM tape_reactions")) == 2,
            60,
            lambda: worker.said,
        )
        run(CLIENT, url, otlp, "client")
        await_true(lambda: bool(watching.query(store_url, DONE)), 60, lambda: worker.said)
        assert worker.stop() == 0, worker.said
