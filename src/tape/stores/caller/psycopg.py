"""Transactions of psycopg 3, synchronous and asynchronous."""

from typing import Any, NoReturn

from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor
from psycopg.pq import PipelineStatus, TransactionStatus

from tape.errors import InvalidArgument, NotInTransaction
from tape.ports.caller import CallerTransaction
from tape.stores.caller.faults import FAILED
from tape.stores.caller.transaction import AwaitedTransaction, BlockingTransaction, CallerStatement

_Handle = Connection[Any] | AsyncConnection[Any] | Cursor[Any] | AsyncCursor[Any]


def adapt(tx: _Handle) -> CallerTransaction:
    connection = tx.connection if isinstance(tx, Cursor | AsyncCursor) else tx
    if isinstance(connection, Connection):
        return _PsycopgTransaction(connection)
    return _AsyncPsycopgTransaction(connection)


def _is_open(connection: Connection[Any] | AsyncConnection[Any]) -> bool:
    if connection.pgconn.pipeline_status != PipelineStatus.OFF:
        _refuse("is in pipeline mode, where answers come later: call this before or after the "
                "`pipeline()` block, in the same transaction")  # fmt: skip
    status = connection.info.transaction_status
    if status == TransactionStatus.INERROR:
        raise NotInTransaction(FAILED)
    if status == TransactionStatus.ACTIVE:
        _refuse("is in the middle of another command: read its result to the end first")
    return status == TransactionStatus.INTRANS


def _refuse(why: str) -> NoReturn:
    raise InvalidArgument(why, field="tx")


class _PsycopgTransaction(BlockingTransaction):
    style = "percent"
    instead = (
        "Write both within `with connection.transaction():`; without it, psycopg begins a "
        "transaction only with your first statement"
    )

    def __init__(self, connection: Connection[Any]) -> None:
        super().__init__("postgres")
        self._connection = connection

    def _is_open(self) -> bool:
        return _is_open(self._connection)

    def _execute(self, step: CallerStatement) -> int:
        # Not the connection's own kind of cursor: placeholders depend on it.
        with Cursor(self._connection) as cursor:
            return cursor.execute(step.text.encode(), step.parameters or None).rowcount


class _AsyncPsycopgTransaction(AwaitedTransaction):
    style = "percent"
    instead = (
        "Write both within `async with connection.transaction():`; without it, psycopg begins a "
        "transaction only with your first statement"
    )

    def __init__(self, connection: AsyncConnection[Any]) -> None:
        super().__init__("postgres")
        self._connection = connection

    def _is_open(self) -> bool:
        return _is_open(self._connection)

    async def _execute(self, step: CallerStatement) -> int:
        async with AsyncCursor(self._connection) as cursor:
            await cursor.execute(step.text.encode(), step.parameters or None)
            return cursor.rowcount
