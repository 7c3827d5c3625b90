"""Files that hold secrets, and who can read them."""

import logging
import stat
from functools import lru_cache
from pathlib import Path

log = logging.getLogger("tape.secrets")


@lru_cache(64)
def warn_of_readers(path: Path, what: str) -> None:
    """Say so, once, if others than its owner can read a file of secrets."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return  # whoever reads it says why it cannot be read
    if mode & (stat.S_IRGRP | stat.S_IROTH):
        log.warning(
            "other users can read the %s in %s (mode %o): run chmod 600 on it", what, path, mode
        )
