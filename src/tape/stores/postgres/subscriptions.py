"""Declared subscriptions in Postgres; see `ports.subscriptions`."""

from tape.model.subscription import SubscriptionDeadLetter, SubscriptionRevision
from tape.ports.subscriptions import DeadLetterQuery, PlaceAges, StoredSubscription
from tape.stores.postgres.pool import PostgresPool
from tape.stores.subscription_rows import PUBSUB_PLACES, PURGES, stored_subscription


class PostgresSubscriptions:
    def __init__(self, reads: PostgresPool, quick: PostgresPool) -> None:
        self._reads = reads
        self._quick = quick

    async def get_subscription(self, name: str) -> StoredSubscription | None:
        return await self._reads.row(stored_subscription, "get_subscription", name)

    async def list_subscriptions(self) -> list[StoredSubscription]:
        return await self._reads.rows(stored_subscription, "list_subscriptions")

    async def get_revision(self, name: str, revision: int) -> SubscriptionRevision | None:
        params = (name, revision)
        return await self._reads.row(SubscriptionRevision, "get_subscription_revision", *params)

    async def list_dead_letters(self, query: DeadLetterQuery) -> list[SubscriptionDeadLetter]:
        return await self._reads.rows(
            SubscriptionDeadLetter, "list_subscription_dead_letters", *query
        )

    async def get_dead_letter(self, name: str, letter_id: str) -> SubscriptionDeadLetter | None:
        params = (name, letter_id)
        return await self._reads.row(
            SubscriptionDeadLetter, "get_subscription_dead_letter", *params
        )

    async def read_clock(self) -> int:
        (now_ms,) = await self._reads.rows(int, "read_clock")
        return now_ms

    async def prune_places(self, name: str, reader: str, ages: PlaceAges, most: int) -> int:
        gone = 0
        (has_passed,) = await self._reads.rows(bool, "has_passed_positions", name)
        if has_passed:
            passed = (name, ages.passed_ms, reader, most)
            gone += await self._quick.execute("prune_passed_places", *passed)
        for age_ms, bounds in ((ages.pubsub_ms, PUBSUB_PLACES), (ages.any_ms, ("", ""))):
            old = (name, age_ms, *bounds, most - gone)
            gone += await self._quick.execute("prune_old_places", *old)
        unreported_ms = ages.any_ms + ages.passed_ms
        await self._quick.execute("prune_passed_positions", name, unreported_ms, most)
        return gone

    async def prune_keys(self, most: int) -> int:
        return await self._quick.execute("prune_keys", most)

    async def list_deleted(self) -> list[str]:
        return await self._reads.rows(str, "list_deleted_subscriptions")

    async def purge_deleted(self, name: str, most: int) -> int:
        for statement in PURGES:
            if gone := await self._quick.execute(statement, name, most):
                return gone
        return await self._quick.execute("purge_listener", name)
