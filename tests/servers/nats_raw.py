"""Publishing to NATS over a plain socket: subjects and blocks of headers that no client's library
would write."""

import socket
from collections.abc import Sequence


def publish_raw(address: str, subject: str, headers: bytes, body: bytes) -> None:
    """`headers` are the lines after `NATS/1.0`, each with its line end. Returns once the server has
    taken the message."""
    publish_all_raw(address, subject, [(headers, body)])


def publish_all_raw(address: str, subject: str, messages: Sequence[tuple[bytes, bytes]]) -> None:
    publish_each_raw(address, [(subject, headers, body) for headers, body in messages])


def publish_each_raw(address: str, messages: Sequence[tuple[str, bytes, bytes]]) -> None:
    """Each with its subject."""
    publish_blocks(
        address,
        [
            (subject.encode(), b"NATS/1.0\r\n" + headers + b"\r\n", body)
            for subject, headers, body in messages
        ],
    )


def publish_blocks(address: str, messages: Sequence[tuple[bytes, bytes, bytes]]) -> None:
    """Each with its subject and its whole block of headers, whatever bytes they are."""
    host, _, port = address.rpartition("/")[2].partition(":")
    with socket.create_connection((host, int(port))) as sock, sock.makefile("rb") as answers:
        sock.sendall(b'CONNECT {"headers":true,"verbose":false,"pedantic":false}\r\n')
        for subject, block, body in messages:
            sizes = b"%d %d" % (len(block), len(block) + len(body))
            sock.sendall(b"HPUB %s %s\r\n" % (subject, sizes) + block + body + b"\r\n")
        sock.sendall(b"PING\r\n")
        for line in answers:
            if line.startswith(b"-ERR"):
                raise AssertionError(line.decode(errors="replace"))
            if line.startswith(b"PONG"):
                return
    raise AssertionError("the server closed the connection")
