"""Declared subscriptions in a SQLite file; see `ports.subscriptions`."""

import sqlite3
from contextlib import closing

from tape.model.subscription import SubscriptionDeadLetter, SubscriptionRevision
from tape.ports.clock import Clock
from tape.ports.subscriptions import DeadLetterQuery, PlaceAges, StoredSubscription
from tape.stores.sqlite.connection import quick_transaction
from tape.stores.sqlite.pool import SqlitePool
from tape.stores.sqlite.turn import SQL
from tape.stores.subscription_rows import PUBSUB_PLACES, PURGES, stored_subscription


class SqliteSubscriptions:
    def __init__(self, reads: SqlitePool, writes: SqlitePool, clock: Clock) -> None:
        self._reads = reads
        self._writes = writes
        self._clock = clock

    async def get_subscription(self, name: str) -> StoredSubscription | None:
        return await self._reads.row(stored_subscription, "get_subscription", name)

    async def list_subscriptions(self) -> list[StoredSubscription]:
        return await self._reads.rows(stored_subscription, "list_subscriptions")

    async def get_revision(self, name: str, revision: int) -> SubscriptionRevision | None:
        params = (name, revision)
        return await self._reads.row(SubscriptionRevision, "get_subscription_revision", *params)

    async def list_dead_letters(self, query: DeadLetterQuery) -> list[SubscriptionDeadLetter]:
        params = (query.subscription, query.after, query.limit)

        def read(db: sqlite3.Connection) -> list[SubscriptionDeadLetter]:
            found: list[SubscriptionDeadLetter] = []
            length = 0
            with closing(db.execute(SQL["list_subscription_dead_letters"], params)) as cursor:
                for row in cursor:
                    letter = SubscriptionDeadLetter._make(row)
                    found.append(letter)
                    length += len(letter.headers_json) + len(letter.body)
                    if length >= query.max_bytes:
                        break
            return found

        return await self._reads.use(read)

    async def get_dead_letter(self, name: str, letter_id: str) -> SubscriptionDeadLetter | None:
        params = (name, letter_id)
        return await self._reads.row(
            SubscriptionDeadLetter, "get_subscription_dead_letter", *params
        )

    async def read_clock(self) -> int:
        return self._clock()

    async def prune_places(self, name: str, reader: str, ages: PlaceAges, most: int) -> int:
        def prune(db: sqlite3.Connection) -> int:
            with quick_transaction(db):
                now = self._clock()
                gone = 0
                (has_passed,) = db.execute(SQL["has_passed_positions"], (name,)).fetchone()
                if has_passed:
                    passed = (name, now - ages.passed_ms, reader, most)
                    gone += db.execute(SQL["prune_passed_places"], passed).rowcount
                for age_ms, (low, high) in (
                    (ages.pubsub_ms, PUBSUB_PLACES),
                    (ages.any_ms, ("", "")),
                ):
                    old = (name, now - age_ms, low, high, most - gone)
                    gone += db.execute(SQL["prune_old_places"], old).rowcount
                unreported = (name, now - ages.any_ms - ages.passed_ms, most)
                db.execute(SQL["prune_passed_positions"], unreported)
                return gone

        return await self._writes.use(prune)

    async def prune_keys(self, most: int) -> int:
        def prune(db: sqlite3.Connection) -> int:
            with quick_transaction(db):
                return db.execute(SQL["prune_keys"], (self._clock(), most)).rowcount

        return await self._writes.use(prune)

    async def list_deleted(self) -> list[str]:
        return await self._reads.rows(str, "list_deleted_subscriptions")

    async def purge_deleted(self, name: str, most: int) -> int:
        def purge(db: sqlite3.Connection) -> int:
            with quick_transaction(db):
                for statement in PURGES:
                    if gone := db.execute(SQL[statement], (name, most)).rowcount:
                        return gone
                return db.execute(SQL["purge_listener"], (name,)).rowcount

        return await self._writes.use(purge)
