"""uvicorn inside the event loop that is already there: it listens, answers, and ends when told.

What is served decides who may ask; here every connection has the limits of `OpenConnections`.
"""

import asyncio
import errno
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from socket import socket

import uvicorn
from starlette.types import ASGIApp

from tape.api.http.connections import OpenConnections, guarded_protocol
from tape.api.listening import Tls, bind, split_address
from tape.api.port_owner import in_use
from tape.errors import InvalidArgument
from tape.settings import DoorSettings

DRAIN_S = 30
FLUSH_S = 1.5


class EmbeddedServer:
    """Make it on the event loop it will serve on. `field` names its address in errors."""

    def __init__(self, app: ASGIApp, settings: DoorSettings, *, field: str) -> None:
        self._app = app
        self._settings = settings
        self._field = field
        self._server: _Embedded | None = None
        self._serving: asyncio.Task[None] | None = None

    async def start(self, address: str, *, tls: Tls | None = None) -> str:
        """Listen, and the address with the real port."""
        host, port = split_address(address, field=self._field)
        open_connections = OpenConnections(self._settings)
        config = _config(self._app, tls, open_connections)
        try:
            sockets = bind(host, port)
        except OSError as error:
            why = f"cannot listen on {address}: {error.strerror}"
            if error.errno == errno.EADDRINUSE:
                why = in_use(address, port)
            raise InvalidArgument(why, field=self._field) from None
        self._server = _Embedded(config, open_connections)
        self._serving = asyncio.create_task(self._server.serve(sockets), name=f"tape-{self._field}")
        await self._server.listening.wait()
        if self._serving.done():
            self._serving.result()
        return f"{host}:{sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        """Take no more, answer what was taken, cut what is left after a while."""
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            while not self._serving.done():
                await asyncio.wait((self._serving,), timeout=FLUSH_S)
                self._server.cut_off_unfinished()
            self._serving.result()


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
