"""A small file that is replaced whole or not at all.

The new text is written beside it and flushed to the disk, renamed over it, and the folder is
flushed: after a crash at any moment the file holds the old text or the new one.
"""

import os
from pathlib import Path
from typing import Final

MODE: Final = 0o600


def replace_file(path: Path, text: bytes) -> int:
    """The file, open to be written on at its end; durable when it returns. One replaces it at a
    time."""
    beside = path.with_name(path.name + ".new")
    new = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, MODE)
    try:
        os.fchmod(new, MODE)
        write_all(new, text)
        os.fsync(new)
        beside.replace(path)
        sync_folder(path.parent)
    except BaseException:
        os.close(new)
        raise
    return new


def write_all(file: int, text: bytes) -> None:
    view = memoryview(text)
    while view:
        view = view[os.write(file, view) :]


def sync_folder(folder: Path) -> None:
    """Make names in a folder durable."""
    opened = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
