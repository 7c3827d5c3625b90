"""Which settings file counts, and the settings with what it changes."""

import os
from pathlib import Path

from tape.settings import Settings

SETTINGS_FILE = Path("tape.yaml")
_DEFAULTS = Settings()


def settings_path(path: Path | None) -> Path | None:
    """The file that counts: `path`, else what TAPE_CONFIG names, else `tape.yaml` in this folder
    if there is one."""
    named = path or os.environ.get("TAPE_CONFIG")
    if named:
        return Path(named)
    return SETTINGS_FILE if SETTINGS_FILE.exists() else None


def read_settings(path: Path | None, base: Settings = _DEFAULTS) -> Settings:
    """`base` with what the file that counts changes; a file with a fault is refused whole."""
    file = settings_path(path)
    if file is None:
        return base
    from tape.settings.yaml_file import read_yaml  # costs what a process without a file never needs

    return read_yaml(file, base)
