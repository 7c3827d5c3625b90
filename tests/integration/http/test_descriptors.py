"""A server that may open few files, and clients that would take them all."""

import resource
import socket
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.crash import raw_http2
from tests.servers.tape_server import ServerProcess

FILES = 512
HEAD = b"GET /api/events/recent HTTP/1.1\r\nHost: localhost\r\nX-A: "


class Limited(ServerProcess):
    """One whose limits of open files are these."""

    def __init__(self, store: str, *, soft: int, hard: int) -> None:
        super().__init__(store)
        limiting = f'set -e; ulimit -Sn {soft}; ulimit -Hn {hard}; exec "$@"'
        self._command = ["sh", "-c", limiting, "sh", *self._command]


def soft_limit(pid: int) -> int:
    lines = Path(f"/proc/{pid}/limits").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith("Max open files")]
    return int(line.split()[3])


def open_many(stack: ExitStack, address: str, text: bytes) -> None:
    host, port = address.split(":")
    for _ in range(FILES + 50):
        made = stack.enter_context(socket.create_connection((host, int(port)), timeout=10))
        try:
            made.sendall(text)
        except (BrokenPipeError, ConnectionResetError):  # it was turned away
            continue


@pytest.mark.parametrize("door", ["http", "grpc"])
def test_health_is_told_while_connections_would_take_every_file(sqlite_url: str, door: str) -> None:
    with Limited(sqlite_url, soft=FILES, hard=FILES) as server, ExitStack() as stack:
        if door == "http":
            open_many(stack, server.http, HEAD)
        else:
            beginning = raw_http2.PREFACE + raw_http2.EMPTY_SETTINGS
            open_many(stack, server.url.removeprefix("tape://"), beginning)
        for _ in range(3):
            assert httpx.get(f"http://{server.http}/healthz", timeout=10).status_code == 200


def test_a_soft_limit_is_raised(sqlite_url: str) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2 * FILES:
        pytest.skip(f"the hard limit here is {hard}")
    with Limited(sqlite_url, soft=FILES, hard=2 * FILES) as server:
        assert soft_limit(server.pid) == 2 * FILES
