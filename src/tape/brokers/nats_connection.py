"""A connection to NATS, until it is lost: whoever wants another opens another.

The client does not reconnect by itself: what it buffers while away would reach the server after we
had given up on it.
"""

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js.client import JetStreamContext

from tape.brokers.nats_headers import WholeHeadersClient
from tape.brokers.nats_nkey import NatsKey, read_nats_credentials
from tape.errors import BrokerUnavailable, InvalidArgument

ANSWER_S = 10.0
CONNECT_S = 5.0
CLOSE_S = 2.0
_LOGIN_REFUSED = ("authorization violation", "authentication expired", "authentication revoked")
_WORDS = (
    (TimeoutError, "no answer in time"),
    (ssl.SSLError, "the TLS handshake failed"),
    (socket.gaierror, "its name cannot be resolved"),
)


class LoginRefused(BrokerUnavailable):
    """The broker does not take the login, or its certificate is not one that is trusted."""


class Login(TypedDict, total=False):
    """`user_credentials` is the path of a file of credentials, `creds` the text of one. With `tls`
    nothing is sent unencrypted."""

    user: str
    password: str
    token: str
    user_credentials: str
    creds: str
    nkey_seed: str
    tls: "NatsTls"


class NatsTls(NamedTuple):
    """Nothing is sent unencrypted. `host` is whom the certificate must be for, empty for whom one
    connects to; with `first` the handshake comes before the server's greeting."""

    context: ssl.SSLContext
    host: str = ""
    first: bool = False


class _NatsClient(WholeHeadersClient):
    """With a key to sign with, a will for TLS that no server can talk it out of (the library would
    send a login in clear text to a server that offers no TLS), and a flush that flushes.

    All take private names of nats-py; `tests/integration/brokers/test_access.py` logs in with
    each key, `test_nats_flush.py` counts what a flush has left behind.
    """

    def __init__(self, key: NatsKey | None, tls: NatsTls | None) -> None:
        super().__init__()
        self._tls = tls
        if key is not None:
            self._auth_configured = True
            self._public_nkey = key.public

    async def _send_ping(self, future: asyncio.Future[bool] | None = None) -> None:
        """Behind all that waits to be written. The library lets it pass that, and then its answer
        does not say that the server has read what was sent before."""
        if self._pending and self._transport is not None:
            self._transport.writelines(self._pending)
            self._pending, self._pending_data_size = [], 0
        await super()._send_ping(future)

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        if initial_connection and self._tls is not None and not self._tls.first:
            if not (info.get("tls_required") or info.get("tls_available")):
                raise NatsError("the server offers no TLS")
            info["tls_required"] = True
        await super()._process_info(info, initial_connection)


