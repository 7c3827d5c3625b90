"""The log of a lake in its folder: reading it, and adding to it alone.

A commit is written beside the log, flushed to the disk and linked under its number. A link does
not replace what is there, so of two who want the same number one is refused; it reads the log again
and goes on if what it wants still makes sense there.
"""

import os
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final

import orjson

from tape.errors import InvalidArgument, StoreFailed, StoreMismatch, VersionMismatch
from tape.pipeline.lake.manifest import (
    EMPTY,
    Commit,
    Lake,
    Layout,
    follow,
    from_record,
    to_record,
    whole,
)
from tape.ports.durable_file import sync_folder

WHOLE_EVERY: Final = 20
"""Every so many commits one holds the whole state: reading takes no more than so many files."""
TRIES: Final = 50
_LOG: Final = "_tape"
_GLOBBED: Final = frozenset("*?[]{}\\,\n")


class LakeLog:
    def __init__(self, path: str | Path) -> None:
        text = str(path).removeprefix("file://")
        if not text or "://" in text or _GLOBBED & set(text):
            raise InvalidArgument(
                f"{str(path)!r} is not a folder on a local or shared file system "
                "(or has characters that Spark takes for a pattern)",
                field="lake",
            )
        self.path = Path(text).absolute()
        self._log = self.path / _LOG

    def exists(self) -> bool:
        return bool(self._numbers())

    def read(self) -> Lake:
        """What is in the lake now; EMPTY if nothing was ever committed."""
        for _try in range(TRIES):
            numbers = self._numbers()
            if not numbers:
                return EMPTY
            try:
                return self._read(numbers)
            except FileNotFoundError:
                continue  # it was cleaned up behind a newer one
        raise StoreMismatch(f"{self._log} changes faster than it can be read, or lacks a commit")

    def require(self) -> Lake:
        """What is in the lake; refused if it is none."""
        lake = self.read()
        if lake.number == 0:
            raise InvalidArgument(
                f"{self.path} is not a lake: archive into it first, with "
                f"tape pipeline archive --lake {self.path}",
                field="lake",
            )
        return lake

    def begin(self, layout: Layout) -> Lake:
        """The lake to add to; an empty one gets this layout."""
        lake = self.read()
        if lake.number == 0:
            strays = [entry.name for entry in self._entries() if not entry.name.startswith("_")]
            if strays and strays != ["data"]:
                raise InvalidArgument(
                    f"{self.path} contains {strays[0]} and is not a lake: name an empty folder",
                    field="lake",
                )
            return Lake(0, "", layout, 0, 0, ())
        return lake

    def commit(self, lake: Lake, decide: Callable[[Lake], Commit]) -> Lake:
        """Add what `decide` makes of the lake, as it is or as others have changed it since."""
        for _try in range(TRIES):
            commit = decide(lake)
            after = follow(lake, commit)
            if commit.number % WHOLE_EVERY == 0:
                commit = whole(lake, commit)
            for file in commit.add:
                if not (self.path / file.path).is_file():
                    raise StoreMismatch(
                        f"{file.path} was removed before it was committed: run again"
                    )
            if self._publish(commit):
                return after
            lake = self.read()
        raise VersionMismatch("other processes keep committing to this lake: let them finish")

    def tidy(self) -> None:
        """Forget commits that no reader goes back to any more."""
        numbers = self._numbers()
        keep_from = numbers[-1] - 2 * WHOLE_EVERY if numbers else 0
        for number in numbers:
            if number < keep_from - keep_from % WHOLE_EVERY:
                self._file(number).unlink(missing_ok=True)

    def _read(self, numbers: list[int]) -> Lake:
        commits: list[Commit] = []
        for number in range(numbers[-1], 0, -1):
            commits.append(self._load(number))
            if commits[-1].files is not None:
                break
        lake = EMPTY
        for commit in reversed(commits):
            lake = follow(lake, commit)
        return lake

    def _load(self, number: int) -> Commit:
        text = self._file(number).read_bytes()
        try:
            record = orjson.loads(text)
        except orjson.JSONDecodeError:
            record = None
        return from_record(record, number)

    def _publish(self, commit: Commit) -> bool:
        """Whether it is now the commit of its number; False if there is one."""
        self._log.mkdir(parents=True, exist_ok=True)
        beside = self._log / f".{commit.number}.{uuid.uuid4().hex}"
        try:
            with beside.open("wb") as file:
                file.write(orjson.dumps(to_record(commit), default=dict))
                file.flush()
                os.fsync(file.fileno())
            self._file(commit.number).hardlink_to(beside)
        except FileExistsError:
            return False
        except OSError as error:
            raise StoreFailed(
                f"cannot commit to {self._log}: {error}. A lake needs a file system with hard "
                "links, room and the right to write"
            ) from error
        finally:
            beside.unlink(missing_ok=True)
        sync_folder(self._log)
        return True

    def _file(self, number: int) -> Path:
        return self._log / f"{number:020d}.json"

    def _numbers(self) -> list[int]:
        try:
            names = [path.name for path in self._log.iterdir()]
        except FileNotFoundError:
            return []
        except NotADirectoryError:
            raise InvalidArgument(f"{self.path} is not a folder", field="lake") from None
        stems = (name.removesuffix(".json") for name in names if name.endswith(".json"))
        return sorted(int(stem) for stem in stems if stem.isdecimal())

    def _entries(self) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self.path) as found:
                return list(found)
        except FileNotFoundError:
            return []
        except NotADirectoryError:
            raise InvalidArgument(f"{self.path} is not a folder", field="lake") from None


def now_ms() -> int:
    return time.time_ns() // 1_000_000
