"""Logins to NATS: of the environment, and of credentials of the wallet.

    {"servers": ["nats://HOST:PORT", …], "user": …, "password": …, "tls": {"ca": …, "cert": …,
     "key": …, "host": …, "first": true}}

Instead of `user` and `password` there may be a `token`, an `nkey_seed`, or `creds`, the text of a
file of credentials, or none. Certificates and keys are PEM texts. A server `tls://…` or `tls` lets
nothing be sent unencrypted. A publish target has its own address: of the `servers` it takes that
alone.
"""

import os
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from tape.brokers.credential_fields import CredentialFields, read_fields
from tape.brokers.nats_connection import Login, NatsTls
from tape.brokers.targets import parse_nats_url
from tape.errors import InvalidArgument, NoCredential
from tape.ports.credentials import OpenedCredential
from tape.telemetry.secret_files import warn_of_readers

_WAYS: Final = (("user", "password"), ("token",), ("nkey_seed",), ("creds",))
_TLS: Final = ("ca", "cert", "key", "host", "first")


class NatsAddress(NamedTuple):
    """`hosts` is empty if the credential names no servers."""

    hosts: tuple[str, ...]
    login: Login

    def __repr__(self) -> str:  # that of a tuple would show the login
        return f"NatsAddress({self.shown})"

    @property
    def shown(self) -> str:
        return f"nats://{','.join(self.hosts)}"


def environment_login() -> Login:
    """That of TAPE_NATS_CREDENTIALS, or of TAPE_NATS_USER and TAPE_NATS_PASSWORD."""
    if credentials := os.environ.get("TAPE_NATS_CREDENTIALS"):
        warn_of_readers(Path(credentials), "NATS login")
        return {"user_credentials": credentials}
    if user := os.environ.get("TAPE_NATS_USER"):
        return {"user": user, "password": os.environ.get("TAPE_NATS_PASSWORD", "")}
    return {}


def logins_of(credential: OpenedCredential) -> list[Login]:
    """What to try, in this order: those of a credential, or that of the environment."""
    addresses = read_fields(credential, "nats", read_nats)
    return [address.login for address in addresses] or [environment_login()]


def read_nats(given: CredentialFields) -> NatsAddress:
    """NoCredential names what is wrong with a credential, and repeats nothing of it."""
    given.only("servers", "tls", *(name for way in _WAYS for name in way))
    servers = given.texts("servers") if given.has("servers") else []
    schemes = {server.partition("://")[0] if "://" in server else "" for server in servers}
    bare = [server.rpartition("://")[2] for server in servers]
    try:
        hosts = tuple(host for one in bare for host in parse_nats_url(f"nats://{one}", field=""))
    except InvalidArgument:
        raise given.refused(
            "servers", "is not a list of nats://HOST:PORT, without logins"
        ) from None
    if not schemes <= {"", "nats", "tls"}:
        raise given.refused("servers", "is not a list of nats://HOST:PORT or tls://HOST:PORT")
    login = _login(given)
    if (tls := _tls(given, wanted="tls" in schemes)) is not None:
        login["tls"] = tls
    return NatsAddress(hosts, login)


def _login(given: CredentialFields) -> Login:
    ways = [way for way in _WAYS if any(given.has(name) for name in way)]
    if len(ways) > 1:
        raise given.refused(ways[1][0], f"stands beside {ways[0][0]}; give one login")
    return cast("Login", {name: given.text(name) for way in ways for name in way})


def _tls(given: CredentialFields, *, wanted: bool) -> NatsTls | None:
    told = given.value("tls")
    if told is None or told is False:
        return NatsTls(ssl.create_default_context()) if wanted else None
    if told is True:
        told = {}
    if not isinstance(told, Mapping) or not told.keys() <= set(_TLS):
        raise given.refused("tls", f"is not an object of {', '.join(_TLS)}")
    first = told.get("first", False)
    if not isinstance(first, bool) or not all(
        isinstance(told.get(name, ""), str) for name in _TLS[:-1]
    ):
        raise given.refused(
            "tls", "has texts as ca, cert, key and host, and first is true or false"
        )
    try:
        return NatsTls(_context(told), told.get("host", ""), first)
    except (ssl.SSLError, ValueError):
        raise given.refused("tls", "has a ca, cert or key that is not PEM, or do not fit") from None


def _context(told: Mapping[str, Any]) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=told.get("ca") or None)
    if told.get("cert") or told.get("key"):
        with _in_memory(f"{told.get('cert', '')}\n{told.get('key', '')}\n") as pair:
            context.load_cert_chain(pair)
    return context


@contextmanager
def _in_memory(text: str) -> Iterator[str]:
    """A file that is on no disk: Python reads certificates and keys from files alone."""
    if not hasattr(os, "memfd_create"):
        raise NoCredential("cert and key of a credential need Linux")
    with os.fdopen(os.memfd_create("tape", os.MFD_CLOEXEC), "w") as file:
        file.write(text)
        file.flush()
        yield f"/proc/self/fd/{file.fileno()}"
