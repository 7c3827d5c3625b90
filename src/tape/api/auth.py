"""Who may do what: bearer tokens with roles, and what may be exposed without them.

Tokens are kept as digests. Every known one is compared, in constant time, whatever is presented, so
neither a match nor its place can be timed. No token appears in a log or an error.
"""

import hashlib
import hmac
import ipaddress
import socket
from collections.abc import Iterable
from pathlib import Path

from tape.calls.role import Role
from tape.errors import InvalidArgument, PermissionDenied, Unauthenticated, Unsafe
from tape.telemetry.secret_files import warn_of_readers

BEARER = "bearer "


class Tokens:
    """The tokens a server accepts. None at all means that everyone may do everything."""

    def __init__(self, granted: Iterable[tuple[Role, str]] = ()) -> None:
        self._granted = [(_digest(token), role) for role, token in granted]

    @classmethod
    def parse(cls, text: str) -> "Tokens":
        """`role:token,role:token`, as a setting or the environment holds it."""
        parts = [part.strip() for part in text.split(",") if part.strip()]
        if not parts:
            told = _NONE_FOUND.format("the text is empty", "role:token")
            raise InvalidArgument(told, field="tokens")
        return cls(_grant(*part.partition(":")[::2], number) for number, part in enumerate(parts))

    @classmethod
    def read(cls, path: Path) -> "Tokens":
        """A file with `role token` on each line; blank lines and `#` comments are skipped."""
        try:
            text = path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidArgument(f"cannot be read: {error}", field=str(path)) from None
        lines = [line.split(None, 1) for line in text.splitlines()]
        granted = [
            _grant(line[0], line[-1].strip(), number)
            for number, line in enumerate(lines)
            if line and not line[0].startswith("#")
        ]
        if not granted:
            told = _NONE_FOUND.format("the file has none", "a line `role token`")
            raise InvalidArgument(told, field=str(path))
        warn_of_readers(path, "tokens")
        return cls(granted)

    def __bool__(self) -> bool:
        return bool(self._granted)

    def holder(self, authorization: str) -> str:
        """A name for whoever presents a token, the same each time; empty without tokens."""
        if not self._granted:
            return ""
        return _digest(authorization[len(BEARER) :].strip()).hex()

    def check(self, authorization: str, needed: Role) -> None:
        """Let an `authorization` header pass, or say why not."""
        if not self._granted:
            return
        if not authorization.lower().startswith(BEARER):
            raise Unauthenticated
        presented = _digest(authorization[len(BEARER) :].strip())
        held = 0
        for digest, role in self._granted:
            held = max(held, role * hmac.compare_digest(digest, presented))
        if not held:
            raise Unauthenticated
        if held < needed:
            raise PermissionDenied(
                f"this needs the role {needed.name.lower()}, "
                f"the token has {Role(held).name.lower()}"
            )


_NONE_FOUND = (
    "tokens are required but {}, so every client could do everything: add {}, or do not require "
    "tokens"
)


def check_exposure(host: str, *, tokens: bool, tls: bool, insecure: bool) -> None:
    """Refuse to listen where others can connect without a token, or read along."""
    if is_loopback(host):
        return
    where = host or "every interface"
    if not tokens:
        raise Unsafe(
            f"{where} can be reached by other machines: give tokens, or listen on 127.0.0.1"
        )
    if not tls and not insecure:
        raise Unsafe(
            f"tokens would cross {where} unencrypted: give a certificate and key, or insecure if "
            "a proxy or the network encrypts"
        )


def check_private(peer: str, *, tls: bool) -> None:
    """Refuse a secret that has come from the address `peer` so that others could read along. There
    is no set-up that allows it."""
    if not tls and not _is_own(peer):
        raise Unsafe(
            "a credential comes in over TLS, or from this machine by loopback, and in no other "
            "way: consider this value as read by others, and put another one over TLS"
        )


def is_loopback(host: str) -> bool:
    """Whether a host, or every address its name stands for, is this machine's own."""
    try:
        found = socket.getaddrinfo(host.strip("[]"), None) if host else []
    except (OSError, UnicodeError):
        return False
    return bool(found) and all(_is_own(str(address[4][0])) for address in found)


def _is_own(address: str) -> bool:
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(ip, "ipv4_mapped", None)
    return (mapped or ip).is_loopback


def _grant(role: str, token: str, number: int) -> tuple[Role, str]:
    field = f"tokens[{number}]"
    try:
        granted = Role[role.strip().upper()]
    except KeyError:
        raise InvalidArgument("a role is read, write or admin", field=field) from None
    if not token.strip():
        raise InvalidArgument("a token follows the role", field=field)
    if not token.isascii() or not token.isprintable() or " " in token.strip():
        raise InvalidArgument("a token is printable ASCII without spaces", field=field)
    return granted, token.strip()


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="replace")).digest()
