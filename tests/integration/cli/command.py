"""Running `tape` as a user does, in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from tests.integration.cli.forked import run_forked

TAPE = [sys.executable, "-m", "tape.cli"]


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def records(self) -> list[dict[str, Any]]:
        """What was printed with --json."""
        return [json.loads(line) for line in self.out.splitlines()]


def clean_environment(**extra: str) -> dict[str, str]:
    """Without what the developer's own shell says about Tape."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("TAPE_")}
    return {**kept, "COLUMNS": "200", **extra}


def tape(*arguments: str, folder: Path, stdin: str = "", **env: str) -> Done:
    environment = clean_environment(**env)
    return Done(*run_forked(arguments, folder=folder, env=environment, stdin=stdin, timeout_s=110))


def start(*arguments: str, folder: Path, **env: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*TAPE, *arguments], cwd=folder, env=clean_environment(**env), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
