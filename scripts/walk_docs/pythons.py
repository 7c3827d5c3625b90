"""The interpreters on this machine."""

import os
import shutil
from pathlib import Path
from typing import NamedTuple

VERSIONS = ("3.11", "3.12", "3.13")


class Interpreter(NamedTuple):
    version: str
    program: Path | None

    @classmethod
    def find(cls, version: str) -> "Interpreter":
        """The interpreter of a version, or that of a path; None where there is none."""
        if os.sep in version:
            return cls(Path(version).name, Path(version))
        found = shutil.which(f"python{version}")
        if found and "shims" not in Path(found).parts:
            return cls(version, Path(found))
        root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
        kept = sorted(root.glob(f"versions/{version}*/bin/python{version}"))
        return cls(version, kept[-1] if kept else None)
