"""A connection to NATS, until it is lost: whoever wants another opens another.

The client does not reconnect by itself: what it buffers while away would reach the server after we
had given up on it.
"""

import asyncio
import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js.client import JetStreamContext

from tape.errors import BrokerUnavailable
from tape.telemetry.secret_files import warn_of_readers

ANSWER_S = 10.0
CONNECT_S = 5.0
CLOSE_S = 2.0


class Login(TypedDict, total=False):
    user: str
    password: str
    token: str
    user_credentials: str


def environment_login() -> Login:
    """That of TAPE_NATS_CREDENTIALS, or of TAPE_NATS_USER and TAPE_NATS_PASSWORD."""
    if credentials := os.environ.get("TAPE_NATS_CREDENTIALS"):
        warn_of_readers(Path(credentials), "NATS login")
        return {"user_credentials": credentials}
    if user := os.environ.get("TAPE_NATS_USER"):
        return {"user": user, "password": os.environ.get("TAPE_NATS_PASSWORD", "")}
    return {}


class NatsConnection:
    def __init__(self) -> None:
        self.client = Client()
        self.lost = asyncio.Event()
        self.hung = False
        """Given up on because the server did not answer, not because it closed it."""
        self._reason = ""
        self._stream: JetStreamContext | None = None

    @classmethod
    async def open(
        cls,
        hosts: Sequence[str],
        login: Login,
        shown: str,
        *,
        name: str = "tape",
        tls_host: str | None = None,
    ) -> "NatsConnection":
        """BrokerUnavailable, with `shown` for the address, if it cannot be made. `tls_host` is whom
        its certificate must be for, where hosts are bare addresses."""
        connection = cls()
        try:
            await asyncio.wait_for(connection._connect(hosts, login, name, tls_host), CONNECT_S)
        except (NatsError, OSError, TimeoutError) as error:
            await connection.close()
            reason = connection._reason or type(error).__name__
            raise BrokerUnavailable(f"{shown}: {reason}") from None
        except BaseException:
            await connection.close()
            raise
        return connection

    @property
    def jetstream(self) -> JetStreamContext:
        if self._stream is None:
            self._stream = self.client.jetstream(timeout=ANSWER_S)
        return self._stream

    async def close(self) -> None:
        with contextlib.suppress(NatsError, OSError, TimeoutError):
            await asyncio.wait_for(self.client.close(), CLOSE_S)

    async def _connect(
        self, hosts: Sequence[str], login: Login, name: str, tls_host: str | None
    ) -> None:
        await self.client.connect(
            [f"nats://{host}" for host in hosts],
            error_cb=self._note,
            closed_cb=self._closed,
            name=name,
            tls_hostname=tls_host,
            allow_reconnect=False,
            connect_timeout=int(CONNECT_S),
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            **login,
        )

    async def _note(self, error: Exception) -> None:
        self._reason = type(error).__name__

    async def _closed(self) -> None:
        self.lost.set()
