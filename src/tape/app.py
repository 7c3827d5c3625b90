"""Composition root: a URL and settings in, a running Tape out."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from tape.bus import Bus
from tape.config import Settings
from tape.errors import InvalidArgument, StoreMismatch
from tape.ports.store import Store
from tape.stores.sqlite.store import SqliteStore

STORE_URLS = "sqlite:PATH or postgres://USER@HOST/DATABASE"


async def open_store(url: str, settings: Settings, *, migrating: bool = True) -> Store:
    """The store a URL names, brought up to date unless told otherwise."""
    scheme, _, rest = url.partition(":")
    match scheme:
        case "sqlite":
            return await SqliteStore.open(sqlite_path(rest), settings.sqlite, migrating=migrating)
        case "postgres" | "postgresql":
            try:
                from tape.stores.postgres.store import PostgresStore
            except ModuleNotFoundError as error:
                if error.name != "asyncpg":
                    raise
                raise StoreMismatch(
                    "Postgres needs its driver: pip install 'tape-bus[postgres]'"
                ) from None
            if not urlsplit(url).path.strip("/"):
                raise InvalidArgument("names no database", field="store")
            return await PostgresStore.open(url, settings.postgres, migrating=migrating)
    raise InvalidArgument(f"{scheme!r} is not a store; use {STORE_URLS}", field="store")


def sqlite_path(rest: str) -> Path:
    """`sqlite:tape.db`, `sqlite:/abs/tape.db` and `sqlite:///abs/tape.db` name a file."""
    path = unquote(rest.removeprefix("//").partition("?")[0])
    if path in ("", "/", ":memory:"):
        raise InvalidArgument("names no file; a journal lives on disk", field="store")
    return Path(path)


async def open_bus(url: str, settings: Settings | None = None, *, migrating: bool = True) -> Bus:
    """Tape in this process on the store a URL names."""
    settings = settings or Settings()
    return Bus(await open_store(url, settings, migrating=migrating), settings)
