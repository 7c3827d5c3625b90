"""The journal by the column: what a Spark executor needs of a store, and nothing else.

Synchronous, one object per task, in Arrow record batches. A scan sees one state of the store, and
raises Pruned if that state no longer has the whole range: what it gives out is never a part of what
was asked for. Executors stage what they write as chunks, and a driver records them as moves, so
writing to the journal itself stays with `ports.store`.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Literal, NamedTuple, Protocol, TypeVar

import pyarrow as pa

from tape.ports.predicate import EntryPredicate
from tape.ports.store import Store
from tape.settings import Settings

T = TypeVar("T")

Operator = Literal["=", "<", "<=", ">", ">=", "in", "starts"]


class Condition(NamedTuple):
    """`column operator value`, where NULL columns were read as "" or 0; `in` has a tuple."""

    column: str
    operator: Operator
    value: str | int | tuple[str | int, ...]


class Scan(NamedTuple):
    """Entries with `after < global_seq <= upto`, in order, with these columns of `Entry`.

    `conditions` are exact and ANDed. `predicate` is decided as far as the store can: more may come
    through than it lets, and whoever asked decides again.
    """

    after: int
    upto: int
    columns: tuple[str, ...]
    conditions: tuple[Condition, ...] = ()
    predicate: EntryPredicate | None = None


class Bounds(NamedTuple):
    """The oldest and newest entry there is, 0 if none, and up to where entries were pruned."""

    first: int
    head: int
    pruned_through: int


class Chunk(NamedTuple):
    """Rows that an executor has staged for a write, as an Arrow IPC stream."""

    write_id: str
    epoch: int
    part: str
    number: int
    rows: int
    body: bytes


class BulkReader(Protocol):
    def bounds(self) -> Bounds: ...

    def cut(self, after: int, upto: int, rows: int) -> list[int]:
        """The ends of successive ranges of about so many entries; the last is `upto`.

        None where `after >= upto`."""

    def reach(self, after: int, entries: int) -> int | None:
        """The last of so many entries after `after`; None if there are fewer."""

    def scan(self, scan: Scan, batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Batches with the columns asked for; raises Pruned, at the latest at the end."""

    def read_table(
        self, name: str, batch_rows: int, columns: Sequence[str] = ()
    ) -> Iterator[pa.RecordBatch]:
        """A table beside the journal by the name of its rows: `effects`, `runs`…

        `columns` picks some of its columns; none picks all.
        """

    def close(self) -> None: ...


class Staging(Protocol):
    """Chunks on their way into the journal. Nobody reads them but the write they belong to."""

    def stage(self, chunks: Sequence[Chunk]) -> None:
        """Keep them until their write is recorded or given up; durable when it returns."""

    def discard(self, write_id: str, epoch: int, parts: Sequence[str]) -> None:
        """Forget what these parts staged."""

    def close(self) -> None: ...


class UseStore(Protocol):
    """Opens a store, uses it on an event loop of its own, and closes it again."""

    def __call__(self, use: Callable[[Store], Awaitable[T]]) -> T: ...

    def reader(self) -> BulkReader:
        """Open the store by the column, beside whatever else this process has it open for."""


class OpenStores(Protocol):
    """How Spark's processes come to a store by its URL; can be pickled, since they are sent it."""

    @property
    def settings(self) -> Settings: ...

    def located(self, url: str) -> str:
        """The same store for a process with another working directory."""

    def reader(self, url: str) -> BulkReader:
        """Open a store by the column, in a process that does not have it open otherwise."""

    def staging(self, url: str) -> Staging: ...

    def store(self, url: str, *, creating: bool = False) -> UseStore:
        """Refuses a store that is not there, unless it may be created."""
