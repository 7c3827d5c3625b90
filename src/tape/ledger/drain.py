"""One pass of a drainer: the events after its cursor become runs, in strict order.

A pass takes the drainer's lease, reads a page of recorded events after the cursor, and takes them
one by one. For each subscription whose glob and filter let an event through, in the order of their
ids, it maps the input and begins a run that is named after the subscription, the event and the
attempt. So a run that an earlier pass has begun is found, never begun again. With `awaits_end` it
waits for the run to end well before it does anything else. A run that is stuck halts the drainer,
and an operator may have it go on: no other is begun beside it until it has failed for good.

What needs no waiting is begun in one turn with the cursor, several events at a time and in their
order: the journal shows all of them or none. The first failure ends the pass: it is recorded, the
drainer halts, and the cursor stays before that event. A filter or a recipe that has no result is a
failure, too: nothing is passed over in silence.

Every turn looks at the lease. Whoever has lost it finds out before it has begun anything.
"""

import asyncio
import logging
import os
import random
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import orjson

from tape.errors import NotFound, StaleLease, TapeError
from tape.journal.follow import LIGHT_CHARACTERS, LIGHT_ENTRIES, WINDOW
from tape.journal.ids import UlidFactory
from tape.journal.pacer import Pacer
from tape.journal.writer import Writer
from tape.ledger.rules import EventSubscriptionRule, EventSubscriptionRules, roomier
from tape.model.drain import (
    AwaitedRun,
    DispatchEvents,
    DispatchFailure,
    HaltDrainer,
    PassProgress,
    Pauses,
)
from tape.model.drainer import (
    AcquireDrainer,
    Attempts,
    Drainer,
    DrainerLease,
    DrainReport,
    Grant,
    RenewDrainer,
    Triggered,
)
from tape.model.entry import Entry
from tape.model.error_record import without_traceback
from tape.model.lease import Begun, NewRun
from tape.model.run import STATUS_WORDS, Run, RunStatus
from tape.ports.store import ReadEntries, Store
from tape.settings import DrainerSettings, Limits
from tape.telemetry import metrics

log = logging.getLogger("tape.drain")

RECORDED = "/tape/event/recorded/"
TOGETHER = 500
TOGETHER_BYTES = 1024 * 1024
TRIGGERED_SHOWN = 100
FIRST_PAUSE_S, MOST_PAUSE_S = 0.001, 0.05
"""Between two looks at a run: on a busy journal most wake-ups are for others."""
QUICK_S = 0.2
"""A pass that has waited so long for a run looks at each wake-up whether it still has the lease."""
ENDED_FOR_GOOD = frozenset({RunStatus.FAILED, RunStatus.CANCELLED})
ENDED_BADLY = ENDED_FOR_GOOD | {RunStatus.STUCK}


