"""The store: the journal and the rows beside it, in one database.

The contract is executable: `tests/conformance` runs over every store. In words:

* `commit` is the only write to the journal. It runs alone: across all processes on one database,
  no other commit happens between its load and its end. Whoever can see an entry can see every
  committed entry with a lower `global_seq`, so a cursor is one integer.
* When `commit` returns, what it wrote is durable. When it raises, nothing of it was written; a
  commit whose outcome a broken connection hid is looked up before it answers.
* Driver errors never leave a store: they arrive as StoreUnavailable (try again), StoreFull,
  StoreFailed (this write was refused) or StoreMismatch.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from tape.model.entry import Entry
from tape.model.move import EntryPlace, Need, State
from tape.ports.ledger import LedgerStore
from tape.ports.matching import MatchingStore
from tape.ports.outbox import OutboxStore
from tape.ports.predicate import EntryPredicate
from tape.ports.retention import RetentionStore
from tape.ports.runs import RunStore
from tape.ports.sessions import SessionStore
from tape.ports.subscriptions import SubscriptionStore
from tape.ports.tasks import TaskStore
from tape.ports.values import ValueStore
from tape.ports.wallet import WalletStore
from tape.ports.writes import WriteStore
from tape.settings import MIB

Decide = Callable[[State], None]
"""Lays what the moves decide over the rows of the state; pure. If it is called again, the last call
counts."""

PAGE_BYTES = 8 * MIB


class ReadEntries(NamedTuple):
    """Entries with `after < global_seq <= upto`, in order, at most `limit` and `max_bytes`.

    The filters are ANDed; an empty one lets everything through. `prefix` and `predicate` may let
    more through than the caller wants: it checks again. `unbroken` raises Pruned where entries of
    the range may have been pruned; without it they are passed over. A `hurried` caller does not
    wait for others whose predicates the store is at.
    """

    after: int
    upto: int
    limit: int
    max_bytes: int
    prefix: str = ""
    kind: str = ""
    run_id: str = ""
    from_ts_ms: int = 0
    predicate: EntryPredicate | None = None
    unbroken: bool = False
    hurried: bool = False


class EntryRange(NamedTuple):
    """What was read. Up to `through` nothing that passes the filters is left out."""

    entries: list[Entry]
    through: int


class JournalInfo(NamedTuple):
    """What a store says of itself."""

    store: str
    first_global_seq: int
    head_global_seq: int
    migration: int


class Store(Protocol):
    """The journal itself. What lies beside it is behind one attribute per noun."""

    @property
    def values(self) -> ValueStore: ...

    @property
    def sessions(self) -> SessionStore: ...

    @property
    def runs(self) -> RunStore: ...

    @property
    def matching(self) -> MatchingStore:
        """Registered reactions, and what the matcher makes of entries for them."""

    @property
    def tasks(self) -> TaskStore: ...

    @property
    def ledger(self) -> LedgerStore: ...

    @property
    def subscriptions(self) -> SubscriptionStore:
        """Declared subscriptions, and what was accepted for them."""

    @property
    def outbox(self) -> OutboxStore: ...

    @property
    def retention(self) -> RetentionStore: ...

    @property
    def writes(self) -> WriteStore:
        """Writes in bulk, and the chunks that are staged for them."""

    @property
    def wallet(self) -> WalletStore:
        """Sealed credentials."""

    @property
    def head(self) -> int:
        """The highest `global_seq` this process knows to be committed."""

    async def commit(self, needs: Iterable[Need], decide: Decide) -> EntryPlace:
        """Load what is needed, decide, write, and make it durable, alone.

        The place is that of the first entry.
        """

    async def await_beyond(self, global_seq: int) -> int:
        """Wait until `head` is greater; the head. Hears of other processes' commits too."""

    async def read_last_given(self) -> int:
        """The highest `global_seq` ever given out, committed or not: no cursor is beyond it."""

    async def read_entries(self, query: ReadEntries) -> EntryRange: ...

    async def read_run(
        self, run_id: str, after_seq: int, limit: int, max_bytes: int = PAGE_BYTES
    ) -> list[Entry]:
        """Its entries in its own order: at most `limit`, up to the one with which their payloads
        have `max_bytes`."""

    async def read_value_history(
        self, subjects: Sequence[str], after: int, limit: int, max_bytes: int = PAGE_BYTES
    ) -> list[Entry]:
        """Entries of kind `value` with one of these subjects, in order: at most `limit`, up to the
        one with which their payloads have `max_bytes`."""

    async def info(self) -> JournalInfo: ...

    async def close(self) -> None: ...
