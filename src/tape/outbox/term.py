"""One relay's term: from its election until it stops, gives way, or has lost the lead.

Round after round: put what is new on the journal, read what is on the journal and not published,
in the journal's order, publish it, and mark what the broker has acknowledged. Each subject is a
lane in which a message leaves when the one before it is acknowledged. Everybody publishes a subject
in the same order and begins behind what is acknowledged, so even two at once could only repeat
messages, never reorder their first appearances.

* A broker that cannot be reached is tried again after a pause that doubles, while promotion goes
  on. When it has been away for `give_way_s` the term ends, so that a peer can try.
* A message that the broker refuses holds up its subject and nothing else. It is never passed over,
  except by an operator (`tape outbox skip`).
* A row that cannot be an event holds up the promotion of its subject in the same way.
* A row that repeats an event is told of and never published (`model.promote`).
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Literal, NamedTuple

from tape.errors import BrokerError, BrokerRefused
from tape.journal.writer import Writer
from tape.model.entry import Entry, Kind
from tape.model.outbox import OutboxRow
from tape.model.promote import PromoteOutbox, happened_at_ms
from tape.model.subjects import event_recorded
from tape.outbox.held_subjects import HeldSubjects
from tape.ports.broker import BusBroker, Outgoing
from tape.ports.outbox import OutboxLeader
from tape.settings import Limits, OutboxSettings
from tape.telemetry import metrics
from tape.telemetry.retrying import Retrying

log = logging.getLogger("tape.outbox")

Stopping = asyncio.Future[Literal[True]]

FORGET_STEP = 1_000
FORGET_EVERY_S = 60.0


class _Round(NamedTuple):
    """What one part of a round has done; `full` if there may be more at once."""

    rows: int = 0
    full: bool = False


class Term:
    def __init__(
        self,
        leader: OutboxLeader,
        writer: Writer,
        broker: BusBroker | None,
        settings: OutboxSettings,
        limits: Limits,
    ) -> None:
        self._leader = leader
        self._writer = writer
        self._broker = broker
        self._settings = settings
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        first_s, most_s = settings.backoff_first_s, settings.backoff_most_s
        self._refused = HeldSubjects(first_s, most_s)
        self._unfit = HeldSubjects(first_s, most_s)
        self._is_prepared = False
        self._pause_s = 0.0
        self._publish_at = 0.0
        self._failing_since: float | None = None
        self._publishing = Retrying(log, "publishing the outbox")
        self._forget_at = 0.0

    async def serve(self, stop: asyncio.Event) -> str:
        """Why the term ends. Raises NotLeading when the lead was lost."""
        stopping = asyncio.ensure_future(stop.wait())
        try:
            while not stop.is_set():
                promoted = await self._promote()
                published = await self._publish()
                if self._is_hopeless():
                    return f"the broker has failed for {self._settings.give_way_s:g} s"
                forgot = await self._forget()
                metrics.OUTBOX_HELD.set(len(self._refused) + len(self._unfit))
                if not (promoted.full or published.full or forgot.full):
                    worked = bool(promoted.rows or published.rows)
                    await self._rest(stopping, worked=worked)
        finally:
            stopping.cancel()
            metrics.OUTBOX_HELD.set(0)
        return "stopped"

    async def _promote(self) -> _Round:
        batch, now = self._settings.batch, self._loop.time()
        rows = await self._leader.read_unpromoted(batch, self._unfit.not_due(now))
        if not rows:
            self._unfit.release_gone((), now)
            return _Round()
        done = await self._writer.submit(PromoteOutbox(rows, self._limits))
        metrics.OUTBOX_PROMOTED.inc(done.promoted)
        metrics.OUTBOX_REPEATS.inc(done.repeats)
        held = {unfit.row.subject for unfit in done.unfit}
        for subject in {row.subject for row in rows} - held:
            self._unfit.release(subject)
        for row, error in done.unfit:
            pause_s = self._unfit.hold(row.subject, row.id, now)
            log.error(
                "outbox row %d cannot be an event and holds up the subject %r: %s; correct or skip "
                "it; trying again in %g s", row.id, row.subject, error, pause_s,
            )  # fmt: skip
            await self._leader.note_failure(row.id, error)
        return _Round(done.promoted + done.repeats, len(rows) == batch)

    async def _publish(self) -> _Round:
        now = self._loop.time()
        if self._broker is None or now < self._publish_at:
            return _Round()
        if not self._is_prepared:
            try:
                await self._broker.prepare()
            except BrokerError as error:
                self._back_off(error, now)
                return _Round()
            self._is_prepared, self._failing_since, self._pause_s = True, None, 0.0
            self._publishing.succeeded()
        batch = self._settings.batch
        rows = await self._leader.read_unpublished(batch, self._refused.not_due(now))
        if len(rows) < batch:
            self._refused.release_gone({row.subject for row in rows}, now)
        if not rows:
            return _Round()
        if not self._leader.is_certain:
            await self._leader.confirm()
        results = await self._broker.publish(
            [outgoing(row) for row in rows], lambda: self._leader.is_certain
        )
        done = [row for row, result in zip(rows, results, strict=True) if result is None]
        if done:
            await self._leader.mark_published([row.id for row in done])
            metrics.OUTBOX_PUBLISHED.inc(len(done))
            for subject in {row.subject for row in done}:
                self._refused.release(subject)
        await self._note_failures(rows, results, some_done=bool(done))
        return _Round(len(done), len(rows) == batch and self._publish_at <= self._loop.time())

    async def _note_failures(
        self, rows: Sequence[OutboxRow], results: Sequence[BrokerError | None], *, some_done: bool
    ) -> None:
        now = self._loop.time()
        failed: dict[str, tuple[OutboxRow, BrokerError]] = {}
        for row, error in zip(rows, results, strict=True):
            if error is not None:
                failed.setdefault(row.subject, (row, error))  # the rest of a lane was not tried
        away = [e for _row, e in failed.values() if not isinstance(e, BrokerRefused)]
        for subject, (row, error) in failed.items():
            if isinstance(error, BrokerRefused):
                pause_s = self._refused.hold(subject, row.id, now)
                log.error(
                    "the broker refuses outbox row %d, which holds up the subject %s: %s; trying "
                    "again in %g s", row.id, subject, error, pause_s,
                )  # fmt: skip
                await self._leader.note_failure(row.id, str(error))
        if some_done or not away:
            self._failing_since, self._pause_s = None, 0.0
            self._publishing.succeeded()
        if away:
            self._back_off(away[0], now)

    def _back_off(self, error: BrokerError, now: float) -> None:
        first_s, most_s = self._settings.backoff_first_s, self._settings.backoff_most_s
        self._pause_s = min(max(first_s, 2 * self._pause_s), most_s)
        self._publish_at = now + self._pause_s
        if self._failing_since is None:
            self._failing_since = now
        self._publishing.failed(error, self._pause_s)

    def _is_hopeless(self) -> bool:
        since = self._failing_since
        return since is not None and self._loop.time() - since > self._settings.give_way_s

    async def _forget(self) -> _Round:
        now = self._loop.time()
        if now < self._forget_at:
            return _Round()
        forget = self._leader.forget_published if self._broker else self._leader.forget_promoted
        keep_ms = int(self._settings.keep_s * 1000)
        gone = await forget(keep_ms, FORGET_STEP)
        repeats = await self._leader.forget_repeats(keep_ms, FORGET_STEP)
        full = FORGET_STEP in (gone, repeats)
        if not full:
            self._forget_at = now + min(FORGET_EVERY_S, self._settings.keep_s)
        return _Round(gone + repeats, full)

    async def _rest(self, stopping: Stopping, *, worked: bool) -> None:
        """Until there may be something to do."""
        now = self._loop.time()
        patience = self._settings.active_poll_s if worked else self._settings.idle_poll_s
        for due in (self._refused.next_due(), self._unfit.next_due(), self._publish_at or None):
            if due is not None and due > now:
                patience = min(patience, due - now)
        waiting = asyncio.ensure_future(self._leader.wait(patience))
        try:
            await asyncio.wait((waiting, stopping), return_when=asyncio.FIRST_COMPLETED)
            if waiting.done():
                waiting.result()
        finally:
            if not waiting.done():
                waiting.cancel()
                await asyncio.gather(waiting, return_exceptions=True)


def outgoing(row: OutboxRow) -> Outgoing:
    """The message of a promoted row: its event on the journal, under its own id, in its subject's
    lane."""
    happened_ms = happened_at_ms(row)
    entry = Entry(
        global_seq=row.global_seq,
        run_id="",
        seq=0,
        kind=Kind.EVENT.value,
        subject=event_recorded(row.subject, row.entity_type, row.entity_id),
        payload_json=row.payload_json or "null",
        schema_version=row.schema_version,
        trace_id=row.trace_id,
        span_id=row.span_id,
        parent_span_id=row.parent_span_id,
        ts_ms=happened_ms,
        event_id=row.event_id,
        event_type=row.subject,
        entity_type=row.entity_type,
        entity_id=row.entity_id,
        caused_by=row.caused_by,
        source=row.source,
        occurred_at_ms=happened_ms,
        idempotency_key=row.idempotency_key or "",
    )
    return Outgoing(entry, row.event_id, row.subject, row.attempts + 1)
