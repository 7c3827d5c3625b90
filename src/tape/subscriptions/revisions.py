"""Revisions of documents, read and kept ready: reading one takes longer than accepting by it."""

import asyncio
from collections import OrderedDict
from typing import Final, NamedTuple

from tape.errors import InvalidArgument, NotFound
from tape.model.subscription_spec import SubscriptionSpec
from tape.ports.store import Store
from tape.ports.subscriptions import StoredSubscription
from tape.settings import Limits
from tape.subscriptions.planning import Planner
from tape.subscriptions.spec import spec_of_json

MOST_KEPT: Final = 512


class ReadyRevision(NamedTuple):
    """A document that was read. `registered_at_ms` tells a subscription from another that had its
    name before, and its revisions with it."""

    revision: int
    document_json: str
    planner: Planner
    registered_at_ms: int

    @property
    def spec(self) -> SubscriptionSpec:
        return self.planner.spec


class Revisions:
    """What was used last is kept."""

    def __init__(self, store: Store, limits: Limits) -> None:
        self._store = store
        self._limits = limits
        self._kept: OrderedDict[tuple[str, int], ReadyRevision] = OrderedDict()

    async def get(self, name: str, revision: int) -> ReadyRevision:
        """One by its number; NotFound if there is no subscription."""
        kept = self._kept.get((name, revision))
        if kept is not None:
            self._kept.move_to_end((name, revision))
            return kept
        return await self.get_of(await self.stored(name), revision)

    async def get_of(self, stored: StoredSubscription, revision: int = 0) -> ReadyRevision:
        """One of a subscription as it is stored; the newest if no other is asked for."""
        subscription = stored.subscription
        name, revision = subscription.name, revision or subscription.revision
        kept = self._kept.get((name, revision))
        if kept is not None and kept.registered_at_ms == subscription.created_at_ms:
            return kept
        document_json = stored.document_json
        if revision != subscription.revision:
            found = await self._store.subscriptions.get_revision(name, revision)
            if found is None:
                raise InvalidArgument(
                    f"subscription {name!r} has no revision {revision}", field="revision"
                )
            document_json = found.document_json
        spec = await asyncio.to_thread(spec_of_json, document_json)
        ready = ReadyRevision(
            revision, document_json, Planner(spec, self._limits), subscription.created_at_ms
        )
        self._kept[name, revision] = ready
        if len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return ready

    async def stored(self, name: str) -> StoredSubscription:
        stored = await self._store.subscriptions.get_subscription(name)
        if stored is None:
            raise NotFound(f"no subscription {name!r}")
        return stored

    def forget(self, name: str, revision: int) -> None:
        """It was of a subscription that was deleted."""
        self._kept.pop((name, revision), None)
