"""What declared subscriptions leave behind, removed in small steps.

A subscription that drains, and whose listener died over it, is deactivated.

Places go once their source can no longer deliver their messages again, keys once their window has
passed, and of a subscription that was deleted everything. Between two steps it rests longer than a
step took, so that those who write find the store free most of the time. Any number of processes may
do this at once.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from tape.errors import Closed, TapeError
from tape.journal.ids import UlidFactory
from tape.journal.writer import Writer
from tape.model.listening import EndDraining
from tape.model.subscription import SubscriptionState, reader_of
from tape.ports.store import Store
from tape.ports.subscriptions import PlaceAges
from tape.settings import Limits
from tape.telemetry.retrying import Retrying

log = logging.getLogger("tape.subscriptions")

EVERY_S: Final = 60.0
STEP_ROWS: Final = 1_000
REST: Final = 2.0
"""How many times as long as a step took it rests after it."""
PURGE_STEPS: Final = 50
"""So many steps whoever deletes a subscription waits for. The rest is done by itself."""
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
PLACE_AGES: Final = PlaceAges(HOUR_MS, 8 * DAY_MS, 30 * DAY_MS)
"""A source that has passed a position does not come back to it; an hour is for one that is moved
back by hand. Pub/Sub keeps what is not acknowledged for 7 days. Webhooks are retried for days."""


class SubscriptionUpkeep:
    def __init__(
        self,
        store: Store,
        writer: Writer,
        ids: UlidFactory,
        limits: Limits,
        *,
        ages: PlaceAges = PLACE_AGES,
    ) -> None:
        self._store = store
        self._writer = writer
        self._ids = ids
        self._limits = limits
        self._ages = ages
        self._retrying = Retrying(log, "removing what subscriptions leave behind")

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self.tidy()
                self._retrying.succeeded()
            except Closed:
                return
            except TapeError as error:
                self._retrying.failed(error)
            except Exception:  # whatever it is, the tables must not grow for good
                log.exception("removing what subscriptions leave behind failed, trying again")
            await asyncio.sleep(EVERY_S)

    async def tidy(self) -> int:
        """Remove everything that can go by now; how many rows."""
        subscriptions = self._store.subscriptions
        gone = 0
        for stored in await subscriptions.list_subscriptions():
            subscription = stored.subscription
            if subscription.state == SubscriptionState.DRAINING:
                move = EndDraining(subscription.name, next(self._ids), self._limits)
                await self._writer.submit(move)
            reader = reader_of(stored.document_json)
            gone += await self._prune_places(subscription.name, reader)
        # Runs that were begun by a key leave some, too.
        gone += await _in_steps(partial(subscriptions.prune_keys, STEP_ROWS))
        for name in await subscriptions.list_deleted():
            gone += await self.purge(name, most_steps=None)
        return gone

    async def purge(self, name: str, *, most_steps: int | None = PURGE_STEPS) -> int:
        """Remove what is left of one that was deleted; without a limit all of it."""
        purge = partial(self._store.subscriptions.purge_deleted, name, STEP_ROWS)
        return await _in_steps(purge, most_steps)

    async def _prune_places(self, name: str, reader: str) -> int:
        prune = self._store.subscriptions.prune_places
        return await _in_steps(partial(prune, name, reader, self._ages, STEP_ROWS))


async def _in_steps(step: Callable[[], Awaitable[int]], most: int | None = None) -> int:
    """Repeat it until it removes nothing; how many rows it has removed."""
    loop = asyncio.get_running_loop()
    gone = steps = 0
    while most is None or steps < most:
        started = loop.time()
        removed = await step()
        if not removed:
            break
        gone, steps = gone + removed, steps + 1
        if removed >= STEP_ROWS:
            await asyncio.sleep(REST * (loop.time() - started))
    return gone
