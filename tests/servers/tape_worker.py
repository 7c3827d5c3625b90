"""A program that calls `run_dispatcher`, for tests: killed, paused and started again."""

import os
import signal
import subprocess
import sys
from pathlib import Path


class WorkerProcess:
    """`python ARGUMENTS` in a folder, what it says on standard error in `log`. Use with `with`."""

    def __init__(
        self,
        *arguments: str,
        log: Path,
        folder: Path | None = None,
        env: dict[str, str] | None = None,
    ) -> None:
        self._command = [sys.executable, *arguments]
        self._folder = folder
        self._env = {**os.environ, **(env or {})}
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "WorkerProcess":
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        if self._process is not None:
            self._end(signal.SIGKILL)

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def has_ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    @property
    def has_begun(self) -> bool:
        """Whether SIGTERM would find it ready to end in order, as Linux tells."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
        return bool(int(caught.split()[1], 16) & 1 << (signal.SIGTERM - 1))

    @property
    def said(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stderr=log, env=self._env, cwd=self._folder
            )

    def stop(self, timeout_s: float = 60.0) -> int:
        """Ask it to end; its exit code."""
        return self._end(signal.SIGTERM, timeout_s)

    def kill(self) -> None:
        """kill -9; nothing if it has ended by itself."""
        if self._process is not None:
            self._end(signal.SIGKILL)

    def pause(self) -> None:
        self._running().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._running().send_signal(signal.SIGCONT)

    def _end(self, how: signal.Signals, timeout_s: float = 30.0) -> int:
        process = self._running()
        process.send_signal(how)
        code = process.wait(timeout_s)
        self._process = None
        return code

    def _running(self) -> "subprocess.Popen[bytes]":
        if self._process is None:
            raise RuntimeError("the worker is not running")
        return self._process
