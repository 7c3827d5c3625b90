"""A look into a store from a test, past Tape: one number by one statement."""

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from typing import LiteralString

import psycopg

Look = Callable[[LiteralString], int]


@contextlib.contextmanager
def looking(url: str) -> Iterator[Look]:
    if url.startswith("sqlite:"):
        path = url.removeprefix("sqlite:")
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as file:
            yield lambda statement: file.execute(statement).fetchone()[0]
        return
    with psycopg.connect(url, autocommit=True) as database:

        def look(statement: LiteralString) -> int:
            row = database.execute(statement).fetchone()
            assert row is not None
            return int(row[0])

        yield look
