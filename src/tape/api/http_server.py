"""The HTTP door: an application served inside the event loop that is already there."""

import asyncio
import errno
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from socket import socket

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from tape.api.auth import check_exposure
from tape.api.http.connections import OpenConnections, guarded_protocol
from tape.api.http.door import Door, StaticFile
from tape.api.listening import Tls, bind, split_address
from tape.api.port_owner import in_use
from tape.errors import InvalidArgument

DRAIN_S = 30
FLUSH_S = 1.5


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
        self._app = _BuiltWhenAsked(build)
        self._door = door
        self._server: _Embedded | None = None
        self._serving: asyncio.Task[None] | None = None

    async def start(self, address: str, *, tls: Tls | None = None, insecure: bool = False) -> str:
        """Listen, and the address with the real port."""
        host, port = split_address(address, field="http")
        tokens = bool(self._door.tokens)
        check_exposure(host, tokens=tokens, tls=tls is not None, insecure=insecure)
        self._door.host = host.lower()
        open_connections = OpenConnections(self._door.settings)
        config = _config(self._app, tls, open_connections)
        try:
            sockets = bind(host, port)
        except OSError as error:
            why = f"cannot listen on {address}: {error.strerror}"
            if error.errno == errno.EADDRINUSE:
                why = in_use(address, port)
            raise InvalidArgument(why, field="http") from None
        self._server = _Embedded(config, open_connections)
        self._serving = asyncio.create_task(self._server.serve(sockets), name="tape-http")
        await self._server.listening.wait()
        if self._serving.done():
            self._serving.result()
        return f"{host}:{sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        """Take no more, answer what was taken, cut what is left after a while."""
        self._door.end()
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            while not self._serving.done():
                await asyncio.wait((self._serving,), timeout=FLUSH_S)
                self._server.cut_off_unfinished()
            self._serving.result()


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


class _Embedded(uvicorn.Server):
    """Leaves signals to the process, and says when it listens."""

    def __init__(self, config: uvicorn.Config, open_connections: OpenConnections) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()
        self._open_connections = open_connections

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def cut_off_unfinished(self) -> None:
        """Leave clients that have not sent a whole request, or do not take what was answered; what
        is still being done goes on."""
        unfinished, paused = self._open_connections.unfinished, self._open_connections.paused
        for connection in list(self.server_state.connections):
            is_left = connection in unfinished or connection in paused
            if is_left or connection.transport.is_closing():
                connection.transport.abort()

    async def startup(self, sockets: list[socket] | None = None) -> None:
        """As uvicorn does it, and with an end for clients that never finish to agree on TLS."""
        await self.lifespan.startup()
        loop, tls = asyncio.get_running_loop(), self.config.ssl
        self.servers = []
        try:
            for sock in sockets or ():
                listening = await loop.create_server(
                    self._protocol,
                    sock=sock,
                    ssl=tls,
                    backlog=self.config.backlog,
                    ssl_handshake_timeout=self._open_connections.settings.header_s if tls else None,
                )
                self.servers.append(listening)
            self.started = True
        finally:
            self.listening.set()

    def _protocol(self) -> asyncio.Protocol:
        make: Callable[..., asyncio.Protocol] = self.config.http_protocol_class
        return make(config=self.config, server_state=self.server_state, app_state={})


def _config(app: ASGIApp, tls: Tls | None, open_connections: OpenConnections) -> uvicorn.Config:
    config = uvicorn.Config(
        app,
        ssl_certfile=tls.certificate if tls else None,
        ssl_keyfile=tls.key if tls else None,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        http=guarded_protocol(open_connections),
        timeout_graceful_shutdown=DRAIN_S,
    )
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise InvalidArgument(f"cannot be read: {error}", field="tls") from None
    return config
