"""What answers probes, and nothing else: `/healthz` and `/readyz`, to anybody.

Nobody needs a token here, and other machines may ask. So no body is read, an answer tells no more
than the HTTP door's, and however many ask at once, the store is asked once at a time.
"""

import asyncio
import logging
from http import HTTPStatus
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from tape.api.http.answer_headers import with_headers
from tape.api.http.readiness import why_not_ready
from tape.bus import Operations
from tape.errors import StoreUnavailable, TapeError, TooLarge
from tape.telemetry.retrying import Retrying

log = logging.getLogger(__name__)


class SharedReadiness:
    """Whether the store answers. Whoever asks while it is being asked gets the same answer."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations
        self._asking: asyncio.Task[str] | None = None
        self._refused = Retrying(log, "asking whether the store answers")

    async def why_not(self) -> str:
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask(), name="tape-ready")
        return await asyncio.shield(self._asking)

    async def _ask(self) -> str:
        try:
            why = await why_not_ready(self._operations)
        except TapeError as error:  # a server may have refused our token: that is for the log
            self._refused.failed(error)
            return "the store cannot be used; the log of this process says why"
        self._refused.succeeded()
        return why


def health_only_app(operations: Operations) -> ASGIApp:
    """`/healthz` and `/readyz` by GET and HEAD."""
    readiness = SharedReadiness(operations)

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        response = await _response(request, readiness)
        if _has_body(request):
            response.headers["connection"] = "close"  # it is not waited for
        await response(scope, receive, with_headers(send))

    return answer


async def _response(request: Request, readiness: SharedReadiness) -> Response:
    path = request.scope["path"]
    if path not in ("/healthz", "/readyz"):
        return _error(HTTPStatus.NOT_FOUND, "NOT_FOUND", "Not Found")
    if request.method not in ("GET", "HEAD"):
        refused = HTTPStatus.METHOD_NOT_ALLOWED
        return _error(refused, refused.name, refused.phrase, {"allow": "GET, HEAD"})
    if _has_body(request):
        refused = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        return _error(refused, TooLarge.reason, "no body is taken here")
    if path == "/healthz":
        return _json({"status": "alive"})
    if why := await readiness.why_not():
        return _error(HTTPStatus.SERVICE_UNAVAILABLE, StoreUnavailable.reason, why)
    return _json({"status": "ready"})


def _has_body(request: Request) -> bool:
    headers = request.headers
    return "transfer-encoding" in headers or headers.get("content-length", "").strip("0") != ""


def _error(
    status: HTTPStatus, reason: str, message: str, headers: dict[str, str] | None = None
) -> Response:
    return _json({"error": {"reason": reason, "message": message}}, status, headers)


def _json(
    content: Any, status: HTTPStatus = HTTPStatus.OK, headers: dict[str, str] | None = None
) -> Response:
    return Response(orjson.dumps(content), status, headers, media_type="application/json")
