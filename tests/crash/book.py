"""A counterparty that keeps a book: what it was asked to do, what it did, what it was asked about.

The book is one file, and every process appends to it a line at a time, durably. So its order is the
order in which things happened, whoever was killed in between.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Noted(NamedTuple):
    """`word` is asked, did, present, absent, left (an act was cut off) or a test's own."""

    word: str
    key: str
    by: str
    at_ms: int


class Book:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_DSYNC)

    def note(self, word: str, key: str, by: str) -> None:
        os.write(self._file, f"{word}\t{key}\t{by}\t{time.time_ns() // 1_000_000}\n".encode())

    def has(self, word: str, key: str) -> bool:
        return f"{word}\t{key}\t" in self._path.read_text()

    def close(self) -> None:
        os.close(self._file)


def read_book(path: Path) -> Iterator[Noted]:
    """Its lines, none if there is no book yet."""
    if path.exists():
        for line in path.read_text().splitlines():
            word, key, by, at_ms = line.split("\t")
            yield Noted(word, key, by, int(at_ms))
