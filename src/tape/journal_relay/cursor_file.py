"""The relay's durable cursor: a file `{"last_global_seq": N}`, replaced whole or not at all.

After a crash at any moment it holds the old position or the new one. A lock beside it keeps a
second relay away; the operating system frees it when its holder dies. The lock's file holds a word
while a relay is at work, so the next one knows whether that one came to its end.
"""

import fcntl
import os
from pathlib import Path
from typing import NamedTuple

import orjson

from tape.errors import InvalidArgument
from tape.ports.durable_file import MODE, replace_file

READ_MOST = 4_096


class OldCursor(NamedTuple):
    """The position as relays kept it before the journal had one order."""

    from_ts_ms: int
    last_run_id: str
    last_seq: int


class CursorFile:
    """Use with `with`, which holds the lock; the file itself is made by the first `write`."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()  # renaming over a symbolic link would replace the link
        self.interrupted = False
        """Whether an earlier relay ended without settling: it may have sent more than it wrote."""
        self._lock: int | None = None

    def __enter__(self) -> "CursorFile":
        lock = os.open(self._lock_path(), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, MODE)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise _refusal(
                f"another relay is working with {self.path}; stop it, "
                "or give this one a cursor file of its own"
            ) from None
        self._lock = lock
        self.interrupted = os.fstat(lock).st_size > 0
        if not self.interrupted:
            os.write(lock, b"relaying\n")
            os.fsync(lock)
        return self

    def __exit__(self, *_error: object) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def read(self) -> int | OldCursor | None:
        """Where the relay was, None where it never ran. A file that is no cursor is refused."""
        try:
            with self.path.open("rb") as file:
                text = file.read(READ_MOST)
        except FileNotFoundError:
            return None
        try:
            found = orjson.loads(text)
        except orjson.JSONDecodeError:
            raise self._foreign("it is not JSON") from None
        if not isinstance(found, dict):
            raise self._foreign("it is not an object")
        if found.keys() == {"last_global_seq"}:
            return self._position(found["last_global_seq"], "last_global_seq")
        if found.keys() == set(OldCursor._fields):
            run_id = found["last_run_id"]
            if not isinstance(run_id, str):
                raise self._foreign("last_run_id is not text")
            return OldCursor(
                self._position(found["from_ts_ms"], "from_ts_ms"),
                run_id,
                self._position(found["last_seq"], "last_seq"),
            )
        raise self._foreign("it has other fields than last_global_seq")

    def write(self, last_global_seq: int) -> None:
        """Durable when it returns."""
        text = orjson.dumps({"last_global_seq": last_global_seq}) + b"\n"
        os.close(replace_file(self.path, text))

    def settle(self) -> None:
        """All that was sent is behind the position written last."""
        if self._lock is not None:
            os.ftruncate(self._lock, 0)

    def _position(self, value: object, name: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
            raise self._foreign(f"{name} is not in 0..2^63-1")
        return value

    def _lock_path(self) -> Path:
        return self.path.with_name(self.path.name + ".lock")

    def _foreign(self, why: str) -> InvalidArgument:
        return _refusal(
            f"{self.path} is not a relay's cursor: {why}; put the right file there, "
            "or move this one away to relay from the beginning"
        )


def _refusal(message: str) -> InvalidArgument:
    return InvalidArgument(message, field="cursor_path")
