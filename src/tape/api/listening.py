"""What both doors need to listen: an address taken apart, its sockets, and the files of TLS."""

import errno
import socket
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from tape.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class Tls:
    certificate: Path
    key: Path


def split_address(address: str, *, field: str) -> tuple[str, int]:
    """`host:port` or `[v6]:port`; the brackets stay."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise InvalidArgument(f"{address!r} is not HOST:PORT", field=field)
    return host, int(port)


def host_of_peer(peer: str) -> str:
    """The address in what gRPC calls a peer, as HTTP tells it: `ipv4:1.2.3.4:5`, `ipv6:[::1]:5`."""
    kind, _, rest = unquote(peer).partition(":")
    return rest.rpartition(":")[0].strip("[]") if kind in ("ipv4", "ipv6") else peer


def bind(host: str, port: int) -> list[socket.socket]:
    """A socket for each address of the host, all on one port; OSError where there can be none."""
    found = socket.getaddrinfo(
        host.strip("[]") or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    bound: list[socket.socket] = []
    lacking: OSError | None = None
    with ExitStack() as undo:
        for family, _, _, _, (name, _, *rest) in found:
            sock = socket.socket(family, socket.SOCK_STREAM)
            undo.callback(sock.close)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, len(found) > 1)
            try:
                sock.bind((name, port, *rest))
            except OSError as error:  # a name may stand for an address this machine lacks
                if error.errno != errno.EADDRNOTAVAIL:
                    raise
                sock.close()
                lacking = error
                continue
            sock.listen()
            port = sock.getsockname()[1]
            bound.append(sock)
        if lacking and not bound:
            raise lacking
        undo.pop_all()
    return bound
