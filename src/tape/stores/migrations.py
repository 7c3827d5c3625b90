"""Numbered migrations. A `pre` step works with the code before it, so any starting server may apply
it; a `post` step removes what only old code needs, or brings what old code does not understand. It
waits for `tape migrate --post`, except in a new database, which no old code has worked with.

Each step runs in one transaction with the record of it, so none is ever half applied by us. A step
that is recorded must have the text that this version knows for it.

There are two records. What is in `tape_migrations` every version has to know: one that does not is
refused. Post steps are there, and the first nine, of before there was the other record. What is in
`tape_schema_steps` are pre steps: a version that does not know one was upgraded from, and works.
"""

import hashlib
import logging
import re
from collections.abc import Sequence
from importlib.resources import files
from typing import NamedTuple

from tape.errors import InvalidArgument, StoreMismatch

log = logging.getLogger("tape.migrations")

RECORDED_FOR_ALL = 9
"""The last pre step in `tape_migrations`. Version 0.1.0 reads that table alone, and refuses a
number that it does not know."""
RECORDS = (("tape_migrations", True), ("tape_schema_steps", False))
"""Each table, and whether a version must know what is in it."""
CREATED = logging.getLogger("tape.stores.created")
"""Says at INFO that a store was made, and nothing else: a mistyped name makes one, too."""
CREATORS = "`tape serve`, `tape worker`, `tape migrate`, `tape record` and programs create one"
FIRST_STEP = "journal"
DRAW_SUBJECTS = 17
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

    @property
    def must_be_known(self) -> bool:
        """Whether a version that does not know this step cannot work with the database."""
        return self.phase == "post" or self.number <= RECORDED_FOR_ALL


class AppliedMigration(NamedTuple):
    number: int
    name: str
    checksum: str
    must_be_known: bool


def record_of(migration: Migration) -> str:
    """The table in which a step is recorded."""
    return next(table for table, for_all in RECORDS if for_all == migration.must_be_known)


class RecordedState(NamedTuple):
    """What a store says of itself: facts by name, the migrations recorded and, if none is missing,
    its sequences."""

    facts: dict[str, str | int]
    applied: list[AppliedMigration]
    sequences: "list[NumberSequence]"


class Upgraded(NamedTuple):
    """The names of the steps that were applied, and the sequences that had to be mended."""

    applied: list[str]
    mended: "list[NumberSequence]"


class NumberSequence(NamedTuple):
    """What numbers are drawn from: the last one given, and the highest in use."""

    name: str
    given: int
    used: int

    @property
    def is_behind(self) -> bool:
        """Whether it would give out a number that is in use, so that a write fails."""
        return self.given < self.used


def load_migrations(package: str) -> list[Migration]:
    found = []
    for resource in files(package).joinpath("migrations").iterdir():
        if match := _FILE.fullmatch(resource.name):
            number, phase, name = match.groups()
            found.append(Migration(int(number), phase, name, resource.read_text()))
    return sorted(found)


def pending(
    known: Sequence[Migration], applied: Sequence[AppliedMigration], *, with_post: bool
) -> list[Migration]:
    """What is still to be applied, or a refusal if the database is not one of ours as it stands."""
    by_number = {migration.number: migration for migration in known}
    for record in applied:
        migration = by_number.get(record.number)
        if migration is None:
            if record.must_be_known:
                raise StoreMismatch(
                    f"the database is at migration {record.number} ({record.name}), this version "
                    f"of Tape knows {max(by_number)}: upgrade tape-bus"
                )
        elif migration.checksum != record.checksum:
            raise StoreMismatch(
                f"migration {record.number} ({record.name}) was applied with different SQL: this "
                "database was made by a different build of Tape"
            )
    done = {record.number for record in applied}
    with_post = with_post or not done
    return [m for m in known if m.number not in done and (with_post or m.phase == "pre")]


def has_draw_subjects(applied: Sequence[AppliedMigration]) -> bool:
    """Whether no version is left that does not read the subjects of draws."""
    return any(record.number == DRAW_SUBJECTS for record in applied)


def newer(
    known: Sequence[Migration], applied: Sequence[AppliedMigration]
) -> list[AppliedMigration]:
    """The steps that a newer version has applied, with which this one works."""
    numbers = {migration.number for migration in known}
    return [record for record in applied if record.number not in numbers]


def log_newer(known: Sequence[Migration], applied: Sequence[AppliedMigration]) -> None:
    if steps := newer(known, applied):
        names = ", ".join(f"{step.number:04d} {step.name}" for step in steps)
        log.info(
            "a newer version of Tape has migrated the database (%s); this version still works "
            "with it",
            names,
        )


def refuse_outdated(known: Sequence[Migration], applied: Sequence[AppliedMigration]) -> None:
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


def log_created(applied: Sequence[str], where: str) -> None:
    """Say that a database is new, by the names of the steps that were just applied to it."""
    if FIRST_STEP in applied:
        CREATED.info("created %s", where)


def no_store(where: str) -> InvalidArgument:
    """For who looks at a store or works through one: neither makes it."""
    return InvalidArgument(f"no store at {where}; {CREATORS}")
