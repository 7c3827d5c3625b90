"""The HTTP door: what a server or a worker answers to whoever may ask."""

import asyncio
from collections.abc import Callable, Mapping

from starlette.types import ASGIApp, Receive, Scope, Send

from tape.api.auth import check_exposure
from tape.api.embedded_server import EmbeddedServer
from tape.api.http.door import Door, StaticFile
from tape.api.listening import Tls, split_address

FIELD = "http"


def server_app(door: Door, pages: Mapping[str, StaticFile]) -> ASGIApp:
    """Everything that a server answers."""
    from tape.api.http import app

    return app.server_app(door, pages)


def health_app(door: Door) -> ASGIApp:
    """What a worker answers."""
    from tape.api.http import app

    return app.health_app(door)


class HttpServer:
    """Make it on the event loop it will serve on."""

    def __init__(self, build: Callable[[], ASGIApp], door: Door) -> None:
        self._door = door
        self._server = EmbeddedServer(_BuiltWhenAsked(build), door.settings, field=FIELD)

    async def start(self, address: str, *, tls: Tls | None = None, insecure: bool = False) -> str:
        """Listen, and the address with the real port."""
        host, _port = split_address(address, field=FIELD)
        tokens = bool(self._door.tokens)
        check_exposure(host, tokens=tokens, tls=tls is not None, insecure=insecure)
        self._door.host = host.lower()
        return await self._server.start(address, tls=tls)

    async def stop(self) -> None:
        """Take no more, answer what was taken, cut what is left after a while."""
        self._door.end()
        await self._server.stop()


class _BuiltWhenAsked:
    """The application, from its first request on: loading it takes longer than all else of a start,
    and many servers are never asked over HTTP."""

    def __init__(self, build: Callable[[], ASGIApp]) -> None:
        self._build = build
        self._building = asyncio.Lock()
        self._app: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._building:
            if self._app is None:
                self._app = await asyncio.to_thread(self._build)
        await self._app(scope, receive, send)
