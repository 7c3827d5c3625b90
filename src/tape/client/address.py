"""A server's URL: where it is, and how far the way there can be trusted."""

from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit

import grpc

from tape.errors import InvalidArgument, Unsafe
from tape.settings import DEFAULT_URL
from tape.wire.channel import plain_channel
from tape.wire.loopback import is_loopback

_PORT = urlsplit(DEFAULT_URL).port


class Address(NamedTuple):
    target: str
    secure: bool
    ca: str = ""

    @property
    def is_private(self) -> bool:
        """Whether nobody on the way can read what is sent there."""
        return self.secure or is_loopback(self.target.rpartition(":")[0].strip("[]"))

    def channel(self, options: tuple[tuple[str, object], ...]) -> grpc.aio.Channel:
        if not self.secure:
            return plain_channel(self.target, options)
        try:
            roots = Path(self.ca).read_bytes() if self.ca else None
        except OSError as error:
            raise InvalidArgument(f"ca cannot be read: {error}", field="url") from None
        return grpc.aio.secure_channel(self.target, grpc.ssl_channel_credentials(roots), options)


def parse_address(url: str, *, with_token: bool) -> Address:
    """`tape://host:port`, or `tapes://host:port?ca=FILE` with TLS."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or _PORT
        query = dict(parse_qsl(parts.query, strict_parsing=True)) if parts.query else {}
    except ValueError as error:
        raise InvalidArgument(f"is not a server's URL: {error}", field="url") from None
    if not host or parts.path.strip("/"):
        raise InvalidArgument(f"names no server; use {parts.scheme}://HOST:PORT", field="url")
    if parts.username is not None:
        raise InvalidArgument(
            "put the token into token= or TAPE_TOKEN, not into the URL", field="url"
        )
    secure = parts.scheme == "tapes"
    if unknown := query.keys() - ({"ca"} if secure else {"insecure"}):
        raise InvalidArgument(f"{parts.scheme}: has no setting {min(unknown)!r}", field="url")
    if with_token and not secure and query.get("insecure") != "1" and not is_loopback(host):
        raise Unsafe(
            f"the token would cross the network to {host} unencrypted: use tapes://, or "
            "?insecure=1 if a proxy or the network encrypts"
        )
    return Address(
        f"[{host}]:{port}" if ":" in host else f"{host}:{port}", secure, query.get("ca", "")
    )
