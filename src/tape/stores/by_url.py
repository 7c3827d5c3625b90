"""What a store's URL names: open it, look at it, bring it up to date.

The one place that tells the dialects apart. Postgres needs a driver that the light install does not
bring, so its modules are imported when a URL asks for them.
"""

import asyncio
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import unquote, urlsplit

from tape.errors import InvalidArgument, StoreMismatch
from tape.ports.clock import Clock, system_clock
from tape.ports.store import Store
from tape.settings import Settings
from tape.stores.login import UNSAID, scheme_of, without_login
from tape.stores.migrations import (
    AppliedMigration,
    NumberSequence,
    Upgraded,
    load_migrations,
    log_created,
    newer,
    pending,
)
from tape.stores.sqlite.inspect import inspect as inspect_sqlite
from tape.stores.sqlite.migrate import upgrade as upgrade_sqlite
from tape.stores.sqlite.store import SqliteStore

STORE_URLS = "sqlite:PATH or postgres://USER@HOST/DATABASE"


class MigrationStep(NamedTuple):
    """One migration that this version of Tape knows, or that a newer one has applied."""

    number: int
    phase: str
    name: str
    applied: bool
    known: bool = True


class Inspection(NamedTuple):
    """`sequences` are those of a store that is up to date."""

    facts: Mapping[str, str | int]
    steps: list[MigrationStep]
    sequences: list[NumberSequence]

    @property
    def is_current(self) -> bool:
        """Whether the store is there with all that this version needs."""
        return "bytes" in self.facts and all(s.applied for s in self.steps if s.phase == "pre")


async def open_store(
    url: str,
    settings: Settings,
    *,
    migrating: bool = True,
    creating: bool = True,
    clock: Clock | None = None,
) -> Store:
    """The store a URL names, brought up to date unless told otherwise.

    One that is not there is created and the log says so, or refused if not `creating`.
    A file has no clock of its own, so it may be given one: a test's, to move time.
    """
    if dialect_of(url) == "sqlite":
        return await SqliteStore.open(
            sqlite_path(url),
            settings.sqlite,
            migrating=migrating,
            creating=creating,
            clock=clock or system_clock,
        )
    if clock is not None:
        raise InvalidArgument("Postgres has its own clock; give none", field="clock")
    from tape.stores.postgres.store import PostgresStore

    return await PostgresStore.open(url, settings.postgres, migrating=migrating, creating=creating)


async def inspect_store(url: str, settings: Settings) -> Inspection:
    """What the store says of itself; nothing is changed or made."""
    dialect = dialect_of(url)
    if dialect == "sqlite":
        seen = await inspect_sqlite(sqlite_path(url), settings.sqlite)
    else:
        from tape.stores.postgres.inspect import inspect as inspect_postgres

        seen = await inspect_postgres(url, settings.postgres)
    return Inspection(seen.facts, _steps(dialect, seen.applied), seen.sequences)


async def upgrade_store(url: str, settings: Settings, *, with_post: bool) -> Upgraded:
    """Bring the store up to date, and create it where there is none; mend sequences that are
    behind."""
    if dialect_of(url) == "sqlite":
        path = sqlite_path(url)
        done = await asyncio.to_thread(upgrade_sqlite, path, settings.sqlite, with_post=with_post)
    else:
        from tape.stores.postgres.migrate import upgrade as upgrade_postgres

        done = await upgrade_postgres(url, settings.postgres, with_post=with_post)
    log_created(done.applied, display(url))
    return done


def sqlite_path(url: str) -> Path:
    """`sqlite:tape.db`, `sqlite:/abs/tape.db` and `sqlite:///abs/tape.db` name a file."""
    if not url.startswith("sqlite:"):
        raise InvalidArgument(
            f"{url!r} names no file: write sqlite:PATH, for example sqlite:tape.db", field="store"
        )
    rest = url.removeprefix("sqlite:")
    path = unquote(rest.removeprefix("//").partition("?")[0])
    if path in ("", "/", ":memory:"):
        raise InvalidArgument("names no file; a journal lives on disk", field="store")
    return Path(path)


def display(url: str) -> str:
    """The URL without user, password and parameters, for messages; however malformed it is."""
    scheme = scheme_of(url)
    if scheme == "sqlite":
        return url
    return scheme if scheme == UNSAID else f"{scheme}://{without_login(url.partition(':')[2])}"


def dialect_of(url: str) -> Literal["sqlite", "postgres"]:
    """Which of the dialects' modules are for it; refuses what none of them can open."""
    scheme = url.partition(":")[0]
    if scheme == "sqlite":
        return "sqlite"
    if scheme not in ("postgres", "postgresql"):
        named = repr(scheme_of(url))
        raise InvalidArgument(f"{named} is not a store; use {STORE_URLS}", field="store")
    if find_spec("asyncpg") is None:
        raise StoreMismatch("Postgres needs its driver: pip install 'tape-bus[postgres]'")
    _check_postgres_url(url)
    return "postgres"


def _check_postgres_url(url: str) -> None:
    """Refuse what a driver would read in another way, without repeating any of it."""
    parts = urlsplit(url)
    try:
        readable = url.startswith(f"{parts.scheme}://") and (parts.port or True)
    except ValueError:
        readable = False
    if not readable or "@" in parts.path or "@" in parts.fragment:
        raise InvalidArgument(
            "is not postgres://USER:PASSWORD@HOST:PORT/DATABASE; /, ?, # and @ in a password are "
            "written %2F, %3F, %23 and %40",
            field="store",
        )
    if not parts.path.strip("/"):
        raise InvalidArgument("names no database", field="store")


def _steps(dialect: str, applied: list[AppliedMigration]) -> list[MigrationStep]:
    known = load_migrations(f"tape.stores.{dialect}")
    todo = {migration.number for migration in pending(known, applied, with_post=True)}
    ours = [MigrationStep(m.number, m.phase, m.name, m.number not in todo) for m in known]
    theirs = [
        MigrationStep(step.number, "pre", step.name, applied=True, known=False)
        for step in newer(known, applied)
    ]
    return sorted(ours + theirs)
