"""Ports for servers of tests: free ones, and waiting until somebody listens."""

import socket
import subprocess
import time
from typing import Protocol

PORTS_TRIED = 5


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
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


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
