"""Numbered migrations. A `pre` step works with the code before it, so any starting server may apply
it; a `post` step removes what only old code needs, and waits for `tape migrate`.

Each step runs in one transaction with the record of it, so none is ever half applied by us. What
is recorded must be a prefix-compatible part of what this version knows, with the same text.
"""

import hashlib
import re
from collections.abc import Sequence
from importlib.resources import files
from typing import NamedTuple

from tape.errors import StoreMismatch

_FILE = re.compile(r"(\d{4})_(pre|post)_(\w+)\.sql")
_BREAK = re.compile(r"^-- statement\n", re.MULTILINE)


class Migration(NamedTuple):
    number: int
    phase: str
    name: str
    text: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]

    @property
    def statements(self) -> list[str]:
        """The text cut at its `-- statement` lines, for drivers that take one at a time."""
        return [part for part in _BREAK.split(self.text) if part.strip()]


class Applied(NamedTuple):
    number: int
    name: str
    checksum: str


def load_migrations(package: str) -> list[Migration]:
    found = []
    for resource in files(package).joinpath("migrations").iterdir():
        if match := _FILE.fullmatch(resource.name):
            number, phase, name = match.groups()
            found.append(Migration(int(number), phase, name, resource.read_text()))
    return sorted(found)


def pending(
    known: Sequence[Migration], applied: Sequence[Applied], *, with_post: bool
) -> list[Migration]:
    """What is still to be applied, or a refusal if the database is not one of ours as it stands."""
    by_number = {migration.number: migration for migration in known}
    for record in applied:
        migration = by_number.get(record.number)
        if migration is None:
            raise StoreMismatch(
                f"the database is at migration {record.number} ({record.name}), this version of "
                f"Tape knows {max(by_number)}: upgrade tape-bus"
            )
        if migration.checksum != record.checksum:
            raise StoreMismatch(
                f"migration {record.number} ({record.name}) was applied with another text: this "
                "database was made by a different build of Tape"
            )
    done = {record.number for record in applied}
    return [m for m in known if m.number not in done and (with_post or m.phase == "pre")]


def refuse_outdated(known: Sequence[Migration], applied: Sequence[Applied]) -> None:
    """For who opens a database and may not change it."""
    if todo := pending(known, applied, with_post=False):
        names = ", ".join(migration.name for migration in todo)
        raise StoreMismatch(f"the database lacks migrations ({names}): run tape migrate")


def refuse_strays(tables: Sequence[str]) -> None:
    """No migration is recorded, so no table of ours may be there."""
    if strays := sorted(name for name in tables if name.startswith("tape_")):
        raise StoreMismatch(
            f"half-applied migration: {', '.join(strays)} exist but no migration is recorded. "
            "Restore a backup, or drop these tables if they hold nothing"
        )
