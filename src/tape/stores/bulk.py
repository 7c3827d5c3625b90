"""A store by the column, for Spark's executors: what a URL names.

The drivers come with the extra `spark`, so they are imported when they are asked for.
"""

from urllib.parse import quote

from tape.ports.bulk import BulkReader, Staging
from tape.settings import Settings
from tape.stores.by_url import dialect_of, sqlite_path


def open_reader(url: str, *, is_alone: bool = True) -> BulkReader:
    """Not `is_alone`: this process may have the store open otherwise. Such a reader is slower."""
    if dialect_of(url) == "sqlite":
        from tape.stores.sqlite.bulk import SqliteReader

        return SqliteReader(sqlite_path(url), is_alone=is_alone)
    from tape.stores.postgres.bulk import PostgresReader

    return PostgresReader(url)


def open_staging(url: str, settings: Settings) -> Staging:
    if dialect_of(url) == "sqlite":
        from tape.stores.sqlite.staging import SqliteStaging

        return SqliteStaging(sqlite_path(url), settings.sqlite)
    from tape.stores.postgres.staging import PostgresStaging

    return PostgresStaging(url, settings.postgres)


def located(url: str) -> str:
    """The same store for a process with another working directory."""
    if dialect_of(url) == "sqlite":
        return f"sqlite:{quote(str(sqlite_path(url).absolute()))}"
    return url
