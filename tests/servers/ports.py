"""Ports for servers of tests: free ones, and waiting until somebody listens."""

import random
import socket
import subprocess
import time
from pathlib import Path
from typing import Protocol

PORTS_TRIED = 5
LOWEST = 10_000
_GIVEN_BY_THE_SYSTEM = Path("/proc/sys/net/ipv4/ip_local_port_range")
_CHANCE = random.SystemRandom()


class OnAPort(Protocol):
    port: int

    def start(self) -> None:
        """Start on the port; RuntimeError if the server ends, or does not listen there."""


def start_on_free_port(server: OnAPort) -> None:
    """Start a server, on another port if somebody else took the first one in the meantime."""
    for _ in range(PORTS_TRIED - 1):
        try:
            return server.start()
        except RuntimeError:
            server.port = free_port()
    return server.start()


def free_port() -> int:
    """One that the system gives to no connection and to no server that asks for any: it is still
    free when it is used, and while a server that was killed is started again."""
    highest = _lowest_given()
    for _ in range(PORTS_TRIED if highest > LOWEST else 0):
        port = _CHANCE.randrange(LOWEST, highest)
        try:
            return _bound(port)
        except OSError:
            continue
    return _bound(0)


def _lowest_given() -> int:
    """0 where the system does not tell."""
    if not _GIVEN_BY_THE_SYSTEM.exists():
        return 0
    return int(_GIVEN_BY_THE_SYSTEM.read_text().split()[0])


def _bound(port: int) -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", port))
        found: int = probe.getsockname()[1]
        return found


def await_port(port: int, process: "subprocess.Popen[bytes]", patience_s: float) -> None:
    """Wait until somebody listens there; an error if the process ends before."""
    give_up = time.monotonic() + patience_s
    while True:
        if process.poll() is not None:
            raise RuntimeError(f"the server on port {port} ended while starting")
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if time.monotonic() > give_up:
                process.kill()
                process.wait(30)
                raise RuntimeError(f"nobody listens on port {port}") from None
            time.sleep(0.02)
        else:
            return
