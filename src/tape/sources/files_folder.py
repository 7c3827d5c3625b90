"""A folder whose files are read line by line, in the order of their names. Blocks: it is called in
a thread, one call at a time."""

import logging
import os
import re
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

from tape.errors import SourceRefused
from tape.model.message import SourceMessage
from tape.model.subscription_spec import FILE_PATTERN, FILE_PATTERN_FORM
from tape.ports.source import ReceivedMessage
from tape.sources.files_lines import CHUNK
from tape.sources.files_reading import FileReading, first_reading
from tape.sources.files_state import FOLDER, FileRead, FolderState

log = logging.getLogger("tape.files")

TAKE_BYTES: Final = 16 << 20
COUNT_S: Final = 0.2
"""So long counting what waits may hold up what is done with it."""


class _HeldLine(NamedTuple):
    reading: FileReading
    line: int
    message: SourceMessage


class FolderReader:
    def __init__(self, folder: Path, pattern: str) -> None:
        self.folder = folder
        self._pattern = pattern
        self._state = FolderState(folder)
        self._readings: dict[str, FileReading] = {}
        self._again: deque[_HeldLine] = deque()
        self._in_hand: dict[str, _HeldLine] = {}
        self._unwritten: dict[str, FileRead] = {}
        self._counted: dict[str, tuple[int, int]] = {}
        self._exhausted: dict[str, tuple[int, ...]] = {}
        """What a file was like when all its lines had been taken."""
        self._receipts = 0
        self.unreadable: dict[str, str] = {}

    def open(self) -> bool:
        """Whether the folder is this reader's; SourceRefused if there is none, or nothing can be
        kept in it."""
        try:
            if not self.folder.is_dir():
                raise SourceRefused(f"folder: there is no folder {self.folder}")
            if not re.fullmatch(FILE_PATTERN, self._pattern):
                raise SourceRefused(f"pattern: {self._pattern!r} is not {FILE_PATTERN_FORM}")
            return self._state.lock()
        except PermissionError as error:
            raise SourceRefused(
                f"folder: what was read is remembered in {self.folder / FOLDER}, and this process "
                f"may not write there ({error.strerror})"
            ) from None

    @property
    def is_mine(self) -> bool:
        return self._state.is_locked

    def take(self, most: int) -> list[ReceivedMessage]:
        """The next messages, at most so many; none while another reader has the folder."""
        if not self._state.lock():
            return []
        self._write()
        found: list[ReceivedMessage] = []
        left = TAKE_BYTES
        try:
            for held in self._next():
                found.append(self._hand_out(held))
                left -= len(held.message.body)
                if len(found) >= most or left <= 0:
                    break
        except BaseException:
            self.put_back(found)
            raise
        return found

    def put_back(self, found: Sequence[ReceivedMessage]) -> None:
        """Nobody has seen these: they are the next ones again."""
        for received in reversed(found):
            held = self._in_hand.pop(received.receipt, None)
            if held is not None:
                self._again.appendleft(held)

    def ack(self, receipts: Sequence[str]) -> None:
        """Durable when it returns, or, if the disk does not take it, some time later."""
        by_reading: dict[FileReading, list[int]] = {}
        for receipt in receipts:
            held = self._in_hand.pop(receipt, None)
            if held is not None:
                by_reading.setdefault(held.reading, []).append(held.line)
        for reading, lines in by_reading.items():
            self._unwritten[reading.known.name] = reading.ack(lines)
        try:
            self._write()
        except OSError as error:
            log.warning("%s: what was read is not remembered: %s", self.folder, error.strerror)

    def nak(self, receipts: Sequence[str]) -> None:
        for receipt in receipts:
            held = self._in_hand.pop(receipt, None)
            if held is not None:
                message = held.message._replace(deliveries=held.message.deliveries + 1)
                self._again.append(held._replace(message=message))

    def backlog(self) -> int | None:
        """None while another reader has the folder, and while not all is counted yet: the next call
        goes on where this one has stopped."""
        if not self._state.lock():
            return None
        waiting = 0
        ends = time.monotonic() + COUNT_S
        for path in self._paths():
            name = self._name(path)
            reading = self._readings.get(name)
            known = reading.known if reading else self._state.files.get(name)
            acknowledged = known.lines + sum(b - a + 1 for a, b in known.done) if known else 0
            if known is not None and name not in self._counted:
                self._counted[name] = known.offset, known.lines
            lines = self._count(path, name, ends)
            if lines is None:
                return None
            waiting += max(0, lines - acknowledged)
        return waiting

    def passed(self) -> dict[str, int]:
        return {reading.origin: reading.known.lines for reading in self._readings.values()}

    def close(self) -> None:
        if self._unwritten:
            self.ack([])
        self._state.close()

    def _write(self) -> None:
        if self._unwritten:
            self._state.write([*self._unwritten.values()])
            self._unwritten.clear()

    def _hand_out(self, held: _HeldLine) -> ReceivedMessage:
        self._receipts += 1
        receipt = str(self._receipts)
        self._in_hand[receipt] = held
        return ReceivedMessage(held.message, receipt)

    def _next(self) -> Iterator[_HeldLine]:
        while self._again:
            yield self._again.popleft()
        for path in self._paths():
            yield from self._new_of(path)

    def _new_of(self, path: Path) -> Iterator[_HeldLine]:
        name = self._name(path)
        try:
            if name in self._exhausted and self._exhausted[name] == _version(path.stat()):
                return
            with _opened(path) as file:
                now = _version(os.fstat(file))
                reading = self._reading(path, name, file)
                self.unreadable.pop(name, None)
                if reading is not None:
                    for line, message in reading.next_messages(file):
                        yield _HeldLine(reading, line, message)
                if reading is None or reading.has_room:
                    self._exhausted[name] = now
        except FileNotFoundError:
            return  # it went a moment ago
        except OSError as error:
            self.unreadable[name] = f"{path} cannot be read: {error.strerror}"

    def _reading(self, path: Path, name: str, file: int) -> FileReading | None:
        """That of the file as it is now. One that takes the place of another is remembered before
        any of its lines is handed out."""
        reading = self._readings.get(name)
        known = self._state.files.get(name)
        if reading is None and known is not None:
            reading = FileReading(path, known)
        if reading is not None and reading.is_same(file):
            self._readings[name] = reading
            return reading
        reading = first_reading(path, name, file, known)
        if reading is not None:
            self._unwritten.pop(name, None)
            self._state.write([reading.known])
            self._forget(name)
            self._readings[name] = reading
        return reading

    def _forget(self, name: str) -> None:
        """What is in hand of a file that another has taken the place of."""
        gone = self._readings.pop(name, None)
        self._in_hand = {r: held for r, held in self._in_hand.items() if held.reading is not gone}
        self._again = deque(again for again in self._again if again.reading is not gone)
        self._counted.pop(name, None)

    def _paths(self) -> list[Path]:
        pattern = self._pattern
        if pattern.rpartition("/")[2] == "**":
            pattern += "/*"  # before Python 3.13 ** at the end finds folders alone
        found = [
            path
            for path in self.folder.glob(pattern)
            if FOLDER not in path.relative_to(self.folder).parts and path.is_file()
        ]
        return sorted(found)

    def _name(self, path: Path) -> str:
        return quote(os.fsencode(path.relative_to(self.folder)), safe="/")

    def _count(self, path: Path, name: str, ends: float) -> int | None:
        """How many complete lines a file has; what was counted is not counted again. None if there
        is no time for it."""
        at, lines = self._counted.get(name, (0, 0))
        try:
            size = path.stat().st_size
            if size == at:
                return lines
            if size < at:
                at, lines = 0, 0
            with _opened(path) as file:
                while chunk := os.pread(file, CHUNK, at):
                    at += len(chunk)
                    lines += chunk.count(b"\n")
                    self._counted[name] = at, lines
                    if time.monotonic() >= ends:
                        return None
        except OSError:
            return lines
        return lines


def _version(told: os.stat_result) -> tuple[int, ...]:
    return told.st_ino, told.st_size, told.st_mtime_ns, told.st_ctime_ns


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield file
    finally:
        os.close(file)
