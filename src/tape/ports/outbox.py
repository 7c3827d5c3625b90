"""What the outbox relay needs of the store: `store.outbox`.

At most one relay of a name leads. On Postgres the right to lead is an advisory lock of one session
that is kept for nothing else; the database ends that session when it has not been heard of for
`hung_s`, so a leader that hangs loses the lock although its process and its sockets are still
there. On SQLite it is a lease of as long, renewed as often. Everything a leader marks goes through
that session or under that lease: whoever has lost the lead cannot mark anything.

Promotion is not a leader's privilege. It happens in a turn of the writer that looks whether the
row is promoted already (`model.promote.PromoteOutbox`).
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from tape.model.outbox import FailingRow, OutboxRow, RelayTerm, RepeatedRow


class Lead(NamedTuple):
    """What is asked for: to lead the relay of that name, as `owner`."""

    relay: str
    owner: str
    lock_key: int
    hung_s: float
    event_id: str
    """Of the entry that tells of the election."""


class OutboxStatus(NamedTuple):
    """`waiting` is how many rows are not published and `unpromoted` how many are not on the
    journal, each counted up to a bound; `oldest_ms` is how long the oldest of them has waited;
    `failing` are those that the broker or the journal did not take. `repeated` is how many rows
    repeat an event, counted likewise, and `repeats` are the latest of them."""

    waiting: int
    unpromoted: int
    oldest_ms: int
    failing: list[FailingRow]
    terms: list[RelayTerm]
    repeated: int
    repeats: list[RepeatedRow]


class OutboxLeader(Protocol):
    """The right to publish. Every method raises NotLeading once it is lost."""

    @property
    def term(self) -> RelayTerm: ...

    @property
    def is_certain(self) -> bool:
        """Whether the store has confirmed the lead within half of `hung_s`, so that nobody else can
        lead yet; by a clock that never goes back."""

    async def read_unpromoted(self, limit: int, held: Sequence[str] = ()) -> list[OutboxRow]:
        """Rows that are not on the journal, by id. None with a subject in `held`."""

    async def read_unpublished(self, limit: int, held: Sequence[str] = ()) -> list[OutboxRow]:
        """Rows that are on the journal and not published, by place there. None with a subject in
        `held`."""

    async def mark_published(self, ids: Sequence[int]) -> None:
        """The broker has acknowledged these. Durable."""

    async def note_failure(self, row_id: int, error: str) -> None:
        """The broker, or the journal, did not take this one: count the attempt, keep the reason."""

    async def confirm(self) -> None:
        """Still leading, by the store's own word."""

    async def wait(self, timeout_s: float) -> None:
        """Until rows were appended, as far as can be heard, at most so long."""

    async def forget_published(self, older_than_ms: int, limit: int) -> int:
        """Remove a few rows that were published longer ago than that; how many."""

    async def forget_repeats(self, older_than_ms: int, limit: int) -> int:
        """Remove a few rows that were found to be repeats longer ago than that; how many."""

    async def forget_promoted(self, older_than_ms: int, limit: int) -> int:
        """Where nobody has ever published: remove a few rows that are on the journal and older than
        that; how many."""

    async def release(self) -> None:
        """Let another lead at once."""


class OutboxStore(Protocol):
    async def lead_outbox(self, lead: Lead) -> OutboxLeader | None:
        """Try once to lead; None if another does. The election is an entry on the journal."""

    async def has_unpromoted(self) -> bool:
        """Whether there are rows that are not on the journal; cheap."""

    async def read_outbox_status(self, limit: int) -> OutboxStatus: ...
