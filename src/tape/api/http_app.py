"""What the HTTP door answers: each route with the role it needs, and every error as JSON.

`/healthz` says that the process lives, `/readyz` that the store answers; neither needs a token.
Whatever goes wrong is `{"error": {"reason": …, "message": …}}`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tape.api.auth import Role, Tokens
from tape.bus import Operations
from tape.errors import PermissionDenied, StoreUnavailable, TapeError, Unauthenticated
from tape.telemetry import exposition, metrics

log = logging.getLogger(__name__)

Endpoint = Callable[[Request], Awaitable[Response]]
Refresh = Callable[[], Awaitable[None]]

READY_S = 2.0
REFRESH_S = 5.0

STATUSES: dict[type[TapeError], HTTPStatus] = {
    TapeError: HTTPStatus.INTERNAL_SERVER_ERROR,
    Unauthenticated: HTTPStatus.UNAUTHORIZED,
    PermissionDenied: HTTPStatus.FORBIDDEN,
    StoreUnavailable: HTTPStatus.SERVICE_UNAVAILABLE,
}


def http_app(operations: Operations, tokens: Tokens, refresh: Refresh) -> Starlette:
    """`refresh` brings the gauges of what the store holds up to date before each scrape."""

    def route(path: str, endpoint: Endpoint, *, needs: Role | None) -> Route:
        async def guarded(request: Request) -> Response:
            if needs is not None:
                tokens.check(request.headers.get("authorization", ""), needs)
            return await endpoint(request)

        return Route(path, guarded, name=path)

    async def ready(_request: Request) -> Response:
        try:
            async with asyncio.timeout(READY_S):
                await operations.info()
        except TimeoutError:
            raise StoreUnavailable(f"the store did not answer within {READY_S:g} s") from None
        except StoreUnavailable:  # its own words name hosts, and anybody may ask
            raise StoreUnavailable("the store cannot be reached") from None
        return JSONResponse({"status": "ready"})

    async def scrape(request: Request) -> Response:
        await _refreshed(refresh)
        # On a thread: with thousands of reactions it is megabytes of text.
        text, kind = await asyncio.to_thread(exposition.render, request.headers.get("accept", ""))
        return Response(text, headers={"content-type": kind})

    app = Starlette(
        routes=[
            route("/healthz", _alive, needs=None),
            route("/readyz", ready, needs=None),
            route("/metrics", scrape, needs=Role.READ),
        ],
        exception_handlers={
            TapeError: _refused,
            HTTPException: _unroutable,
            Exception: _failed,
        },
    )
    app.router.redirect_slashes = False
    return app


async def _alive(_request: Request) -> Response:
    return JSONResponse({"status": "alive"})


async def _refreshed(refresh: Refresh) -> None:
    """A store that is away costs the scrape its gauges, not the rest."""
    try:
        async with asyncio.timeout(REFRESH_S):
            await refresh()
    except (TapeError, TimeoutError) as error:
        log.warning("the metrics of the store are old: %s", error or "it does not answer")
        metrics.STORE_UP.set(0)
    else:
        metrics.STORE_UP.set(1)


def _refused(_request: Request, error: Exception) -> Response:
    status = next(STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)
    headers = {"www-authenticate": "Bearer"} if status == HTTPStatus.UNAUTHORIZED else None
    return _error(status, getattr(error, "reason", "INTERNAL"), str(error), headers)


def _unroutable(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for that type
    status = HTTPStatus(error.status_code)
    return _error(status, status.name, error.detail, error.headers)


def _failed(_request: Request, _fault: Exception) -> Response:
    return _error(
        HTTPStatus.INTERNAL_SERVER_ERROR, "INTERNAL", "the server has a fault; see its log"
    )


def _error(
    status: HTTPStatus, reason: str, message: str, headers: Mapping[str, str] | None = None
) -> Response:
    content = {"error": {"reason": reason, "message": message}}
    return JSONResponse(content, status_code=status, headers=headers)
