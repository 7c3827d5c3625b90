"""Looking after a store from the command line: its facts, its migrations, bringing it up."""

import asyncio
import contextlib
from collections.abc import Mapping
from importlib.util import find_spec
from typing import NamedTuple
from urllib.parse import urlsplit

from tape.app import STORE_URLS, sqlite_path
from tape.config import Settings
from tape.errors import InvalidArgument, StoreMismatch
from tape.stores.migrations import Applied, load_migrations, pending
from tape.stores.sqlite import connection as sqlite_connection
from tape.stores.sqlite import migrate as sqlite_migrate
from tape.stores.sqlite.inspect import inspect as inspect_sqlite


class Step(NamedTuple):
    """One migration that this version of Tape knows."""

    number: int
    phase: str
    name: str
    applied: bool


class Inspection(NamedTuple):
    facts: Mapping[str, str | int]
    steps: list[Step]


async def inspect(url: str, settings: Settings) -> Inspection:
    """What the store at `url` says of itself; nothing is changed or made."""
    dialect, rest = _dialect(url)
    if dialect == "sqlite":
        facts, applied = await inspect_sqlite(sqlite_path(rest), settings.sqlite)
    else:
        from tape.stores.postgres.inspect import inspect as inspect_postgres

        facts, applied = await inspect_postgres(url, settings.postgres)
    return Inspection(facts, _steps(dialect, applied))


async def upgrade(url: str, settings: Settings, *, with_post: bool) -> list[str]:
    """Bring the store at `url` up to date; the names of what was applied."""
    dialect, rest = _dialect(url)
    if dialect == "sqlite":
        return await asyncio.to_thread(_upgrade_sqlite, rest, settings, with_post)
    from tape.stores.postgres.connection import connect_reader, translated
    from tape.stores.postgres.migrate import migrate

    with translated(url):
        connection = await connect_reader(url, settings.postgres)
        try:
            return await migrate(connection, with_post=with_post)
        finally:
            await connection.close()


def display(url: str) -> str:
    """The URL without user and password, for messages."""
    parts = urlsplit(url)
    if parts.hostname is None:
        return url
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{parts.hostname}{port}{parts.path}"


def _dialect(url: str) -> tuple[str, str]:
    scheme, _, rest = url.partition(":")
    if scheme == "sqlite":
        return scheme, rest
    if scheme not in ("postgres", "postgresql"):
        raise InvalidArgument(f"{scheme!r} is not a store; use {STORE_URLS}", field="store")
    if find_spec("asyncpg") is None:
        raise StoreMismatch("Postgres needs its driver: pip install 'tape-bus[postgres]'")
    return "postgres", rest


def _steps(dialect: str, applied: list[Applied]) -> list[Step]:
    known = load_migrations(f"tape.stores.{dialect}")
    todo = {migration.number for migration in pending(known, applied, with_post=True)}
    return [Step(m.number, m.phase, m.name, m.number not in todo) for m in known]


def _upgrade_sqlite(rest: str, settings: Settings, with_post: bool) -> list[str]:
    path = sqlite_path(rest)
    with sqlite_connection.translated(path):
        connection = sqlite_connection.connect(path, settings.sqlite.busy_s)
        with contextlib.closing(connection):
            return sqlite_migrate.migrate(connection, with_post=with_post)
