"""Transactions of Django: `transaction.atomic` on one of its database connections."""

from typing import Any

from tape.errors import InvalidArgument, NotInTransaction
from tape.ports.caller import CallerTransaction
from tape.stores.caller.faults import FAILED
from tape.stores.caller.statements import Dialect
from tape.stores.caller.transaction import BlockingTransaction, CallerStatement

_DIALECTS: dict[str, Dialect] = {"postgresql": "postgres", "sqlite": "sqlite"}


def adapt(tx: Any) -> CallerTransaction:
    dialect = _DIALECTS.get(tx.vendor)
    if dialect is None:
        raise InvalidArgument(
            f"Django's connection is to {tx.vendor}; an outbox is on PostgreSQL or SQLite",
            field="tx",
        )
    return _DjangoTransaction(tx, dialect)


class _DjangoTransaction(BlockingTransaction):
    style = "percent"
    instead = "Write both within `with transaction.atomic():`"

    def __init__(self, connection: Any, dialect: Dialect) -> None:
        super().__init__(dialect)
        self._connection = connection

    def _is_open(self) -> bool:
        if self._connection.in_atomic_block and self._connection.needs_rollback:
            raise NotInTransaction(FAILED)
        return bool(self._connection.in_atomic_block)

    def _execute(self, step: CallerStatement) -> int:
        with self._connection.cursor() as cursor:
            cursor.execute(step.text, step.parameters or None)
            rows: int = cursor.rowcount
            return rows
