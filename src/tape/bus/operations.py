"""What every door can ask for."""

from collections.abc import AsyncGenerator, Sequence
from typing import NamedTuple, Protocol

from tape.bus.outbox import OutboxOperations
from tape.bus.reactions import ReactionOperations
from tape.bus.sessions import SessionOperations
from tape.bus.values import ValueOperations
from tape.journal.follow import Page
from tape.ledger.operations import LedgerOperations
from tape.model.event import NewEvent, Recorded
from tape.model.subject import EVERYTHING
from tape.ports.store import JournalInfo
from tape.reactions.tasks import TaskOperations
from tape.runs.operations import RunOperations
from tape.settings import Settings
from tape.subscriptions.operations import SubscriptionOperations
from tape.wallet.operations import WalletOperations


class FollowQuery(NamedTuple):
    """Entries with a `global_seq` greater than `after`, in order; 0 is from the earliest kept.

    With `until` the pages end there instead of going on into the present. A page ends when it has
    `max_bytes` of payloads; 0 is as many as the limits allow.
    """

    pattern: str = EVERYTHING
    predicate: str = ""
    after: int = 0
    max_batch: int = 0
    kind: str = ""
    run_id: str = ""
    from_ts_ms: int = 0
    until: int = 0
    max_bytes: int = 0


class Operations(Protocol):
    @property
    def exposed(self) -> bool:
        """Whether others than this machine's programs can register reactions here."""

    @property
    def settings(self) -> Settings:
        """What this process is set to."""

    @property
    def runs(self) -> RunOperations: ...

    @property
    def tasks(self) -> TaskOperations: ...

    @property
    def values(self) -> ValueOperations: ...

    @property
    def sessions(self) -> SessionOperations: ...

    @property
    def reactions(self) -> ReactionOperations: ...

    @property
    def ledger(self) -> LedgerOperations:
        """The operations on event subscriptions, drainers and recent entries."""

    @property
    def outbox(self) -> OutboxOperations: ...

    @property
    def wallet(self) -> WalletOperations:
        """The operations on credentials."""

    @property
    def subscriptions(self) -> SubscriptionOperations:
        """The operations on declared subscriptions, and those of their listeners."""

    async def record_events(self, events: Sequence[NewEvent]) -> list[Recorded]:
        """Record all of them or none; the ids of each, in order, once durable."""

    def follow(self, query: FollowQuery) -> AsyncGenerator[Page, None]:
        """Pages of matching entries, from history into the present, until closed."""

    async def info(self) -> JournalInfo: ...

    async def close(self) -> None: ...
