"""What the ledger needs of the store: `store.ledger`."""

from typing import NamedTuple, Protocol

from tape.model.drainer import Drainer
from tape.model.entry import Entry
from tape.model.event_subscription import EventSubscription
from tape.settings import MIB


class RecentQuery(NamedTuple):
    """Entries with a `global_seq` below `before` (0: from the newest), newest first.

    The texts are compared whole but for `prefix`, which is of the subject; empty ones not at all.
    At most `scan` numbers are looked at, or with a `run_id` the entries of that run. A page ends
    when it has `max_bytes` of payloads.
    """

    before: int = 0
    limit: int = 100
    prefix: str = ""
    event_type: str = ""
    entity_type: str = ""
    entity_id: str = ""
    run_id: str = ""
    trace_id: str = ""
    event_id: str = ""
    caused_by: str = ""
    source: str = ""
    scan: int = 20_000
    max_bytes: int = 8 * MIB


class RecentEntries(NamedTuple):
    """`before` is where to go on; 0 if nothing older is kept."""

    entries: list[Entry]
    before: int


class LedgerStore(Protocol):
    async def list_event_subscriptions(self, drainer_id: str = "") -> list[EventSubscription]:
        """By id, of one drainer or of all."""

    async def get_drainer(self, drainer_id: str) -> Drainer | None: ...

    async def list_drainers(self) -> list[Drainer]:
        """By id; those that have ever drained or been touched."""

    async def read_clock(self) -> int:
        """The store's time in milliseconds, which leases go by."""

    async def read_recent(self, query: RecentQuery) -> RecentEntries: ...
