"""Transactions of sqlite3, on the file of an embedded store."""

from sqlite3 import Connection, Cursor

from tape.ports.caller import CallerTransaction
from tape.stores.caller.transaction import BlockingTransaction, CallerStatement


def adapt(tx: Connection | Cursor) -> CallerTransaction:
    return _SqliteTransaction(tx.connection if isinstance(tx, Cursor) else tx)


class _SqliteTransaction(BlockingTransaction):
    style = "own"
    instead = (
        'Begin one with `connection.execute("BEGIN IMMEDIATE")` and end it with '
        "`connection.commit()` after both"
    )

    def __init__(self, connection: Connection) -> None:
        super().__init__("sqlite")
        self._connection = connection

    def _is_open(self) -> bool:
        return self._connection.in_transaction

    def _execute(self, step: CallerStatement) -> int:
        return self._connection.execute(step.text, step.parameters).rowcount
