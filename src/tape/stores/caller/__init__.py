"""The transactions of programs, whatever they talk to their database with.

A handle is known by the names of its types, so that no driver is imported but the one that the
program has loaded itself. Each kind of handle has a module here with `adapt`.
"""

from importlib import import_module

from tape.errors import InvalidArgument
from tape.ports.caller import CallerTransaction

KNOWN = (
    "a Connection, AsyncConnection or cursor of psycopg, a connection of asyncpg, a Session, "
    "AsyncSession, Connection or AsyncConnection of SQLAlchemy, a database connection of Django "
    "(django.db.connection), a connection of sqlite3"
)
_ADAPTERS = {
    "psycopg.Connection": "psycopg",
    "psycopg.AsyncConnection": "psycopg",
    "psycopg.Cursor": "psycopg",
    "psycopg.AsyncCursor": "psycopg",
    "asyncpg.connection.Connection": "asyncpg",
    "asyncpg.pool.PoolConnectionProxy": "asyncpg",
    "sqlalchemy.engine.base.Connection": "sqlalchemy",
    "sqlalchemy.orm.session.Session": "sqlalchemy",
    "sqlalchemy.orm.scoping.scoped_session": "sqlalchemy",
    "sqlalchemy.ext.asyncio.engine.AsyncConnection": "sqlalchemy",
    "sqlalchemy.ext.asyncio.session.AsyncSession": "sqlalchemy",
    "sqlalchemy.ext.asyncio.scoping.async_scoped_session": "sqlalchemy",
    "django.db.backends.base.base.BaseDatabaseWrapper": "django",
    "django.utils.connection.ConnectionProxy": "django",
    "sqlite3.Connection": "sqlite",
    "sqlite3.Cursor": "sqlite",
}


def adapt_caller(tx: object) -> CallerTransaction:
    """The transaction that a handle is in the middle of; refuses what is no handle."""
    adapter = _adapter_of(type(tx))
    if adapter is None:
        kind = f"{type(tx).__module__}.{type(tx).__qualname__}"
        raise InvalidArgument(f"{kind} is not a supported transaction; give {KNOWN}", field="tx")
    caller: CallerTransaction = import_module(f"{__name__}.{adapter}").adapt(tx)
    return caller


def _adapter_of(kind: type) -> str | None:
    names = (f"{base.__module__}.{base.__qualname__}" for base in kind.__mro__)
    return next((_ADAPTERS[name] for name in names if name in _ADAPTERS), None)