class RunNotEnded(Exception):
    """A run has not ended in the time given."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id


class Failed(Exception):
    """An event could not be dispatched."""

    def __init__(self, failure: DispatchFailure) -> None:
        self.failure = failure


class DrainRequest(NamedTuple):
    """What a pass is asked to do."""

    drainer_id: str
    limit: int
    await_s: float


class Drain:
    """Makes passes on one store."""

    def __init__(
        self,
        store: Store,
        writer: Writer,
        ids: UlidFactory,
        settings: DrainerSettings,
        limits: Limits,
        *,
        pacer: Pacer | None = None,
    ) -> None:
        self.pacer = pacer or Pacer()
        self.store = store
        self.writer = writer
        self.ids = ids
        self.settings = settings
        self.limits = limits
        self.input_limits = roomier(limits)
        self._owner = f"drainer-{os.getpid()}-{next(ids)}"

    async def make_pass(self, errand: DrainRequest) -> DrainReport:
        ttl_ms = int(self.settings.lease_s * 1000)
        owner = f"{self._owner}/{next(self.ids)}"
        move = AcquireDrainer(errand.drainer_id, owner, ttl_ms, self.limits)
        acquiring = asyncio.ensure_future(self.writer.submit(move))
        try:
            grant = await asyncio.shield(acquiring)
        except asyncio.CancelledError:
            # Whoever gives up now must not leave a lease behind that nobody knows of.
            grant = await acquiring
            if grant.is_granted:
                await _Pass(self, errand, grant, ttl_ms).release_lease()
            raise
        if not grant.is_granted:
            return _report(grant.drainer)._replace(skipped_due_to_lock=True)
        return await _Pass(self, errand, grant, ttl_ms).run()


class _Pass:
    def __init__(self, drain: Drain, errand: DrainRequest, grant: Grant, ttl_ms: int) -> None:
        self._drain = drain
        self._errand = errand
        self._rules = EventSubscriptionRules((), drain.limits)
        self._head = grant.head
        self._hold = DrainerLease(errand.drainer_id, grant.drainer.fencing_token, ttl_ms)
        self._attempts: Attempts = grant.drainer.attempts
        self._report = _report(grant.drainer)
        self._triggered: deque[Triggered] = deque(maxlen=TRIGGERED_SHOWN)
        self._passed = PassProgress(grant.drainer.last_global_seq, grant.drainer.last_event_id)
        self._runs: list[NewRun] = []
        self._of_events: list[Triggered] = []
        """The runs of events that were passed since that was last noted."""
        self._counted: set[str] = set()
        """Runs of attempts that are counted as failed, and may go on."""
        self._bytes = 0
        self._is_held = True
        self._turns = drain.pacer.service_turns()
        self._asked = 0
        """Filters, since the last turn."""
        self._renewed_at = asyncio.get_running_loop().time()

    async def run(self) -> DrainReport:
        try:
            await self._work()
        except StaleLease as error:
            self._is_held = False
            self._report = self._report._replace(skipped_due_to_lock=True, error=str(error))
        finally:
            if self._is_held:  # it ends by an error or a cancellation
                await self.release_lease()
        metrics.DRAINED.labels(self._errand.drainer_id).inc(self._report.processed)
        return self._report._replace(triggered=tuple(self._triggered))

    async def _work(self) -> None:
        try:
            # Read after the head was: whoever subscribed before one of these events is among them.
            rows = await self._drain.store.ledger.list_event_subscriptions(self._errand.drainer_id)
            self._rules = await asyncio.to_thread(EventSubscriptionRules, rows, self._drain.limits)
            await self._page()
            await self._flush(letting_go=True)
            more = self._passed.global_seq < self._head
            self._report = self._report._replace(more=more)
        except RunNotEnded as waiting:
            await self._flush(letting_go=True)
            self._report = self._report._replace(waiting_on_run_id=waiting.run_id)
        except Failed as failed:
            await self._halt(failed.failure)

    async def _page(self) -> None:
        """Take the next events, at most as many as the pass may."""
        left = self._errand.limit
        while left > 0 and self._passed.global_seq < self._head:
            after = self._passed.global_seq
            upto = min(self._head, after + WINDOW)
            query = ReadEntries(after, upto, left, self._drain.limits.page_bytes, RECORDED)
            found = await self._drain.store.read_entries(query)
            for event in found.entries:
                await self._take(event)
            left -= len(found.entries)
            self._passed = self._passed._replace(global_seq=found.through)
            if self._renewal_in_s <= 0:
                await self._flush()

    @property
    def _renewal_in_s(self) -> float:
        since = asyncio.get_running_loop().time() - self._renewed_at
        return self._drain.settings.lease_s / 3 - since

    async def _take(self, event: Entry) -> None:
        triggered: list[Triggered] = []
        for rule in self._rules.of_type(event.event_type):
            run = await self._prepared(rule, event)
            if run is None:
                continue
            run_id, subscription_id = run.name.run_id, rule.subscription.subscription_id
            triggered.append(Triggered(event.event_id, event.global_seq, subscription_id, run_id))
            await self._add(run)
            if rule.subscription.awaits_end:
                begun = await self._flush(waits_for=AwaitedRun(run_id, event))
                await self._await_end(begun[-1].run, rule, event)
        self._of_events += triggered
        passed = self._passed
        self._passed = PassProgress(
            event.global_seq,
            event.event_id,
            passed.processed + 1,
            passed.dispatched + len(triggered),
        )

    async def _prepared(self, rule: EventSubscriptionRule, event: Entry) -> NewRun | None:
        """The run that the event becomes; None if the filter does not let it through."""
        subscription_id = rule.subscription.subscription_id
        try:
            if not await self._holds(rule, event):
                return None
            attempt = self._attempts.next_for(event.event_id, subscription_id)
            new = rule.new_run(event, attempt, self._drain.input_limits)
        except TapeError as error:
            raise Failed(DispatchFailure(event, subscription_id, "", str(error))) from error
        if attempt > 1 and rule.subscription.awaits_end:
            before = rule.new_run(event, attempt - 1, self._drain.input_limits)
            run = await self._drain.store.runs.get_run(before.name.run_id)
            if run is not None and run.status not in ENDED_FOR_GOOD:
                self._counted.add(run.run_id)
                return before
        return new

    async def _holds(self, rule: EventSubscriptionRule, event: Entry) -> bool:
        """Ask a filter, in turns with others: the quick ones a few at a time."""
        is_light = rule.predicate.is_light
        is_quick = is_light and len(event.payload_json) <= LIGHT_CHARACTERS
        self._asked += 1
        if is_quick and self._asked < LIGHT_ENTRIES and not self._turns.owes:
            return rule.holds(event)
        results: list[bool] = []

        def deciding() -> Iterator[int]:
            results.append(rule.holds(event))
            yield self._asked

        await self._until_paid(is_light=is_light)
        await self._turns.run_while_paid(deciding(), is_light=is_light)
        self._asked = 0
        return results[0]

    async def _until_paid(self, *, is_light: bool) -> None:
        """Until a filter may be asked. The lease is kept alive meanwhile."""
        while True:
            if self._renewal_in_s <= 0:
                await self._renew()
            try:
                async with asyncio.timeout(self._renewal_in_s):
                    return await self._turns.until_paid(is_light=is_light)
            except TimeoutError:
                continue

    async def _add(self, run: NewRun) -> None:
        if len(self._runs) >= TOGETHER or self._bytes > TOGETHER_BYTES:
            await self._flush()
        self._runs.append(run)
        self._bytes += len(run.input_json)

    async def _flush(
        self, *, letting_go: bool = False, waits_for: AwaitedRun | None = None
    ) -> list[Begun]:
        """Begin what was prepared and note how far the pass has come, in one turn."""
        runs, passed = self._runs, self._passed
        ids = self._drain.ids.take(len(runs) + 1)
        move = DispatchEvents(
            self._hold,
            passed,
            runs,
            ids=ids,
            limits=self._drain.input_limits,
            letting_go=letting_go,
            waits_for=waits_for,
        )
        begun = await self._drain.writer.submit(move)
        self._is_held = not letting_go
        self._renewed_at = asyncio.get_running_loop().time()
        self._runs, self._bytes = [], 0
        self._note(passed)
        return begun

    def _note(self, passed: PassProgress) -> None:
        """So far it is durable."""
        self._triggered.extend(self._of_events)
        self._of_events = []
        self._report = self._report._replace(
            processed=self._report.processed + passed.processed,
            dispatched=self._report.dispatched + passed.dispatched,
            last_global_seq=passed.global_seq,
            last_event_id=passed.event_id,
        )
        self._passed = passed._replace(processed=0, dispatched=0)

    async def _await_end(self, run: Run, rule: EventSubscriptionRule, event: Entry) -> None:
        """Until the run has ended well. The lease is kept alive meanwhile."""
        store, clock = self._drain.store, asyncio.get_running_loop().time
        since = clock()
        deadline = since + self._errand.await_s
        pause_s = 0.0
        while run.status != RunStatus.TERMINAL:
            if run.status in ENDED_BADLY:
                outcome = orjson.dumps(without_traceback(orjson.loads(run.outcome_json or "null")))
                error = f"run {run.run_id!r} is {STATUS_WORDS[run.status]}: {outcome.decode()}"
                subscription_id = rule.subscription.subscription_id
                attempt = self._attempts.next_for(event.event_id, subscription_id)
                if run.run_id in self._counted:
                    attempt -= 1
                raise Failed(DispatchFailure(event, subscription_id, run.run_id, error, attempt))
            if clock() >= deadline:
                raise RunNotEnded(run.run_id)
            head = store.head
            before, run = run, await self._found(run.run_id)
            if run.seq_cursor == before.seq_cursor:
                await asyncio.sleep(min(pause_s, deadline - clock()))
                pause_s = min(2 * pause_s + FIRST_PAUSE_S, MOST_PAUSE_S)
                await beyond(store, head, min(deadline - clock(), self._renewal_in_s))
                await self._renew_if_due(is_slow=clock() - since >= QUICK_S)

    async def _renew_if_due(self, *, is_slow: bool) -> None:
        """Renew the lease when it is time; notice soon when a skip has ended it."""
        if self._renewal_in_s <= 0:
            await self._renew()
        elif is_slow:
            drainer = await self._drain.store.ledger.get_drainer(self._hold.drainer_id)
            if drainer is None or not drainer.lease_owner:
                raise StaleLease(
                    f"drainer {self._hold.drainer_id!r} was moved past the event by an operator"
                )

    async def _renew(self) -> None:
        await self._drain.writer.submit(RenewDrainer(self._hold))
        self._renewed_at = asyncio.get_running_loop().time()

    async def _found(self, run_id: str) -> Run:
        run = await self._drain.store.runs.get_run(run_id)
        if run is None:
            raise NotFound(f"run {run_id!r} was started but is not in the store")
        return run

    async def _halt(self, failure: DispatchFailure) -> None:
        if self._runs:  # of what comes before the failure
            await self._flush()
        settings = self._drain.settings
        pauses = Pauses(
            int(settings.retry_s * 1000),
            int(max(settings.retry_s, settings.retry_most_s) * 1000),
            random.random(),  # noqa: S311 - nothing secret: drainers are not to try all at once
        )
        move = HaltDrainer(
            self._hold,
            self._passed,
            failure,
            self._drain.ids.take(3),
            self._drain.limits,
            pauses=pauses,
        )
        drainer = await self._drain.writer.submit(move)
        self._is_held = False
        self._note(self._passed)
        self._report = self._report._replace(
            halted_on_event_id=drainer.halted_on_event_id,
            error=drainer.last_error,
            next_try_at_ms=drainer.next_try_at_ms,
        )

    async def release_lease(self) -> None:
        try:
            await self._drain.writer.submit(RenewDrainer(self._hold, letting_go=True))
        except StaleLease:
            pass  # what was cut short has let go of it, or another has taken over
        except TapeError as error:  # then it runs out
            log.warning(
                "the lease of drainer %r could not be released and stays until it expires: %s",
                self._hold.drainer_id,
                error,
            )


async def beyond(store: Store, head: int, wait_s: float | None) -> None:
    """Until there is an entry after the head, at most so long."""
    try:
        async with asyncio.timeout(wait_s if wait_s is None else max(wait_s, 0)):
            await store.await_beyond(head)
    except TimeoutError:
        pass


def _report(drainer: Drainer) -> DrainReport:
    return DrainReport(
        drainer.drainer_id,
        last_global_seq=drainer.last_global_seq,
        last_event_id=drainer.last_event_id,
    )
