"""What declared subscriptions need of the store: `store.subscriptions`.

What is removed here is beside the journal, and is removed in small steps, each in a transaction of
its own. A step may be made twice, by any number of processes at once.
"""

from typing import NamedTuple, Protocol

from tape.model.subscription import (
    Listener,
    Subscription,
    SubscriptionDeadLetter,
    SubscriptionRevision,
)
from tape.settings import MIB


class StoredSubscription(NamedTuple):
    """A subscription with its listener's row and the document of its newest revision.
    `dead_letters` is how many are kept, counted up to 10,000."""

    subscription: Subscription
    listener: Listener
    document_json: str
    dead_letters: int


class DeadLetterQuery(NamedTuple):
    """Dead letters with an id greater than `after`, in order: at most `limit`, up to the one with
    which their bodies and headers have `max_bytes` characters."""

    subscription: str
    after: str = ""
    limit: int = 100
    max_bytes: int = 8 * MIB


class PlaceAges(NamedTuple):
    """How long a place stays after its message was accepted, in milliseconds.

    `passed_ms` where its source has passed it, `pubsub_ms` at Pub/Sub, and else `any_ms`, unless
    its source still tells how far it has come with what is there.
    """

    passed_ms: int
    pubsub_ms: int
    any_ms: int


class SubscriptionStore(Protocol):
    async def get_subscription(self, name: str) -> StoredSubscription | None: ...

    async def list_subscriptions(self) -> list[StoredSubscription]:
        """By name."""

    async def get_revision(self, name: str, revision: int) -> SubscriptionRevision | None: ...

    async def list_dead_letters(self, query: DeadLetterQuery) -> list[SubscriptionDeadLetter]: ...

    async def get_dead_letter(self, name: str, letter_id: str) -> SubscriptionDeadLetter | None: ...

    async def read_clock(self) -> int:
        """The store's time in milliseconds, which leases go by."""

    async def prune_places(self, name: str, reader: str, ages: PlaceAges, most: int) -> int:
        """Remove some places that no delivery needs any more; how many, 0 if there are none. Only
        what `reader` has passed counts as passed."""

    async def prune_keys(self, most: int) -> int:
        """Remove some keys whose window has passed, of any subscription; how many."""

    async def list_deleted(self) -> list[str]:
        """Names of subscriptions that were deleted, and of which something is left."""

    async def purge_deleted(self, name: str, most: int) -> int:
        """Remove some of what is left of a subscription that was deleted; how many rows, 0 once
        everything is gone. Of one that is there nothing is removed."""
