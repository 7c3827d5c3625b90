"""A program's own transaction, as `publish_within` and `processed_within` see it.

Nothing here begins, commits or rolls back: that is the program's. A refusal comes before anything
is sent. What the database itself says against a statement is raised as the program's driver raises
it, so that its own handling of conflicts and retries still works; there are two exceptions, a
missing table and a transaction that has failed already, which have our errors.
"""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from tape.model.outbox import NewOutboxRow

T = TypeVar("T")

Answer: TypeAlias = T | Awaitable[T]
"""At once where the program's handle is synchronous, to be awaited where it is not."""


class AsyncHandle(Protocol):
    """What all asynchronous handles have in common, and no other has."""

    @property
    def execute(self) -> Callable[..., Coroutine[Any, Any, Any]]: ...


class BlockingConnection(Protocol):
    """What the synchronous ones have in common, and no other has."""

    def commit(self) -> None: ...


class BlockingCursor(Protocol):
    @property
    def connection(self) -> BlockingConnection: ...


BlockingHandle = BlockingConnection | BlockingCursor


class Handled(NamedTuple):
    consumer: str
    message_id: str


class CallerTransaction(Protocol):
    @property
    def is_async(self) -> bool: ...

    def require_open(self, lest: str) -> None:
        """Raises NotInTransaction; `lest` says what could happen without a transaction."""

    def append_outbox(self, row: NewOutboxRow) -> Answer[None]: ...

    def note_processed(self, handled: Handled) -> Answer[bool]:
        """Whether it is new. Who handles the same at once waits for the other's outcome."""

    def create_processed(self) -> Answer[None]:
        """Make the table of `note_processed` where it is missing."""

    def forget_processed(self, older_than_ms: int) -> Answer[int]:
        """How many were removed."""


async def settled(answer: Answer[T]) -> T:
    return await answer if isinstance(answer, Awaitable) else answer
