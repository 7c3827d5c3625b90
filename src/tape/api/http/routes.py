"""How an endpoint is declared: its path, the role it needs, what it answers, and how it can refuse.

The role is checked before anything of the body is read. A body is JSON and says so: a page of
another site can make a browser post a form or plain text to a loopback server, but not JSON. It is
read up to the limit and no further. Where nothing in the body is needed it may be left out, by
whoever is no page: a browser names the `Origin` of every POST. An endpoint that reads its body
itself takes the kinds that it names, and of those no page can post any either.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Annotated, Any, Final, NamedTuple

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

JSON: Final = "application/json"
MOST_BYTES: Final = "x-tape-most-bytes"
_WITH_BODY = frozenset({"POST", "PUT"})


class OwnBody(NamedTuple):
    """A body that an endpoint reads itself: a schema for each kind of it, and its largest size."""

    schemas: Mapping[str, Any]
    most_bytes: int

    @property
    def described(self) -> dict[str, Any]:
        content = {kind: {"schema": schema} for kind, schema in self.schemas.items()}
        return {
            "requestBody": {"required": True, "content": content},
            MOST_BYTES: self.most_bytes,
        }


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
        body: OwnBody | None = None,
    ) -> Callable[[Endpoint], Endpoint]:
        """`role` None is for anybody, token or not. `refusals` are the statuses that this endpoint
        has besides those that all have. With a `body` the endpoint takes the request itself."""

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
                    "openapi_extra": {
                        ROLE: role.name.lower() if role is not None else ANYBODY,
                        **(body.described if body is not None else {}),
                    },
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
        said = self.openapi_extra or {}
        name, own = said.get(ROLE), said.get("requestBody")
        if name is None:
            return _refuse_everybody
        kinds = tuple(own["content"]) if own is not None else (JSON,)
        needed = None if name == ANYBODY else Role[name.upper()]
        takes_body = not _WITH_BODY.isdisjoint(self.methods or ())
        needs_body = self.body_field is None or self.body_field.field_info.is_required()

        async def guarded(request: Request) -> Response:
            door: Door = request.app.state.door
            if needed is not None:
                door.tokens.check(request.headers.get("authorization", ""), needed)
            if takes_body:
                kind = kind_of(request)
                if kind not in kinds and (needs_body or not _is_bare(request)):
                    raise HTTPException(415, _wanted(kinds))
                with door.room_for_body() as take:
                    most = door.limits.request_bytes
                    body = await _read(request, min(most, said.get(MOST_BYTES, most)), take)
                    request = _ReadRequest(
                        request.scope,
                        request.receive,
                        body,
                        is_json=own is None and kind in (JSON, ""),
                    )
                    with door.room_for_request():
                        return await handle(request)
            if needed is None:
                return await handle(request)  # health is told however much else there is to do
            with door.room_for_request():
                return await handle(request)

        return guarded


async def _refuse_everybody(_request: Request) -> Response:
    raise PermissionDenied("this endpoint has no role, so nobody may call it")


class _ReadRequest(Request):
    """A request whose body has been read, and JSON parsed by our own rules, unless the endpoint
    reads what it gets itself."""

    def __init__(self, scope: Scope, receive: Receive, body: bytes, *, is_json: bool) -> None:
        super().__init__(scope, receive)
        self._text = body
        self._document = _parsed(body) if body and is_json else None

    async def body(self) -> bytes:
        return self._text

    async def json(self) -> Any:
        return self._document


def _is_bare(request: Request) -> bool:
    """Whether it comes without a body, and not from a page."""
    unwanted = ("content-type", "origin", "transfer-encoding")
    has_none = request.headers.get("content-length", "0") == "0"
    return has_none and not any(name in request.headers for name in unwanted)


def _wanted(kinds: tuple[str, ...]) -> str:
    if kinds == (JSON,):
        return f"send JSON, with content-type: {JSON}"
    return f"send one of these, with its content-type: {', '.join(kinds)}"


def kind_of(request: Request) -> str:
    """What its body is, as it says."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


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
