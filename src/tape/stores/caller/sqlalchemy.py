"""Transactions of SQLAlchemy: sessions and connections, synchronous and asynchronous.

That SQLAlchemy is in a transaction does not mean that the database is: with the isolation level
AUTOCOMMIT each statement is on its own. That level can be set on an engine, a connection, a session
or behind the back of all of them, so the driver's connection is asked.
"""

from typing import Any

from sqlalchemy import Connection, CursorResult, text
from sqlalchemy.exc import UnboundExecutionError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session

from tape.errors import InvalidArgument, NotInTransaction
from tape.ports.caller import CallerTransaction
from tape.stores.caller.statements import Dialect
from tape.stores.caller.transaction import AwaitedTransaction, BlockingTransaction, CallerStatement

_DIALECTS: dict[str, Dialect] = {"postgresql": "postgres", "sqlite": "sqlite"}
_UNBOUND = "the session has several databases: give the connection of the one that Tape is in"
_AUTOCOMMIT = (
    "the isolation level is AUTOCOMMIT, so each statement commits by itself: the event would be "
    "committed even if the change that it reports is not. Use a connection or session without "
    "that level"
)


def adapt(tx: Any) -> CallerTransaction:
    handle = tx() if isinstance(tx, scoped_session | async_scoped_session) else tx
    try:
        if isinstance(handle, AsyncConnection | AsyncSession):
            return _AsyncSqlalchemyTransaction(handle)
        return _SqlalchemyTransaction(handle)
    except UnboundExecutionError:
        raise InvalidArgument(_UNBOUND, field="tx") from None


def _dialect_of(handle: Connection | Session | AsyncConnection | AsyncSession) -> Dialect:
    bind = handle.get_bind() if isinstance(handle, Session | AsyncSession) else handle
    name = bind.dialect.name
    found = _DIALECTS.get(name)
    if found is None:
        raise InvalidArgument(
            f"SQLAlchemy's connection is to {name}; an outbox is on PostgreSQL or SQLite",
            field="tx",
        )
    return found


def _refuse_autocommit(connection: Connection) -> None:
    pooled = connection.connection
    raw: Any = pooled.dbapi_connection
    if connection.dialect.name == "sqlite":
        # Where a listener begins transactions by itself the driver is told not to.
        left_alone = raw.isolation_level is None or getattr(raw, "autocommit", None) is True
        driver: Any = pooled.driver_connection
        if left_alone and not driver.in_transaction:
            raise NotInTransaction(_AUTOCOMMIT)
    elif raw.autocommit:
        raise NotInTransaction(_AUTOCOMMIT)


def _named(step: CallerStatement) -> dict[str, Any]:
    return {f"p{number}": value for number, value in enumerate(step.parameters, 1)}


class _SqlalchemyTransaction(BlockingTransaction):
    style = "named"
    instead = "Write both within `with session.begin():` or `with engine.begin() as connection:`"

    def __init__(self, handle: Connection | Session) -> None:
        super().__init__(_dialect_of(handle))
        self._handle = handle

    def _is_open(self) -> bool:
        return self._handle.in_transaction()

    def _execute(self, step: CallerStatement) -> int:
        handle = self._handle
        connection = handle.connection() if isinstance(handle, Session) else handle
        _refuse_autocommit(connection)
        result: CursorResult[Any] = connection.execute(text(step.text), _named(step))
        result.close()
        return result.rowcount


class _AsyncSqlalchemyTransaction(AwaitedTransaction):
    style = "named"
    instead = (
        "Write both within `async with session.begin():` or "
        "`async with engine.begin() as connection:`"
    )

    def __init__(self, handle: AsyncConnection | AsyncSession) -> None:
        super().__init__(_dialect_of(handle))
        self._handle = handle

    def _is_open(self) -> bool:
        return self._handle.in_transaction()

    async def _execute(self, step: CallerStatement) -> int:
        handle = self._handle
        connection = await handle.connection() if isinstance(handle, AsyncSession) else handle
        _refuse_autocommit(await connection.run_sync(_itself))
        result = await connection.execute(text(step.text), _named(step))
        result.close()
        return result.rowcount


def _itself(connection: Connection) -> Connection:
    return connection
