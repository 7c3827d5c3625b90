"""How an endpoint is declared: its path, the role it needs, what it answers, and how it can refuse.

The role is checked before anything of the body is read. A body is JSON and says so: a page of
another site can make a browser post a form or plain text to a loopback server, but not JSON. It is
read up to the limit and no further. Where nothing in the body is needed it may be left out, by
whoever is no page: a browser names the `Origin` of every POST.
"""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Annotated, Any

import orjson
from fastapi import Depends, FastAPI, Request, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope

from tape.api.http.door import Door
from tape.api.http.openapi import ANYBODY, ROLE, errors_of
from tape.calls.role import Role
from tape.errors import InvalidArgument, PermissionDenied, TooLarge

Endpoint = Callable[..., Awaitable[Any]]


async def _door_of(request: Request) -> Door:
    door: Door = request.app.state.door
    return door


TheDoor = Annotated[Door, Depends(_door_of)]

_WITH_BODY = frozenset({"POST", "PUT"})


class Routes:
    """The endpoints of one noun."""

    def __init__(self, noun: str) -> None:
        self._noun = noun
        self._declared: list[dict[str, Any]] = []

    def add(
        self,
        method: str,
        path: str,
        *,
        role: Role | None,
        reply: Any = None,
        refusals: tuple[int, ...] = (),
        responses: dict[int | str, dict[str, Any]] | None = None,
    ) -> Callable[[Endpoint], Endpoint]:
        """`role` None is for anybody, token or not. `refusals` are the statuses that this endpoint
        has besides those that all have."""

        def declare(endpoint: Endpoint) -> Endpoint:
            self._declared.append(
                {
                    "path": path,
                    "endpoint": endpoint,
                    "methods": [method],
                    "response_model": reply,
                    "tags": [self._noun],
                    "summary": (endpoint.__doc__ or "").strip().splitlines()[0],
                    "responses": {
                        **errors_of(method, role=role, more=refusals),
                        **(responses or {}),
                    },
                    "openapi_extra": {ROLE: role.name.lower() if role is not None else ANYBODY},
                    "operation_id": endpoint.__name__,
                }
            )
            return endpoint

        return declare

    def enter(self, app: FastAPI) -> None:
        """Have an application answer them."""
        app.router.route_class = _GuardedRoute
        for declared in self._declared:
            app.add_api_route(**declared)


class _GuardedRoute(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        name = (self.openapi_extra or {}).get(ROLE)
        if name is None:
            return _refuse_everybody
        needed = None if name == ANYBODY else Role[name.upper()]
        takes_body = not _WITH_BODY.isdisjoint(self.methods or ())
        needs_body = self.body_field is None or self.body_field.field_info.is_required()

        async def guarded(request: Request) -> Response:
            door: Door = request.app.state.door
            if needed is not None:
                door.tokens.check(request.headers.get("authorization", ""), needed)
            if takes_body:
                if needs_body or not _is_bare(request):
                    _check_content_type(request.headers.get("content-type", ""))
                with door.room_for_body() as take:
                    body = await _read(request, door.limits.request_bytes, take)
                    request = _JsonRequest(request.scope, request.receive, body)
                    with door.room_for_request():
                        return await handle(request)
            if needed is None:
                return await handle(request)  # health is told however much else there is to do
            with door.room_for_request():
                return await handle(request)

        return guarded


async def _refuse_everybody(_request: Request) -> Response:
    raise PermissionDenied("this endpoint has no role, so nobody may call it")


class _JsonRequest(Request):
    """A request whose body has been read and parsed by our own rules."""

    def __init__(self, scope: Scope, receive: Receive, body: bytes) -> None:
        super().__init__(scope, receive)
        self._text = body
        self._document = _parsed(body) if body else None

    async def body(self) -> bytes:
        return self._text

    async def json(self) -> Any:
        return self._document


def _is_bare(request: Request) -> bool:
    """Whether it comes without a body, and not from a page."""
    unwanted = ("content-type", "origin", "transfer-encoding")
    has_none = request.headers.get("content-length", "0") == "0"
    return has_none and not any(name in request.headers for name in unwanted)


def _check_content_type(content_type: str) -> None:
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(415, "send JSON, with content-type: application/json")


async def _read(request: Request, most: int, take: Callable[[int], None]) -> bytes:
    parts, size = [], 0
    declared = request.headers.get("content-length", "")
    if declared.isdecimal():
        _check_size(int(declared), most)
    try:
        async for part in request.stream():
            size += len(part)
            _check_size(size, most)
            take(len(part))
            parts.append(part)
    except ClientDisconnect:
        raise HTTPException(400, "the connection ended before the body did") from None
    return b"".join(parts)


def _check_size(size: int, most: int) -> None:
    if size > most:
        raise TooLarge(f"the body has more than {most} bytes")


def _parsed(body: bytes) -> Any:
    """NaN, infinities, lone surrogates and what is nested too deeply are no JSON here."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidArgument(
            f"not valid JSON: {error.msg}", field="body", position=error.pos
        ) from None
