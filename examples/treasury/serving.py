"""HTTP around the counterparties: what a request must bring, and how an answer leaves.

Every answer is JSON; one that is not 2xx holds a `reason`.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from examples.treasury.desk import AckWithheld, Away
from examples.treasury.refusals import Body, Refusal


def get(path: str, read: Callable[[], object]) -> Route:
    async def answer(_request: Request) -> object:
        return read()

    return _route("GET", path, answer)


def get_by(path: str, parameter: str, read: Callable[[str], object]) -> Route:
    """Read by the value of a parameter of the query."""

    async def answer(request: Request) -> object:
        value = request.query_params.get(parameter)
        if not value:
            raise Refusal(f"ask with ?{parameter}=", HTTPStatus.BAD_REQUEST)
        return read(value)

    return _route("GET", path, answer)


def post(path: str, act: Callable[[Body], object]) -> Route:
    async def answer(request: Request) -> object:
        return act(await _body(request))

    return _route("POST", path, answer)


def post_keyed(path: str, act: Callable[[str, Body], object]) -> Route:
    """Act with the request's Idempotency-Key and body."""

    async def answer(request: Request) -> object:
        key = request.headers.get("idempotency-key")
        if not key:
            raise Refusal("send an Idempotency-Key", HTTPStatus.BAD_REQUEST)
        return act(key, await _body(request))

    return _route("POST", path, answer)


def post_to(path: str, act: Callable[[str], object]) -> Route:
    """Act on what the path names as `{id}`."""

    async def answer(request: Request) -> object:
        return act(request.path_params["id"])

    return _route("POST", path, answer)


def delete(path: str, act: Callable[[], None]) -> Route:
    async def answer(_request: Request) -> object:
        act()
        return {}

    return _route("DELETE", path, answer)


class CanHangUp(H11Protocol):
    """Hands the application its connection, which ASGI has no way to break off."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = {**self.app_state, "connection": transport}


async def _hang_up(request: Request, _withheld: Exception) -> Response:
    request.state.connection.abort()
    while (await request.receive())["type"] != "http.disconnect":
        pass
    return Response()  # goes nowhere: the connection is gone


async def _refused(_request: Request, refusal: Exception) -> Response:
    assert isinstance(refusal, Refusal)  # noqa: S101 - registered for that type
    return _reason(refusal.status, refusal.reason)


async def _away(_request: Request, away: Exception) -> Response:
    return _reason(HTTPStatus.SERVICE_UNAVAILABLE, str(away))


async def _unroutable(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for that type
    reason = f"{request.method} {request.url.path}: {error.detail}"
    return _reason(HTTPStatus(error.status_code), reason, error.headers)


ERRORS = {Refusal: _refused, Away: _away, AckWithheld: _hang_up, HTTPException: _unroutable}


def _route(method: str, path: str, answer: Callable[[Request], Awaitable[object]]) -> Route:
    async def endpoint(request: Request) -> Response:
        return JSONResponse(await answer(request))

    return Route(path, endpoint, methods=[method])


async def _body(request: Request) -> Body:
    try:
        body = await request.json()
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise Refusal(f"the body is not JSON: {error}", HTTPStatus.BAD_REQUEST) from None
    if not isinstance(body, dict):
        raise Refusal("the body is not a JSON object", HTTPStatus.BAD_REQUEST)
    return body


def _reason(
    status: HTTPStatus, reason: str, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    return JSONResponse({"reason": reason}, status_code=status, headers=headers)
