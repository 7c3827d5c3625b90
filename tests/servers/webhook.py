"""A receiver of webhooks for tests: verifies each signature, keeps what it took, fails on demand.

It listens in a thread of its own. `fail` decides for each delivery before it is taken: a status to
answer with, 0 to hang up without an answer, or None to take it.
"""

import contextlib
import hmac
import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import orjson

from tape.model.signature import secret_key, signature

SECRET = "whsec_dGFwZS13ZWJob29rLXRlc3Qtc2VjcmV0LTE="
TOLERANCE_S = 300


class Delivery(NamedTuple):
    """What was taken: headers in lower case, the event, and the bytes it came as."""

    headers: dict[str, str]
    event: dict[str, Any]
    body: bytes


class _Server(ThreadingHTTPServer):
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """A sender that hangs up is no news."""


class WebhookReceiver:
    """Use with `with`; `target` is where it listens."""

    def __init__(self, secret: str = SECRET, port: int = 0) -> None:
        self._key = secret_key(secret)
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        self._server = _Server(("127.0.0.1", port), self._handler())
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )
        self.taken: list[Delivery] = []
        self.refused: list[str] = []
        self.fail: Callable[[Delivery], int | None] = lambda _delivery: None

    def __enter__(self) -> "WebhookReceiver":
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        if not self._thread.is_alive():
            return
        self._server.shutdown()
        self._thread.join()
        with self._lock:
            for connection in self._connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        self._server.server_close()

    @property
    def port(self) -> int:
        return self._server.server_address[1]

    @property
    def target(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    def answer(self, headers: dict[str, str], body: bytes) -> int:
        """The status for one delivery; 0 hangs up."""
        wrong = self._wrong(headers, body)
        if wrong:
            with self._lock:
                self.refused.append(wrong)
            return 401
        delivery = Delivery(headers, orjson.loads(body), body)
        status = self.fail(delivery)
        if status is None:
            with self._lock:
                self.taken.append(delivery)
            return 204
        return status

    def _wrong(self, headers: dict[str, str], body: bytes) -> str:
        message_id, timestamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
        if not message_id or not timestamp.isdecimal():
            return "unsigned"
        if abs(time.time() - int(timestamp)) > TOLERANCE_S:
            return "stale"
        wanted = signature(self._key, message_id, timestamp, body)
        given = headers.get("webhook-signature", "").split()
        return "" if any(hmac.compare_digest(wanted, one) for one in given) else "forged"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def setup(self) -> None:
                super().setup()
                with receiver._lock:
                    receiver._connections.add(self.connection)

            def finish(self) -> None:
                with receiver._lock:
                    receiver._connections.discard(self.connection)
                super().finish()

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                headers = {name.lower(): text for name, text in self.headers.items()}
                status = receiver.answer(headers, body)
                if not status:
                    self.close_connection = True
                    return
                self.send_response(status)
                if 300 <= status < 400:
                    self.send_header("location", "/elsewhere")
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its signature
                """Tests say what they saw."""

        return Handler
