"""What the adapters share: the moves, made of one step after another on the program's handle."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar

from tape.errors import NotInTransaction
from tape.model.outbox import NewOutboxRow
from tape.ports.caller import Answer, Handled
from tape.stores.caller.faults import refusal_of
from tape.stores.caller.statements import CREATING, Dialect, Style, statement

T = TypeVar("T")


class CallerStatement(NamedTuple):
    text: str
    parameters: Sequence[Any] = ()


class _Moves(ABC):
    style: ClassVar[Style]
    instead: ClassVar[str]
    """What to write to have a transaction."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect: Dialect = dialect

    @abstractmethod
    def _is_open(self) -> bool: ...

    @abstractmethod
    def _run(self, steps: Sequence[CallerStatement]) -> Answer[int]:
        """One after another; how many rows the last one wrote."""

    def require_open(self, lest: str) -> None:
        if not self._is_open():
            self._refuse(lest)

    def append_outbox(self, row: NewOutboxRow) -> Answer[None]:
        return _then(self._run([self._step("append_outbox", row)]), _nothing)

    def note_processed(self, handled: Handled) -> Answer[bool]:
        return _then(self._run([self._step("note_processed", handled)]), bool)

    def create_processed(self) -> Answer[None]:
        return _then(self._run([self._step(name) for name in CREATING[self.dialect]]), _nothing)

    def forget_processed(self, older_than_ms: int) -> Answer[int]:
        return self._run([self._step("forget_processed", (older_than_ms,))])

    def _step(self, name: str, parameters: Sequence[Any] = ()) -> CallerStatement:
        return CallerStatement(statement(self.dialect, self.style, name), parameters)

    def _refuse(self, lest: str) -> None:
        raise NotInTransaction(f"there is no open transaction: {lest}. {self.instead}")


class BlockingTransaction(_Moves):
    is_async = False

    @abstractmethod
    def _execute(self, step: CallerStatement) -> int: ...

    def _run(self, steps: Sequence[CallerStatement]) -> int:
        try:
            return [self._execute(step) for step in steps][-1]
        except Exception as error:
            refusal = refusal_of(error, self.dialect)
            if refusal is None:
                raise
            raise refusal from error


class AwaitedTransaction(_Moves):
    is_async = True

    @abstractmethod
    async def _execute(self, step: CallerStatement) -> int: ...

    async def _run(self, steps: Sequence[CallerStatement]) -> int:
        try:
            return [await self._execute(step) for step in steps][-1]
        except Exception as error:
            refusal = refusal_of(error, self.dialect)
            if refusal is None:
                raise
            raise refusal from error


def _then(answer: Answer[int], make: Callable[[int], T]) -> Answer[T]:
    if not isinstance(answer, Awaitable):
        return make(answer)

    async def later() -> T:
        return make(await answer)

    return later()


def _nothing(_rows: int) -> None:
    return None
