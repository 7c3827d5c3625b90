"""Sessions on Postgres, and its errors in our words.

The writer's session carries time-outs that the database itself enforces, so a process that hangs
while it holds the turn is cut off within seconds and the others go on.
"""

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

import asyncpg

from tape.errors import StoreFailed, StoreFull, StoreMismatch, StoreUnavailable, TapeError
from tape.settings import PostgresSettings
from tape.stores.login import without_login

OLDEST_SERVER = 14
_HAS_TRANSACTION_TIMEOUT = 17

_AWAY = (
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.IdleSessionTimeoutError,
    asyncpg.QueryCanceledError,
    asyncpg.LockNotAvailableError,
    asyncpg.TooManyConnectionsError,
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.ObjectNotInPrerequisiteStateError,  # a database closed to connections for a while
    asyncpg.InternalClientError,
    asyncpg.InterfaceError,
    OSError,
    TimeoutError,
)
# InternalClientError is what asyncpg says when a session ended while it lay idle.
_DRIVER_ERRORS = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
)
_NOT_OURS = (
    asyncpg.InvalidCatalogNameError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InsufficientPrivilegeError,
    asyncpg.UndefinedTableError,
    asyncpg.UndefinedFunctionError,
    asyncpg.InvalidSchemaNameError,
)
_TRANSACTION_TIMEOUT = "25P04"

# Every read is a look-up in an index or a range of one in its own order. A planner without fresh
# statistics would rather sort 50,000 rows to return the first 1,000, or read the whole journal for
# a few keys, so the other ways are closed to it; with one way left, planning anew is waste.
_INDEX_ORDER = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_sort": "off",
    "enable_incremental_sort": "off",
    "plan_cache_mode": "force_generic_plan",
    "jit": "off",
}


class Backend(NamedTuple):
    """A server process, told apart from a later one with the same number."""

    pid: int
    started: str


def address(url: str) -> str:
    """The URL without user, password and parameters, for messages."""
    place = without_login(url.partition(":")[2])
    host, slash, database = place.partition("/")
    port = "" if ":" in host.rpartition("]")[2] else ":5432"
    return f"{host or 'localhost'}{port}{slash}{database}"


async def connect_reader(url: str, settings: PostgresSettings) -> asyncpg.Connection:
    return await asyncpg.connect(
        url,
        timeout=settings.connect_s,
        command_timeout=2 * settings.transaction_s,
        server_settings={"application_name": "tape", **_INDEX_ORDER},
    )


async def connect_worker(
    url: str, settings: PostgresSettings, *, durable: bool
) -> asyncpg.Connection:
    """A session for the queue's single statements. What is not durable when it returns can be lost
    only to a crash of the database, and only with all that came after it."""
    return await asyncpg.connect(
        url,
        timeout=settings.connect_s,
        command_timeout=2 * settings.transaction_s,
        server_settings={
            "application_name": "tape tasks",
            "synchronous_commit": "on" if durable else "off",
            "default_transaction_isolation": "read committed",
            **_INDEX_ORDER,
            "lock_timeout": _milliseconds(settings.transaction_s),
            "statement_timeout": _milliseconds(settings.transaction_s),
        },
    )


async def connect_writer(
    url: str, settings: PostgresSettings
) -> tuple[asyncpg.Connection, Backend]:
    """A session that acknowledges only what is durable, and that cannot hold its turn for long."""
    connection = await asyncpg.connect(
        url,
        timeout=settings.connect_s,
        command_timeout=settings.transaction_s + settings.idle_in_transaction_s,
        server_settings={
            "application_name": "tape writer",
            "synchronous_commit": "on",
            # Under a stricter default a turn would look at a snapshot from before its lock.
            "default_transaction_isolation": "read committed",
            **_INDEX_ORDER,
            "idle_in_transaction_session_timeout": _milliseconds(settings.idle_in_transaction_s),
            "lock_timeout": _milliseconds(settings.transaction_s),
            "statement_timeout": _milliseconds(settings.transaction_s),
        },
    )
    try:
        if connection.get_server_version().major >= _HAS_TRANSACTION_TIMEOUT:
            limit = _milliseconds(settings.transaction_s)
            await connection.execute(f"SET transaction_timeout = {limit}")
        row = await connection.fetchrow(
            "SELECT pid, backend_start::text FROM pg_stat_activity WHERE pid = pg_backend_pid()"
        )
    except BaseException:
        connection.terminate()
        raise
    assert row is not None  # noqa: S101 - a session always sees itself
    return connection, Backend(*row)


async def connect_leader(url: str, settings: PostgresSettings, hung_s: float) -> asyncpg.Connection:
    """A session that the database ends when it has not been heard of for `hung_s`."""
    return await asyncpg.connect(
        url,
        timeout=settings.connect_s,
        command_timeout=hung_s,
        server_settings={
            "application_name": "tape relay",
            "synchronous_commit": "on",
            "default_transaction_isolation": "read committed",
            **_INDEX_ORDER,
            "idle_session_timeout": _milliseconds(hung_s),
            "lock_timeout": _milliseconds(hung_s),
            "statement_timeout": _milliseconds(hung_s),
        },
    )


async def end_backend(connection: asyncpg.Connection, backend: Backend, wait_s: float) -> bool:
    """End a session of ours that may still be at work; True once it is gone."""
    gone = await connection.fetchval(
        "SELECT bool_and(pg_terminate_backend(pid, $3)) FROM pg_stat_activity "
        "WHERE pid = $1 AND backend_start::text = $2",
        backend.pid,
        backend.started,
        int(wait_s * 1000),
    )
    return gone is not False


@contextlib.contextmanager
def translated(url: str) -> Iterator[None]:
    """Driver errors become ours here and nowhere else."""
    try:
        yield
    except _DRIVER_ERRORS as error:
        raise _translate(error, url) from error
    except (OverflowError, UnicodeEncodeError) as error:
        raise StoreFailed(f"Postgres cannot hold this value: {error}") from error


def _translate(error: Exception, url: str) -> TapeError:
    where = address(url)
    if isinstance(error, asyncpg.DataError) or (
        # A value asyncpg cannot encode is an InterfaceError of its own making.
        isinstance(error, asyncpg.InterfaceError) and isinstance(error, ValueError)
    ):
        return StoreFailed(f"Postgres refused a value: {error}")
    if isinstance(error, asyncpg.DiskFullError):
        return StoreFull(f"Postgres at {where}: the disk is full; nothing was written")
    if isinstance(error, _NOT_OURS):
        return StoreMismatch(f"Postgres at {where}: {error}")
    if isinstance(error, _AWAY) or getattr(error, "sqlstate", "") == _TRANSACTION_TIMEOUT:
        reason = str(error) or type(error).__name__
        return StoreUnavailable(f"Postgres at {where} cannot be reached: {reason}")
    return StoreFailed(f"Postgres refused the write: {error}")


def _milliseconds(seconds: float) -> str:
    return str(int(seconds * 1000))
