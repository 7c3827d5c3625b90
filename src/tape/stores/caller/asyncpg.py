"""Transactions of asyncpg."""

from typing import Any, TypeAlias

from asyncpg import Connection
from asyncpg.pool import PoolConnectionProxy

from tape.ports.caller import CallerTransaction
from tape.stores.caller.transaction import AwaitedTransaction, CallerStatement

_Handle: TypeAlias = "Connection[Any] | PoolConnectionProxy[Any]"


def adapt(tx: _Handle) -> CallerTransaction:
    return _AsyncpgTransaction(tx)


class _AsyncpgTransaction(AwaitedTransaction):
    style = "own"
    instead = "Write both within `async with connection.transaction():`"

    def __init__(self, connection: _Handle) -> None:
        super().__init__("postgres")
        self._connection = connection

    def _is_open(self) -> bool:
        return self._connection.is_in_transaction()

    async def _execute(self, step: CallerStatement) -> int:
        status = await self._connection.execute(step.text, *step.parameters)
        rows = status.rpartition(" ")[2]  # INSERT 0 1, DELETE 5, CREATE TABLE
        return int(rows) if rows.isdecimal() else 0
