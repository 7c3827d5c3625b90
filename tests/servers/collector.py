"""Where spans arrive in tests: an OTLP receiver, alone or behind a real OpenTelemetry Collector.

The Collector is built once from its released Go modules, where there is Go and a module proxy, and
kept in the user's cache. It forwards to the receiver, so either way the spans are read here, with
OpenTelemetry's own messages.
"""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)
from opentelemetry.proto.trace.v1 import trace_pb2

from tests.servers.ports import free_port

RELEASE, STABLE = "v0.160.0", "v1.66.0"
BUILD_S = 400.0
READY = "Everything is ready"


class ReceivedSpan(NamedTuple):
    """A span as it came in, ids as lower-case hex."""

    service: str
    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_span_id: str
    failed: bool
    attributes: dict[str, str | int]


class SpanReceiver(TraceServiceServicer):
    """OpenTelemetry's TraceService. Use with `with`; exporters are pointed at `endpoint`."""

    def __init__(self, port: int = 0) -> None:
        self._spans: list[ReceivedSpan] = []
        self._arrived = threading.Condition()
        self._server = grpc.server(ThreadPoolExecutor(2))
        # The generated stub has no types.
        add_TraceServiceServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]
        self._port = self._server.add_insecure_port(f"127.0.0.1:{port}")

    def __enter__(self) -> "SpanReceiver":
        self._server.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._server.stop(None).wait()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def Export(  # noqa: N802 - the name of the RPC
        self, request: ExportTraceServiceRequest, context: Any
    ) -> ExportTraceServiceResponse:  # fmt: skip
        with self._arrived:
            self._spans += _spans_of(request)
            self._arrived.notify_all()
        return ExportTraceServiceResponse()

    def received_spans(self) -> list[ReceivedSpan]:
        with self._arrived:
            return list(self._spans)

    def wait_for(self, *names: str, timeout_s: float = 30.0) -> dict[str, ReceivedSpan]:
        """The spans of these names, as soon as all are there."""

        def found() -> dict[str, ReceivedSpan]:
            return {span.name: span for span in self._spans if span.name in names}

        with self._arrived:
            if not self._arrived.wait_for(lambda: len(found()) == len(set(names)), timeout_s):
                raise TimeoutError(f"of the spans {names} only {sorted(found())} arrived")
            return found()


class Collector:
    """A real Collector in front of a receiver. Use with `with`; `endpoint` is the Collector's."""

    def __init__(self, binary: Path) -> None:
        self._binary = binary
        self._receiver = SpanReceiver()
        self._process: subprocess.Popen[str] | None = None
        self._port = free_port()

    def __enter__(self) -> "Collector":
        self._receiver.__enter__()
        config = json.dumps(self._config())
        process = subprocess.Popen(
            [self._binary, f"--config=yaml:{config}"], stderr=subprocess.PIPE, text=True
        )
        self._process = process
        said = []
        for line in process.stderr or ():
            said.append(line)
            if READY in line:
                return self
        self.__exit__()
        raise RuntimeError("the Collector ended: " + "".join(said))

    def __exit__(self, *_error: object) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(30)
            if self._process.stderr is not None:
                self._process.stderr.close()
        self._receiver.__exit__()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def received_spans(self) -> list[ReceivedSpan]:
        return self._receiver.received_spans()

    def wait_for(self, *names: str, timeout_s: float = 30.0) -> dict[str, ReceivedSpan]:
        return self._receiver.wait_for(*names, timeout_s=timeout_s)

    def _config(self) -> dict[str, Any]:
        received = {"protocols": {"grpc": {"endpoint": f"127.0.0.1:{self._port}"}}}
        forwarded = {"endpoint": self._receiver.endpoint, "tls": {"insecure": True}}
        return {
            "receivers": {"otlp": received},
            "exporters": {"otlp": forwarded},
            "service": {
                "pipelines": {"traces": {"receivers": ["otlp"], "exporters": ["otlp"]}},
                "telemetry": {"metrics": {"level": "none"}},
            },
        }


def collector_binary() -> Path | str:
    """The Collector, built if it is not there yet, or why it cannot be had.

    A build that failed is not tried again until its note in the cache is removed.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tape"
    kept, note = cache / f"otelcol-{RELEASE}", cache / f"otelcol-{RELEASE}.failed"
    if kept.exists():
        return kept
    if note.exists():
        return f"could not be built, {note} says why"
    if shutil.which("go") is None:
        return "is not built yet, and building it needs Go"
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        fault = _build(Path(folder))
        if fault:
            note.write_text(fault)
            return f"could not be built, {note} says why"
        (Path(folder) / "out" / "otelcol").replace(kept)
    return kept


def _build(folder: Path) -> str:
    """Build into `folder/out`; what went wrong, or nothing."""
    core = "go.opentelemetry.io/collector"
    recipe = {
        "dist": {"name": "otelcol", "output_path": "./out"},
        "receivers": [{"gomod": f"{core}/receiver/otlpreceiver {RELEASE}"}],
        "exporters": [{"gomod": f"{core}/exporter/otlpexporter {RELEASE}"}],
        "providers": [
            {"gomod": f"{core}/confmap/provider/{name}provider {STABLE}"}
            for name in ("env", "yaml")
        ],
    }
    (folder / "recipe.yaml").write_text(json.dumps(recipe))
    left = _countdown(BUILD_S)
    return _run(
        ["go", "install", f"{core}/cmd/builder@{RELEASE}"], folder, left()
    ) or _run([folder / "builder", "--config", "recipe.yaml"], folder, left())  # fmt: skip


def _countdown(seconds: float) -> Callable[[], float]:
    end = time.monotonic() + seconds
    return lambda: max(0.0, end - time.monotonic())


def _run(command: list[str | Path], folder: Path, timeout_s: float) -> str:
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "GOBIN": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # Go has compilers running
        said, _ = process.communicate()
        return f"took longer than {BUILD_S:g} s: {command}\n{said}"
    return "" if process.returncode == 0 else said or f"{command} failed"


def _spans_of(request: ExportTraceServiceRequest) -> list[ReceivedSpan]:
    return [
        ReceivedSpan(
            service=str(_values(resource.resource.attributes).get("service.name", "")),
            name=span.name,
            kind=trace_pb2.Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
            trace_id=span.trace_id.hex(),
            span_id=span.span_id.hex(),
            parent_span_id=span.parent_span_id.hex(),
            failed=span.status.code == trace_pb2.Status.STATUS_CODE_ERROR,
            attributes=_values(span.attributes),
        )
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def _values(attributes: Any) -> dict[str, str | int]:
    return {
        item.key: item.value.int_value
        if item.value.HasField("int_value")
        else item.value.string_value
        for item in attributes
    }
