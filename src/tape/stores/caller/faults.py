"""What a driver says that a program cannot know the reason of: our table is not there, or the
transaction is over already. Everything else stays the driver's own error."""

from collections.abc import Iterator

from tape.errors import NotInTransaction, StoreMismatch, TapeError
from tape.stores.caller.statements import Dialect

_UNDEFINED = ("42P01", "3F000")  # no such table, no such schema
_FAILED = "25P02"
_MISSING = {
    "postgres": "has no outbox of Tape: run `tape migrate --store postgres://…` for it once, or "
    "call `tape.create_processed(tx)` if it only handles messages",
    "sqlite": "has no outbox of Tape in its main file: open the file of the store itself, after "
    "`tape migrate --store sqlite:…`. An attached file does not work, because a commit over "
    "attached files is not atomic; for a file that only handles messages call "
    "`tape.create_processed(tx)`",
}
FAILED = (
    "the transaction has failed already and can only be rolled back: an error in it was caught "
    "and ignored, or the rollback is still to come"
)


def refusal_of(error: Exception, dialect: Dialect) -> TapeError | None:
    if isinstance(error, TapeError):
        return None
    for told in _causes(error):
        if dialect == "sqlite":
            if str(told).startswith("no such table: main.bus_"):
                return StoreMismatch(f"this database {_MISSING[dialect]}")
            continue
        state = getattr(told, "sqlstate", None) or getattr(told, "pgcode", None)
        if state in _UNDEFINED:
            return StoreMismatch(f"this database {_MISSING[dialect]}")
        if state == _FAILED:
            return NotInTransaction(FAILED)
    return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The driver's own error, inside those of the layers over it."""
    told: BaseException | None = error
    while told is not None:
        yield told
        told = told.__cause__
