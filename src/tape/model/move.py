"""A move: a pure function of the rows it touches, that says what to write or refuses.

The writer gathers moves into a batch. It asks each what it needs, loads all of that at once, lets
the moves decide in order on one `State` (a later move sees what an earlier one decided), and
writes the union of their decisions in one transaction. A move therefore

* names in `needs()` every row its decision may look at,
* reads rows only through the `State` it is given, and changes nothing in it,
* refuses by raising a TapeError, which costs no other move anything.

A move that needs nothing is *blind*: the store may decide it before its turn to write has come,
with no clock and no position. Such a move must not ask the state for either.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, cast

from tape.model.entry import EntryDraft

K = TypeVar("K", bound=Hashable)
R = TypeVar("R", bound=tuple[Any, ...])
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True, eq=False)
class Table(Generic[K, R]):
    """A table by name. Its row type's fields are its columns, in order.

    Rows of a table with a `parent` go when the parent's row is deleted; their keys start with its.
    """

    name: str
    row: Callable[..., R]
    key: Callable[[R], K]
    parent: "Table[Any, Any] | None" = None


class RowChange(NamedTuple):
    """A row to write, or (row is None) the key of one to delete."""

    table: Table[Any, Any]
    key: Hashable
    row: tuple[Any, ...] | None


def save(table: Table[K, R], row: R) -> RowChange:
    return RowChange(table, table.key(row), row)


def delete(table: Table[K, R], key: K) -> RowChange:
    return RowChange(table, key, None)


class Need(NamedTuple):
    """A row that a move looks at; `is_new` if there is most likely none yet."""

    table: Table[Any, Any]
    key: Hashable
    is_new: bool = False


class EntryPlace(NamedTuple):
    """Where a move's entries ended up: the first has `global_seq`, the next one more."""

    global_seq: int
    ts_ms: int


class Decision(NamedTuple, Generic[T_co]):
    reply: Callable[[EntryPlace], T_co]
    entries: Sequence[EntryDraft] = ()
    changes: Sequence[RowChange] = ()


class Move(Protocol[T_co]):
    @property
    def weight(self) -> int:
        """About how many bytes it holds, for the bound on the queue."""

    def needs(self) -> Iterable[Need]: ...

    def decide(self, state: "State") -> Decision[T_co]: ...


_Key = tuple[Any, ...]
_Rows = dict[Table[Any, Any], dict[Hashable, tuple[Any, ...]]]
_NOTHING: dict[Hashable, tuple[Any, ...]] = {}


class UsedKey(NamedTuple):
    """An idempotency key that was used, and the ids of the entry it made."""

    idempotency_key: str
    event_id: str
    global_seq: int
    seq: int


KNOWN = Table("known", UsedKey, lambda row: row.idempotency_key)


class Reading(Protocol):
    """What a decision may look at."""

    @property
    def now_ms(self) -> int: ...

    def get(self, table: Table[K, R], key: K) -> R | None: ...


class Overlay:
    """Rows with changes laid over them that are not decided yet, for a move of several parts."""

    __slots__ = ("_below", "_changed", "now_ms")

    def __init__(self, below: Reading) -> None:
        self._below = below
        self._changed: dict[tuple[Table[Any, Any], Hashable], tuple[Any, ...] | None] = {}
        self.now_ms = below.now_ms

    def get(self, table: Table[K, R], key: K) -> R | None:
        if (table, key) in self._changed:
            return cast("R | None", self._changed[table, key])
        return self._below.get(table, key)

    def apply(self, changes: Iterable[RowChange]) -> None:
        for table, key, row in changes:
            self._changed[table, key] = row

    @property
    def changes(self) -> list[RowChange]:
        return [RowChange(table, key, row) for (table, key), row in self._changed.items()]


class State:
    """The rows a batch has loaded, with what its moves have decided so far laid over them."""

    __slots__ = ("_rows", "deletions", "entries", "next_global_seq", "now_ms", "refused", "saves")

    def __init__(self, now_ms: int = 0, next_global_seq: int = 0) -> None:
        self.now_ms = now_ms
        self.next_global_seq = next_global_seq
        self.entries: list[EntryDraft] = []
        self.refused = 0
        """How many moves of the batch were not decided."""
        # What to write: deletions first, then saves.
        self.deletions: _Rows = {}
        self.saves: _Rows = {}
        self._rows: _Rows = {}

    def put_loaded(self, table: Table[K, R], rows: Iterable[R]) -> None:
        self._rows.setdefault(table, {}).update((table.key(row), row) for row in rows)

    def get(self, table: Table[K, R], key: K) -> R | None:
        return cast("R | None", self._rows.get(table, _NOTHING).get(key))

    def apply(self, decision: Decision[Any]) -> int:
        """Lay a decision over the rows; the index of its first entry in the batch."""
        first = len(self.entries)
        for table, key, row in decision.changes:
            if row is None:
                self._delete(table, key)
            else:
                self._rows.setdefault(table, {})[key] = row
                self.saves.setdefault(table, {})[key] = row
        for index, draft in enumerate(decision.entries, first):
            if draft.idempotency_key:
                key = draft.idempotency_key
                place = self.next_global_seq + index
                known = UsedKey(key, draft.event_id, place, draft.seq or 0)
                self._rows.setdefault(KNOWN, {})[key] = known
        self.entries += decision.entries
        return first

    def _delete(self, table: Table[Any, Any], key: Hashable) -> None:
        self.deletions.setdefault(table, {})[key] = ()
        start = key if isinstance(key, tuple) else (key,)
        for rows in (self._rows, self.saves):
            rows.get(table, {}).pop(key, None)
            for child, below in rows.items():
                if child.parent is table:
                    for orphan in [k for k in below if cast("_Key", k)[: len(start)] == start]:
                        del below[orphan]
