"""The outbox relay: rows of committed transactions to the journal, and from there to the broker.

Any number of processes may run one; the store lets one of each name lead (`ports.outbox`), and the
others ask again every `lead_retry_s`. Its terms, with who led and why it ended, are entries on the
journal. At least once: a row is marked only when the broker has acknowledged its message, whose id
is the row's event id however often it is sent, so that repeats collapse. See `outbox.term` for what
a leader does.
"""

import asyncio
import contextlib
import logging
import os
import socket

from tape.errors import NotLeading, TapeError
from tape.journal.ids import UlidFactory
from tape.journal.writer import Writer
from tape.model.outbox import JOURNAL_RELAY, NATS_RELAY
from tape.model.relay import ResignRelay
from tape.outbox.term import Term
from tape.ports.broker import BusBroker
from tape.ports.outbox import Lead, OutboxLeader
from tape.ports.store import Store
from tape.settings import Limits, OutboxSettings
from tape.telemetry import metrics
from tape.telemetry.retrying import Retrying

log = logging.getLogger("tape.outbox")


class OutboxRelay:
    """Without a broker it puts rows on the journal and leaves publishing to others."""

    def __init__(
        self,
        store: Store,
        writer: Writer,
        ids: UlidFactory,
        settings: OutboxSettings,
        limits: Limits,
        *,
        broker: BusBroker | None = None,
    ) -> None:
        self._store = store
        self._writer = writer
        self._ids = ids
        self._settings = settings
        self._limits = limits
        self._broker = broker
        self._name = JOURNAL_RELAY if broker is None else NATS_RELAY
        self._retrying = Retrying(log, f"the relay {self._name}")
        self._owner = f"{socket.gethostname()}-{os.getpid()}-{next(ids)[-6:].lower()}"

    async def run(self, stop: asyncio.Event) -> None:
        """Lead whenever nobody else does, until `stop` is set; the round in hand is finished."""
        try:
            while not stop.is_set():
                pause_s = await self._once(stop)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause_s):
                        await stop.wait()
        finally:
            metrics.OUTBOX_LEADING.labels(self._name).set(0)
            if self._broker is not None:
                await self._broker.close()

    async def _once(self, stop: asyncio.Event) -> float:
        """Lead if nobody does; how long to wait before the next try."""
        try:
            # Where nobody uses the outbox a server leaves no trace of its relay on the journal.
            if self._broker is None and not await self._store.outbox.has_unpromoted():
                self._retrying.succeeded()
                return self._settings.idle_poll_s
            leader = await self._store.outbox.lead_outbox(self._lead())
            self._retrying.succeeded()
            if leader is None:
                return self._settings.lead_retry_s
            return await self._serve(leader, stop)
        except NotLeading as lost:
            log.warning("the relay %s has lost the lead: %s", self._name, lost)
        except TapeError as error:
            self._retrying.failed(error)
        except Exception:  # whatever it is, the outbox must not stop for good
            log.exception("the relay %s failed, trying again", self._name)
        return self._settings.backoff_first_s

    async def _serve(self, leader: OutboxLeader, stop: asyncio.Event) -> float:
        log.info("the relay %s leads, term %d, as %s", self._name, leader.term.term, self._owner)
        metrics.OUTBOX_LEADING.labels(self._name).set(1)
        reason = "cancelled"
        lost = False
        try:
            term = Term(leader, self._writer, self._broker, self._settings, self._limits)
            reason = await term.serve(stop)
        except NotLeading:
            lost = True
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise
        finally:
            metrics.OUTBOX_LEADING.labels(self._name).set(0)
            if not lost:
                await self._resign(leader, reason)
            await leader.release()
        return self._settings.lead_retry_s

    async def _resign(self, leader: OutboxLeader, reason: str) -> None:
        """Say so on the journal, if that can be done while the lead is still ours."""
        log.info("the relay %s resigns, term %d: %s", self._name, leader.term.term, reason)
        move = ResignRelay(leader.term, reason[: self._limits.name_bytes], next(self._ids))
        try:
            async with asyncio.timeout(self._settings.hung_s):
                await self._writer.submit(move)
        except (TapeError, TimeoutError) as error:
            log.warning("the resignation could not be recorded: %s", error)

    def _lead(self) -> Lead:
        offset = 0 if self._name == NATS_RELAY else 1
        settings = self._settings
        return Lead(
            self._name, self._owner, settings.lock_key + offset, settings.hung_s, next(self._ids)
        )