class NatsConnection:
    def __init__(self, login: Login | None = None) -> None:
        """InvalidArgument if the login is not what its field says."""
        self._options: dict[str, Any] = {**(login or {})}
        tls: NatsTls | None = self._options.pop("tls", None)
        creds, path = self._options.pop("creds", ""), self._options.pop("user_credentials", "")
        seed = self._options.pop("nkey_seed", "")
        key = NatsKey(seed) if seed else None
        if path:
            creds = _read(Path(path))
        if path or creds:
            credentials = read_nats_credentials(creds)
            key = credentials.key
            self._options["user_jwt_cb"] = credentials.jwt.encode
        if key is not None:
            self._options["signature_cb"] = key.sign
        if tls is not None:
            self._options.update(tls=tls.context, tls_handshake_first=tls.first)
        self.client = _NatsClient(key, tls)
        self.lost = asyncio.Event()
        self.hung = False
        """Given up on because the server did not answer, not because it closed it."""
        self.forbidden = ""
        """What the server last said that the login may not do."""
        self._was_forbidden = asyncio.Event()
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
        """BrokerUnavailable, with `shown` for the address, if it cannot be made; LoginRefused if
        that is the login's fault. `tls_host` is whom its certificate must be for, where hosts are
        bare addresses; a login may name somebody else."""
        try:
            connection = cls(login)
        except InvalidArgument as fault:
            raise LoginRefused(f"{shown}: {fault}") from None
        try:
            tls = login.get("tls")
            tls_name = tls.host if tls and tls.host else tls_host
            await asyncio.wait_for(connection._connect(hosts, name, tls_name), CONNECT_S)
        except (NatsError, OSError, TimeoutError) as error:
            await connection.close()
            raise connection._refusal(error, shown) from None
        except BaseException:
            await connection.close()
            raise
        return connection

    @classmethod
    async def let_in(
        cls,
        hosts: Sequence[str],
        logins: Sequence[Login],
        shown: str,
        *,
        name: str = "tape",
        tls_host: str | None = None,
    ) -> "NatsConnection":
        """With the first of the logins that gets in: while a login is being changed, the server
        knows either the new one or the one before."""
        *others, last = logins
        for login in others:
            with contextlib.suppress(BrokerUnavailable):
                return await cls.open(hosts, login, shown, name=name, tls_host=tls_host)
        return await cls.open(hosts, last, shown, name=name, tls_host=tls_host)

    @property
    def jetstream(self) -> JetStreamContext:
        if self._stream is None:
            self._stream = self.client.jetstream(timeout=ANSWER_S)
        return self._stream

    async def request(self, subject: str, payload: bytes, wait_s: float = ANSWER_S) -> Msg:
        """TimeoutError, a NatsError, BrokerUnavailable if the connection is lost meanwhile, or
        LoginRefused if the login may not ask that."""
        asking = asyncio.ensure_future(self.client.request(subject, payload, timeout=wait_s))
        ends = [
            asyncio.ensure_future(self.lost.wait()),
            asyncio.ensure_future(self._until_forbidden(subject)),
        ]
        try:
            await asyncio.wait((asking, *ends), return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                return asking.result()
            if self.lost.is_set():
                raise BrokerUnavailable("the connection was lost")
            raise LoginRefused(f"the login may not ask that: {self.forbidden}")
        finally:
            for task in (asking, *ends):
                task.cancel()
            await asyncio.gather(asking, *ends, return_exceptions=True)

    async def _until_forbidden(self, subject: str) -> None:
        while subject.lower() not in self.forbidden.lower():
            self._was_forbidden.clear()
            await self._was_forbidden.wait()

    async def close(self) -> None:
        with contextlib.suppress(NatsError, OSError, TimeoutError):
            await asyncio.wait_for(self.client.close(), CLOSE_S)

    async def _connect(self, hosts: Sequence[str], name: str, tls_host: str | None) -> None:
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
            **self._options,
        )

    def _refusal(self, error: Exception, shown: str) -> BrokerUnavailable:
        text = str(error).removeprefix("nats: ").strip("'").lower()
        if isinstance(error, ssl.SSLCertVerificationError):
            return LoginRefused(f"{shown}: its certificate is not trusted: {error.verify_message}")
        if any(words in text for words in _LOGIN_REFUSED):
            return LoginRefused(f"{shown}: the server refuses the login ({text})")
        if text == "the server offers no tls":
            return LoginRefused(f"{shown}: {text}")
        return BrokerUnavailable(f"cannot connect to {shown} ({self._reason or _plainly(error)})")

    async def _note(self, error: Exception) -> None:
        self._reason = _plainly(error)
        text = str(error).removeprefix("nats: ").strip("'")
        if "permissions violation" in text.lower():
            self.forbidden = text
            self._was_forbidden.set()

    async def _closed(self) -> None:
        self.lost.set()


def _plainly(error: Exception) -> str:
    """What went wrong, in the words that an operator knows."""
    for kind, words in _WORDS:
        if isinstance(error, kind):
            return words
    if isinstance(error, OSError):  # asyncio gives none for several addresses that differ in it
        return os.strerror(error.errno).lower() if error.errno else "none of its addresses answers"
    return str(error).removeprefix("nats: ").strip("'") or type(error).__name__


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = type(error).__name__
        raise InvalidArgument(f"cannot be read: {reason}", field="TAPE_NATS_CREDENTIALS") from None
