"""AWS KMS for tests: moto's server, a real HTTP service in a process of its own.

Before it stands a door through which everything goes, which can be told to throttle, to fail or to
say nothing.
"""

import subprocess
import sys
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.servers.ports import await_port, free_port, start_on_free_port

START_S = 60.0
REGION = "eu-central-1"


class KmsServer:
    """Start with `with KmsServer() as kms:`."""

    def __init__(self) -> None:
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.door = _Door(self)

    def __enter__(self) -> "KmsServer":
        start_on_free_port(self)
        self.door.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.door.stop()
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)

    def start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        await_port(self.port, self._process, START_S)

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to find it, and to be let in."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.door.port}",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": REGION,
        }

    def client(self) -> Any:
        import boto3  # type: ignore[import-untyped]  # it has no types

        return boto3.session.Session().client(
            "kms",
            endpoint_url=f"http://127.0.0.1:{self.port}",
            region_name=REGION,
            aws_access_key_id="test",
            aws_secret_access_key="test",
        )


class _Door:
    """Takes requests for the server. `fail_next` are errors to answer the next ones with."""

    def __init__(self, kms: KmsServer) -> None:
        self.fail_next: list[str] = []
        self.hangs = threading.Event()
        self.goes_on = threading.Event()
        self.asked: list[str] = []
        self.bodies: list[bytes] = []
        door = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                door.asked.append(self.headers["x-amz-target"].rpartition(".")[2])
                door.bodies.append(body)
                if door.hangs.is_set():
                    door.goes_on.wait()
                if door.fail_next:
                    code = door.fail_next.pop(0)
                    status = 500 if code == "KMSInternalException" else 400
                    self._answer(status, b'{"__type": "%s", "message": "said"}' % code.encode())
                    return
                headers = {name: self.headers[name] for name in self.headers if name != "Host"}
                url = f"http://127.0.0.1:{kms.port}{self.path}"
                request = urllib.request.Request(url, body, headers)
                try:
                    with urllib.request.urlopen(request) as found:
                        self._answer(found.status, found.read())
                except urllib.error.HTTPError as refused:
                    self._answer(refused.code, refused.read())

            def _answer(self, status: int, body: bytes) -> None:
                try:
                    self.send_response(status)
                    self.send_header("content-type", "application/x-amz-json-1.1")
                    self.send_header("content-length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)
                except OSError:
                    pass  # the client has given up

            def log_message(self, *_args: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.goes_on.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def reset(self) -> None:
        self.fail_next.clear()
        self.asked.clear()
        self.bodies.clear()
        self.hangs.clear()
        self.goes_on.set()
        self.goes_on.clear()
