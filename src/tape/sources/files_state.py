"""What of a folder's files was acknowledged: `.tape/read.jsonl` in the folder.

Each acknowledgement appends a line, flushed to the disk, that says how far one file is read; the
last line of a file counts. A line that was cut off by a crash is not counted: its messages come
again. When many lines are superseded the file is replaced by one without them.

A file stays known after it is gone: what comes under its name later is another file, and has
another place. Places do not need this state: they hold what the file system and the first line say
of a file. So where the state is lost, and the files are those that were read, all of them come
again with the places that they had, and find their runs; where the whole folder was made again, its
files are others. The state alone tells a file that was written over in place from what it was
before if its first line is the same.

A lock beside the state lets one reader at a time have the folder; the operating system frees it
when its holder dies.
"""

import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from tape.errors import SourceRefused
from tape.ports.durable_file import MODE, replace_file, write_all
from tape.sources.files_lines import digest_of

FOLDER: Final = ".tape"
COMPACT_LINES: Final = 10_000


class FileRead(NamedTuple):
    """How far a file is read.

    `name` is its path in the folder, percent-encoded. `inode` and `born_ns` tell the files apart
    that had it; `generation` counts, from 1, those that these do not tell apart: it was written
    over in place, or nobody says when it was made. `head` is the digest of the first line.

    All of the first `lines` lines, up to `offset`, are acknowledged, and of those behind them the
    ranges in `done`. `tail` is the digest of the last of the first ones, which begins at `tail_at`.
    """

    name: str
    generation: int
    inode: int
    born_ns: int
    head: str
    lines: int = 0
    offset: int = 0
    tail: str = ""
    tail_at: int = 0
    done: tuple[tuple[int, int], ...] = ()

    @property
    def file_id(self) -> str:
        """What tells the file in a place."""
        made = digest_of(f"{self.inode}/{self.born_ns}/{self.head}".encode())
        return f"{made}.{self.generation}" if self.generation > 1 else made


class FolderState:
    """Use `lock` first; False while another reader has the folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / FOLDER
        self._path = self._folder / "read.jsonl"
        self._lock: int | None = None
        self._log: int | None = None
        self._lines = 0
        self.files: dict[str, FileRead] = {}

    @property
    def is_locked(self) -> bool:
        return self._lock is not None

    def lock(self) -> bool:
        if self._lock is None:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            lock = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, MODE)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
                return False
            self._lock = lock
            self._load()
        return True

    def write(self, files: Sequence[FileRead]) -> None:
        """Durable when it returns; if it fails, nothing of it is."""
        if self._log is None:
            raise RuntimeError("the folder is not locked")
        before = os.lseek(self._log, 0, os.SEEK_CUR)
        try:
            write_all(self._log, b"".join(map(_line, files)))
            os.fsync(self._log)
        except OSError:
            os.ftruncate(self._log, before)
            os.lseek(self._log, before, os.SEEK_SET)
            raise
        self.files.update((file.name, file) for file in files)
        self._lines += len(files)
        if self._lines > COMPACT_LINES + 2 * len(self.files):
            self._compact()

    def close(self) -> None:
        for held in (self._log, self._lock):
            if held is not None:
                os.close(held)
        self._log = self._lock = None
        self.files = {}

    def _load(self) -> None:
        try:
            text = self._path.read_bytes()
        except FileNotFoundError:
            text = b""
        complete = text[: text.rfind(b"\n") + 1]
        self.files = {}
        for number, line in enumerate(complete.splitlines(), 1):
            file = self._parsed(line, number)
            self.files[file.name] = file
        self._compact()  # also without a last line that was cut off

    def _compact(self) -> None:
        new = replace_file(self._path, b"".join(map(_line, self.files.values())))
        if self._log is not None:
            os.close(self._log)
        self._log = new  # written on at its end
        self._lines = len(self.files)

    def _parsed(self, line: bytes, number: int) -> FileRead:
        try:
            said: Any = orjson.loads(line)
            file = FileRead(**{**said, "done": tuple((a, b) for a, b in said["done"])})
        except (orjson.JSONDecodeError, TypeError, KeyError, ValueError):
            raise SourceRefused(
                f"folder: {self._path} line {number} is not a reader's; put the right file there, "
                "or move this one away to read all files again"
            ) from None
        return file


def _line(file: FileRead) -> bytes:
    return orjson.dumps(file._asdict()) + b"\n"
