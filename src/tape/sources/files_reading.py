"""One file that is read: where its next line is, and up to where all are acknowledged."""

import os
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tape.model.message import SourceMessage, file_origin
from tape.sources.files_identity import identity_of
from tape.sources.files_lines import FileLine, line_at, line_message, read_lines
from tape.sources.files_state import FileRead

MOST_BEHIND: Final = 10_000
"""So many lines behind one that is not acknowledged are handed out, and no more."""


class _Handed(NamedTuple):
    line: int
    start: int
    end: int
    digest: str


class FileReading:
    """Of one generation of a file: `is_same` tells whether it still is.

    A file that is written over in place is another one as well. That is seen by its size, its first
    line and the last one that was read; if these are as they were, and where they were, it is not.
    """

    def __init__(self, path: Path, known: FileRead) -> None:
        self.path = path
        self.known = known
        self.origin = file_origin(str(path), known.file_id)
        self._next_line = known.lines + 1
        self._next_at = known.offset
        self._last: tuple[int, str] | None = (known.tail_at, known.tail) if known.lines else None
        """Where the line before the next one begins, and its digest."""
        self._handed: deque[_Handed] = deque()
        self._done = {n for first, last in known.done for n in range(first, last + 1)}

    @property
    def has_room(self) -> bool:
        return len(self._handed) < MOST_BEHIND

    def is_same(self, file: int) -> bool:
        """Whether what was read is still there, at its place."""
        known = self.known
        if identity_of(file) != (known.inode, known.born_ns):
            return False
        if os.fstat(file).st_size < self._next_at:
            return False
        head = line_at(file, 0)
        if head is None or head.digest != known.head:
            return False
        if self._last is None:
            return True
        start, digest = self._last
        last = line_at(file, start)
        return last is not None and last.digest == digest and last.end == self._next_at

    def next_messages(self, file: int) -> Iterator[tuple[int, SourceMessage]]:
        """The next lines and their messages. Those that are acknowledged, and those with nothing on
        them, are passed over. One of which no message can be made, because the file cannot be read
        for a moment, is the next one still."""
        changed_ms = os.fstat(file).st_mtime_ns // 1_000_000
        for line in read_lines(file, self._next_at, self._next_line):
            if not self.has_room:
                return
            message = None
            if not line.text.strip() and not line.is_cut:
                self._done.add(line.number)
            elif line.number not in self._done:
                message = line_message(file, line, self.origin, changed_ms)
            self._next_line, self._next_at = line.number + 1, line.end
            self._last = line.start, line.digest
            self._handed.append(_Handed(line.number, line.start, line.end, line.digest))
            if message is not None:
                yield line.number, message
        self._advance()

    def ack(self, lines: Iterable[int]) -> FileRead:
        """How far the file is read with these."""
        self._done.update(line for line in lines if line > self.known.lines)
        self._advance()
        self.known = self.known._replace(done=tuple(_ranges(sorted(self._done))))
        return self.known

    def _advance(self) -> None:
        passed: _Handed | None = None
        while self._handed and self._handed[0].line in self._done:
            passed = self._handed.popleft()
            self._done.discard(passed.line)
        if passed is not None:
            self.known = self.known._replace(
                lines=passed.line, offset=passed.end, tail=passed.digest, tail_at=passed.start
            )


def _ranges(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    first = last = None
    for number in numbers:
        if first is not None and last is not None and number == last + 1:
            last = number
            continue
        if first is not None and last is not None:
            yield first, last
        first = last = number
    if first is not None and last is not None:
        yield first, last


def first_reading(path: Path, name: str, file: int, before: FileRead | None) -> FileReading | None:
    """Of a file that is not the one that had its name before. None while it has no complete
    line."""
    head: FileLine | None = line_at(file, 0)
    if head is None:
        return None
    identity, generation = identity_of(file), 1
    if before is not None and (not identity.born_ns or identity == (before.inode, before.born_ns)):
        generation = before.generation + 1
    return FileReading(path, FileRead(name, generation, *identity, head.digest))
