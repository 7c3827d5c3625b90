"""Entries as lines of a file.

Each entry is one line of the JSON that `tape tail --json` prints, and all lines of a `send` are
written at once. A program that is killed leaves at most its last line torn; whoever appends next
cuts that part off.
"""

import asyncio
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import orjson

from tape.errors import BrokerUnavailable
from tape.model.entry import Entry
from tape.model.entry_json import entry_line

Answer = TypeVar("Answer")

STDOUT: Final = "-"
_BEGINNING: Final = b'{"global_seq":'
_LOOK_BACK: Final = 4 << 20
"""A line is shorter: an entry's payload has at most 2 MiB."""


class FileSink:
    """Append entries to a file; `-` is standard output."""

    def __init__(self, path: str | Path) -> None:
        self._path = str(path)
        self._file = -1

    async def open(self) -> dict[str, Any] | None:
        """Open the file, and create it if need be; the last entry in it, as JSON has it, if its
        last whole line is one."""
        return await self._done(self._open)

    async def send(self, entries: Sequence[Entry]) -> None:
        """Returns when the system has them: a program that is killed then loses none."""
        lines = b"".join(map(entry_line, entries))
        await self._done(lambda: self._write(lines))

    async def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    async def _done(self, work: Callable[[], Answer]) -> Answer:
        try:
            return await asyncio.to_thread(work)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise BrokerUnavailable(f"{self._path}: {error.strerror or error}") from None

    def _open(self) -> dict[str, Any] | None:
        if self._path == STDOUT:
            self._file = os.dup(1)
            return None
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        try:
            self._file = os.open(self._path, flags, 0o666)
        except OSError:  # what can be written only has nothing to be looked at
            self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            return None
        if not stat.S_ISREG(os.fstat(self._file).st_mode):
            return None
        return self._mended()

    def _mended(self) -> dict[str, Any] | None:
        """Cut off what is left of a line that was being written; the last entry before it."""
        size = os.fstat(self._file).st_size
        tail = os.pread(self._file, _LOOK_BACK, max(0, size - _LOOK_BACK))
        whole, _, torn = tail.rpartition(b"\n")
        if torn and _BEGINNING.startswith(torn[: len(_BEGINNING)]):
            os.ftruncate(self._file, size - len(torn))
        elif torn:  # it is not ours to cut
            os.write(self._file, b"\n")
        try:
            last = orjson.loads(whole.rpartition(b"\n")[2])
        except orjson.JSONDecodeError:
            return None
        return last if isinstance(last, dict) and "global_seq" in last else None

    def _write(self, lines: bytes) -> None:
        if self._file < 0:
            self._open()
        is_regular = stat.S_ISREG(os.fstat(self._file).st_mode)
        before = os.fstat(self._file).st_size
        left = memoryview(lines)
        try:
            while left:
                left = left[os.write(self._file, left) :]
        except OSError:
            if is_regular:  # whoever sends these again must not do so behind half a line
                os.ftruncate(self._file, before)
            raise
