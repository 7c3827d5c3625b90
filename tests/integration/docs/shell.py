"""One shell for one page: commands in order, each with the lines it printed."""

import os
import queue
import re
import signal
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Self

from tests.integration.docs.pages import Example, Install, Program, Saved, Statements, Step, matches

PATIENCE_S = 60
_MARK = "--done--"
# On a terminal it is a bar, which is gone when the job has ended.
_PROGRESS = re.compile(r"(?:ingest|archive|backfill|rollup|audit): [\d,]+ of [\d,]+ \w+.*")


class Silent(RuntimeError):
    """A command neither ended nor printed what was to come."""


class Printed(NamedTuple):
    lines: list[str]
    status: int


class Shell:
    def __init__(
        self,
        folder: Path,
        path: str,
        environment: Mapping[str, str] | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._folder = folder
        self._patience_s = patience_s
        self._programs = 0
        self._is_stuck = False
        self._process = subprocess.Popen(
            ["bash", "--norc"],
            cwd=folder,
            env={
                "PATH": path,
                "HOME": str(folder),
                "COLUMNS": "200",
                "PYTHONUNBUFFERED": "1",
                "LC_ALL": "C.UTF-8",
                **(environment or {}),
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

    def fault(self, step: Step) -> str:
        """Do what the page says; what is otherwise than it says, or nothing."""
        if isinstance(step, Saved):
            (self._folder / step.file_name).write_text(step.source)
            return ""
        command, wanted = self._typed(step)
        if self._is_stuck:
            return f"$ {command}\nnot reached: a command before it has not ended"
        try:
            printed = self.run(command, len(wanted or ()))
        except Silent as silent:
            self._is_stuck = True
            return f"$ {command}\n{silent}"
        lines = [line for line in printed.lines if not _PROGRESS.fullmatch(line)]
        failed = printed.status != 0 and not isinstance(step, Example)
        if failed or not (wanted is None or matches(wanted, lines)):
            said = "\n".join(lines)
            return f"$ {command}\nprinted, and ended with {printed.status}:\n{said}"
        return ""

    def _typed(
        self, step: Example | Install | Program | Statements
    ) -> tuple[str, list[str] | None]:
        if isinstance(step, Example):
            return step.command, step.printed
        if isinstance(step, Install):
            return step.command, None
        if isinstance(step, Statements):
            return f"psql {step.url} -q -v ON_ERROR_STOP=1 <<'SQL'\n{step.source}SQL", None
        self._programs += 1
        name = step.file_name or f"example_{self._programs}.py"
        (self._folder / name).write_text(step.source)
        return f"python {name}", step.printed

    def run(self, command: str, at_least: int) -> Printed:
        """What a command printed; one in the background is waited for until it printed enough."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\necho {_MARK} $?\n")
        self._process.stdin.flush()
        wanted = at_least if command.rstrip().endswith("&") else 0
        printed: list[str] = []
        status = None
        while status is None or len(printed) < wanted:
            try:
                line = self._lines.get(timeout=self._patience_s)
            except queue.Empty:
                said = "\n".join(printed)
                raise Silent(f"nothing more for {self._patience_s:g} s after:\n{said}") from None
            if line.startswith(_MARK):
                status = int(line.removeprefix(_MARK))
            else:
                printed.append(line)
        return Printed(printed, status)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.rstrip("\n"))
