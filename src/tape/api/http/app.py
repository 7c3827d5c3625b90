"""The application of the HTTP door, whole for a server and with the health routes for a worker."""

import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import cache
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from tape.api.http import (
    chain,
    drainers,
    errors,
    event_subscriptions,
    execute,
    health,
    outbox,
    reactions,
    recent,
    record,
    runs,
    stream,
    subscriptions,
    tasks,
    values,
    wallet,
)
from tape.api.http.door import Door, StaticFile
from tape.api.http.entry import json_response
from tape.api.http.guard import Guard
from tape.api.http.openapi import describe
from tape.api.http.routes import Routes
from tape.calls.role import Role
from tape.errors import TapeError

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)


# A path that is a word comes before one that is a number: `stream` before `{global_seq}`.
NOUNS = (
    record,
    stream,
    recent,
    chain,
    drainers,
    event_subscriptions,
    subscriptions,
    outbox,
    execute,
    runs,
    reactions,
    tasks,
    values,
    wallet,
    health,
)


def server_app(door: Door, pages: Mapping[str, StaticFile]) -> ASGIApp:
    """Everything; `pages` are static files by their paths."""
    described = Routes("health")

    @cache
    def document() -> dict[str, Any]:
        return describe(app)

    @described.add("GET", "/openapi.json", role=Role.READ)
    async def get_openapi() -> Response:
        """This description."""
        return json_response(document())

    app = _app(door, [*(noun.routes for noun in NOUNS), described])
    add_pages(app, pages)
    return Guard(app, door)


def health_app(door: Door) -> ASGIApp:
    """`/metrics`, `/healthz` and `/readyz` alone."""
    return Guard(_app(door, [health.routes]), door)


def _app(door: Door, nouns: Iterable[Routes]) -> FastAPI:
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.state.door = door
    for noun in nouns:
        noun.enter(app)
    for kind, handler in (
        (TapeError, errors.refused),
        (RequestValidationError, errors.malformed),
        (HTTPException, errors.unroutable),
        (Exception, errors.failed),
    ):
        app.add_exception_handler(kind, handler)
    return app


def add_pages(app: FastAPI, pages: Mapping[str, StaticFile]) -> None:
    """Serve static pages. They may load and ask for what this server has, and nothing else.

    No token is needed for them: they hold nothing, and ask for the reader's token themselves.
    """
    for path, page in pages.items():
        app.add_route(path, _serving(page), methods=["GET"], include_in_schema=False)


def _serving(page: StaticFile) -> Callable[[Request], Awaitable[Response]]:
    tag = f'"{hashlib.sha256(page.content).hexdigest()[:32]}"'
    headers = {
        "etag": tag,
        "cache-control": "no-cache",
        "content-security-policy": POLICY,
        "x-frame-options": "DENY",
    }

    async def serve(request: Request) -> Response:
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(page.content, headers=headers, media_type=page.media_type)

    return serve
