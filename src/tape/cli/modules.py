"""Modules that a command is told to import."""

import importlib
import sys
from collections.abc import Iterable
from pathlib import Path

from tape.errors import InvalidArgument
from tape.runs.declare import importing


def load_modules(modules: Iterable[str]) -> None:
    """Import them as `python -m` would, with the current folder first."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    for module in modules:
        _load(module)


def _load(module: str) -> None:
    try:
        with importing(module):
            importlib.import_module(module)
    except ModuleNotFoundError as missing:
        if missing.name is None or not module.startswith(missing.name):
            raise
        raise InvalidArgument(
            f"there is no module {module!r} here or among the installed packages", field="--module"
        ) from None
