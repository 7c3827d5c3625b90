"""A `tape serve` process for tests: started, killed, paused and started again on the same port."""

import os
import signal
import subprocess
import sys
from pathlib import Path


class ServerProcess:
    """Use with `with`; `url` and `http` are where it listens, also after a restart."""

    def __init__(self, store: str, *options: str, env: dict[str, str] | None = None) -> None:
        self._command = [sys.executable, "-m", "tape.cli", "serve", "--store", store, *options]
        self._env = {**os.environ, **(env or {})}
        self._addresses = {"grpc": "127.0.0.1:0", "http": "127.0.0.1:0"}
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> "ServerProcess":
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        if self._process is not None:
            self.resume()
            self.stop()

    @property
    def url(self) -> str:
        return f"tape://{self._addresses['grpc']}"

    @property
    def http(self) -> str:
        """`HOST:PORT` of its HTTP door."""
        return self._addresses["http"]

    @property
    def pid(self) -> int:
        return self._running().pid

    def start(self) -> None:
        """Start and wait for the lines that say it is ready."""
        where = [part for name, at in self._addresses.items() for part in (f"--{name}", at)]
        process = subprocess.Popen(
            [*self._command, *where],
            stdout=subprocess.PIPE,
            text=True,
            env=self._env,
        )
        self._process = process
        for wanted in self._addresses:
            line = process.stdout.readline().strip() if process.stdout else ""
            name, _, address = line.partition(" ")
            if name != wanted:
                raise RuntimeError(f"tape serve said {line!r} instead of being ready")
            self._addresses[name] = address

    def stop(self) -> int:
        """Ask it to end; its exit code."""
        return self._end(signal.SIGTERM)

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        self._running().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._running().send_signal(signal.SIGCONT)

    def resident_bytes(self) -> int:
        """How much memory it holds just now."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def _end(self, how: signal.Signals) -> int:
        process = self._running()
        process.send_signal(how)
        code = process.wait(60)
        if process.stdout is not None:
            process.stdout.close()
        self._process = None
        return code

    def _running(self) -> "subprocess.Popen[str]":
        if self._process is None:
            raise RuntimeError("the server is not running")
        return self._process
