"""Draining in a server: every drainer with an enabled subscription, whenever there is something.

One task looks at the subscriptions and keeps another for each drainer, so that a run that is waited
for holds up nobody else. Wake-ups are hints: what is there to do is read from the store, so any
number of servers may do this on one journal, and whoever gets the lease does the work. Entries that
match nothing are noted as passed a little later, many at a time. A halted drainer is tried again
when its pause has passed (`model.drain.Pauses`), or when an operator has resumed it, which is an
entry and so a wake-up.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from tape.errors import Closed, TapeError
from tape.journal.follow import WINDOW
from tape.ledger.drain import RECORDED, beyond
from tape.ledger.rules import EventSubscriptionRules
from tape.model.drainer import Drainer, DrainReport
from tape.model.event_subscription import EventSubscription
from tape.ports.store import ReadEntries, Store
from tape.settings import DrainerSettings, Limits
from tape.telemetry.retrying import Retrying

log = logging.getLogger("tape.drain")

LOOK_S = 0.2
"""How long between two looks at the subscriptions, or at a halted drainer, at least."""
SETTLE_S = 1.0
"""How long after the last pass entries that match nothing are noted as passed."""
LOCKED_S = 1.0
AGAIN_S = 1.0
PEEKED = 1_000
PEEK_S = 0.01
"""How long between two looks at entries of which none has matched."""


class MakePass(Protocol):
    def __call__(self, drainer_id: str) -> Awaitable[DrainReport]: ...


class DrainLoop:
    def __init__(
        self, store: Store, make_pass: MakePass, settings: DrainerSettings, limits: Limits
    ) -> None:
        self._store = store
        self._make_pass = make_pass
        self._settings = settings
        self._limits = limits
        self._kept: dict[str, tuple[list[EventSubscription], asyncio.Task[None]]] = {}
        self._retrying = Retrying(log, "draining")

    async def run(self) -> None:
        """Until cancelled."""
        try:
            while True:
                head = self._store.head
                try:
                    await self._look()
                    self._retrying.succeeded()
                except Closed:
                    return
                except TapeError as error:
                    self._retrying.failed(error)
                    await asyncio.sleep(AGAIN_S)
                    continue
                except Exception:  # whatever it is, draining must not stop for good
                    log.exception("draining failed, trying again")
                    await asyncio.sleep(AGAIN_S)
                    continue
                await asyncio.sleep(LOOK_S)
                with contextlib.suppress(Closed):  # which the next look finds out
                    await self._store.await_beyond(head)
        finally:
            await self._stop(*self._kept)

    async def _look(self) -> None:
        """Keep a task for each drainer with an enabled subscription, begun anew at a change."""
        wanted: dict[str, list[EventSubscription]] = {}
        for row in await self._store.ledger.list_event_subscriptions():
            if row.enabled:
                wanted.setdefault(row.drainer_id, []).append(row)
        changed = [name for name, (rows, _) in self._kept.items() if wanted.get(name) != rows]
        await self._stop(*changed)
        for name in wanted.keys() - self._kept.keys():
            keeper = _DrainerLoop(self._store, self._make_pass, self._settings, self._limits, name)
            task = asyncio.create_task(keeper.run(wanted[name]), name=f"tape-drainer-{name}")
            self._kept[name] = (wanted[name], task)

    async def _stop(self, *names: str) -> None:
        tasks = [self._kept.pop(name)[1] for name in names]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _DrainerLoop:
    """Drains one drainer."""

    def __init__(
        self,
        store: Store,
        make_pass: MakePass,
        settings: DrainerSettings,
        limits: Limits,
        drainer_id: str,
    ) -> None:
        self._store = store
        self._make_pass = make_pass
        self._settings = settings
        self._limits = limits
        self._drainer_id = drainer_id
        self._clock: Callable[[], float] = asyncio.get_running_loop().time
        self._retrying = Retrying(log, f"drainer {drainer_id!r}")
        self._match_at = 0
        """The place of an event that is known to match: passes are made until it is passed."""

    async def run(self, subscriptions: list[EventSubscription]) -> None:
        while True:
            try:
                rules = await asyncio.to_thread(EventSubscriptionRules, subscriptions, self._limits)
                while True:
                    await self._drain(rules)
            except Closed:
                return
            except TapeError as error:
                self._retrying.failed(error)
            except Exception:  # whatever it is, its events must not stop for good
                log.exception("drainer %r failed, trying again", self._drainer_id)
            await asyncio.sleep(AGAIN_S)

    async def _drain(self, rules: EventSubscriptionRules) -> None:
        """Wait until there is something to do, and make a pass."""
        head = self._store.head
        drainer = await self._store.ledger.get_drainer(self._drainer_id) or Drainer(
            self._drainer_id
        )
        self._retrying.succeeded()
        if drainer.halted_on_event_id:
            left_s = (drainer.next_try_at_ms - await self._store.ledger.read_clock()) / 1000
            if left_s > 0:
                await beyond(self._store, head, left_s)
                await asyncio.sleep(min(LOOK_S, left_s))
                return
        elif drainer.last_global_seq >= self._match_at:
            await self._until_due(drainer.last_global_seq, rules)
        report = await self._make_pass(self._drainer_id)
        if report.error:
            log.warning("drainer %r stops: %s", self._drainer_id, report.error)
        if report.skipped_due_to_lock:
            await asyncio.sleep(LOCKED_S)
        elif report.waiting_on_run_id:
            await beyond(self._store, self._store.head, AGAIN_S)

    async def _until_due(self, cursor: int, rules: EventSubscriptionRules) -> None:
        """Until an event comes that matches, or others have come and some time has passed."""
        position = cursor
        settled_at = self._clock() + SETTLE_S
        while True:
            if position > cursor and self._clock() >= settled_at:
                return
            if self._store.head <= position:
                wait_s = settled_at - self._clock() if position > cursor else None
                await beyond(self._store, position, wait_s)
                continue
            upto = min(self._store.head, position + WINDOW)
            query = ReadEntries(position, upto, PEEKED, self._limits.page_bytes, RECORDED)
            found = await self._store.read_entries(query)
            for event in found.entries:
                if rules.of_type(event.event_type):
                    self._match_at = event.global_seq
                    return
            if position == cursor:
                settled_at = self._clock() + SETTLE_S
            position = found.through
            await asyncio.sleep(PEEK_S)
