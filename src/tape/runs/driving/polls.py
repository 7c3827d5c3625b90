"""The steps by which an app polls a source and acknowledges what it got: asked once, and recorded.

A poll is recorded like a draw, before anything of it is acknowledged. So a crash before that costs
nothing, the source delivers the messages again; and after that the run has them on its journal.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from tape.errors import (
    CredentialDamaged,
    InvalidArgument,
    NoCredential,
    PermissionDenied,
    SourceRefused,
    SourceUnavailable,
    TapeError,
    WalletLocked,
    WalletUnavailable,
)
from tape.model.decision import DRAWN
from tape.model.poll import Polled, PollRequest, places_of
from tape.runs.driving.decisions import Decisions
from tape.runs.driving.polled_batch import PolledBatch
from tape.runs.driving.polled_sources import PolledSources
from tape.runs.driving.steps import RunSteps
from tape.telemetry import metrics
from tape.telemetry.tracing import acting, note_fact
from tape.telemetry.unknown_errors import log_unknown

log = logging.getLogger("tape.runs")

SPAN: Final = "tool.dispatch.subscription"
ACK: Final = "ack/messages"
_FAILURES: Final = (
    SourceUnavailable,
    SourceRefused,
    NoCredential,
    PermissionDenied,
    CredentialDamaged,
    WalletLocked,
    WalletUnavailable,
)
"""Of the source or its login: recorded, and the app's to handle."""


class Polls:
    def __init__(self, steps: RunSteps, decisions: Decisions, sources: PolledSources) -> None:
        self._steps = steps
        self._decisions = decisions
        self._sources = sources

    async def poll(self, request: PollRequest) -> Polled:
        """Return what was polled before, or poll and record it."""
        record = self._decisions.new(f"poll/{request.name}", request.as_json())
        record = record._replace(verb=DRAWN)
        is_recorded, items = self._decisions.begin(record)
        if is_recorded:
            is_last = not self._steps.log.is_replaying
            self._sources.remember(request, places_of(items), in_doubt=is_last)
            return request.polled(items)
        self._sources.check()
        with self._steps.place() as place:
            try:
                batch = await self._fetch(request)
            except _FAILURES as error:
                await place.come_up()
                self._decisions.fail(record, error)
                raise  # it does
            try:
                await place.come_up()
                items = self._decisions.end(record, batch.recorded_form)
                await self._steps.pen.flush()
            except BaseException:
                await self._sources.give_back(request, [*batch.handles.values()])
                raise
            await self._sources.keep(request, batch)
        metrics.POLLED_MESSAGES.labels(request.source.kind.value).inc(len(items))
        return request.polled(items)

    async def ack(self, receipts: Sequence[str]) -> int:
        """Acknowledge messages of manual polls; return how many this run still had in hand."""
        wanted = list(dict.fromkeys(receipts))
        for receipt in wanted:
            if not self._sources.is_by_hand(receipt):
                raise InvalidArgument(
                    f'{receipt!r} is not a receipt of a poll of this run with ack="manual"',
                    field="receipts",
                )
        with self._steps.place() as place:

            async def say() -> int:
                await place.come_up()
                return await self._sources.ack(wanted)

            count: int = await self._decisions.ask_journal(place, ACK, {"receipts": wanted}, say)
        return count

    async def _fetch(self, request: PollRequest) -> PolledBatch:
        facts = {"tape.source": request.source.kind.value, "tape.polled": request.name}
        try:
            with acting(SPAN, facts | {"tape.run_id": self._steps.run.run_id}):
                batch = await self._fetched(request)
                note_fact("tape.messages", len(batch.items))
                return batch
        except asyncio.CancelledError:
            self._steps.check()  # if it was cut off with the run
            raise
        except (*_FAILURES, InvalidArgument):
            raise
        except TapeError as error:  # of the journal: another driver will poll
            self._steps.pen.lose(error)
            self._steps.check()
            raise

    async def _fetched(self, request: PollRequest) -> PolledBatch:
        """What nobody has thought of fails the step as a source that is away does. The text of the
        error may repeat a secret: neither the journal nor the log has it."""
        try:
            return await self._sources.fetch(request)
        except TapeError:
            raise
        except Exception as error:  # noqa: BLE001 - clients of sources raise what they like
            run_id, kind = self._steps.run.run_id, type(error).__name__
            log_unknown(log, f"run {run_id}: to poll {request.name} has failed", error)
        # Raised here, it has neither cause nor context to be told with.
        raise SourceUnavailable(
            f"the source's client failed with {kind}; the worker's log says where"
        )
