"""One shell for one page: commands in order, each with the lines it printed."""

import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Self

PATIENCE_S = 60
_MARK = "--done--"


class Shell:
    def __init__(self, folder: Path) -> None:
        programs = Path(sys.executable).parent
        self._process = subprocess.Popen(
            ["bash", "--norc"],
            cwd=folder,
            env={
                "PATH": f"{programs}:{os.environ['PATH']}",
                "HOME": str(folder),
                "COLUMNS": "200",
                "PYTHONUNBUFFERED": "1",
                "LC_ALL": "C.UTF-8",
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        os.killpg(self._process.pid, signal.SIGTERM)
        self._process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()

    def run(self, command: str, at_least: int) -> list[str]:
        """What a command printed; one in the background is waited for until it printed enough."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\necho {_MARK}\n")
        self._process.stdin.flush()
        wanted = at_least if command.rstrip().endswith("&") else 0
        printed: list[str] = []
        done = False
        while not done or len(printed) < wanted:
            line = self._lines.get(timeout=PATIENCE_S)
            if line == _MARK:
                done = True
            else:
                printed.append(line)
        return printed

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.rstrip("\n"))
