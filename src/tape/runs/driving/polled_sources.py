"""The sources that a run polls: open while it is driven here, and what it has in hand of them.

    fetched ──► recorded, durably ──► acknowledged: auto at once, on_success once the run has ended
                                      well, manual by ctx.ack

Whatever ends the driving before a message is acknowledged gives it back: the run fails or is
cancelled, it waits, its lease is lost, this process ends. Then the source delivers it again, to the
next poll. If the process is killed, the source does that by itself, after its own time.

So a run that was driven by another before may have messages on its journal that it does not have in
hand. A run that ends well asks their source for them once more, and acknowledges those that come:
else a run that waits could never acknowledge anything. What others have by then, or what comes
later, they get: it has the same `place`.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Collection, Coroutine, Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from tape.errors import InvalidArgument, TapeError
from tape.model.poll import PollAck, PollRequest
from tape.model.subscription_spec import TIMEOUT_MS, RuntimeSpec, SourceSpec
from tape.ports.polling import OpenPolledSource
from tape.ports.source import ReceivedMessage, Source
from tape.runs.boundary import boundary
from tape.runs.driving.polled_batch import PolledBatch
from tape.settings import Limits
from tape.telemetry.unknown_errors import log_unknown

log = logging.getLogger("tape.runs")

R = TypeVar("R")

QUIET_S: Final = 0.25
"""How long a poll that has something waits for more."""
CLOSE_S: Final = 10.0
AGAIN_AT_ONCE: Final = 100
MOST_OF_OTHERS: Final = 1_000
"""So many messages of others are looked at for those that are still to be acknowledged."""


class _PolledMessage(NamedTuple):
    """A message on the run's journal, and how its poll acknowledges it."""

    source: SourceSpec
    place: str
    ack: PollAck


class PolledSources:
    """`open_source` is None where this process opens no sources."""

    def __init__(self, open_source: OpenPolledSource | None, limits: Limits, run_id: str) -> None:
        self._open_source = open_source
        self._limits = limits
        self._name = f"tape-poll-{run_id}"
        self._open: dict[SourceSpec, Source] = {}
        self._locks: defaultdict[SourceSpec, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._fetching: set[asyncio.Task[Any]] = set()
        self._recorded: dict[str, _PolledMessage] = {}
        """By receipt, as are those below."""
        self._by_hand: set[str] = set()
        self._in_hand: dict[str, str] = {}
        """What the source knows a message by that is recorded and not acknowledged."""
        self._at_the_end: dict[str, None] = {}
        """What is to be acknowledged when the run has ended well, in order."""

    def check(self) -> None:
        """Refuse a poll where nobody opens its source."""
        if self._open_source is None:
            raise InvalidArgument(
                "nothing in this process opens sources for ctx.poll: drive the run with "
                "`tape worker` or by client.run of a client of tape.connect; in a test give "
                "tape.testing.runs what opens them (open_source)"
            )

    def remember(
        self, request: PollRequest, places: Collection[str], *, in_doubt: bool = False
    ) -> None:
        """These are on the journal, by a poll of this run. `in_doubt` is whether an acknowledgement
        that should have been said at once may not have been.
        """
        receipts = request.receipts(places)
        for receipt, place in zip(receipts, places, strict=True):
            self._recorded[receipt] = _PolledMessage(request.source, place, request.ack)
        if request.ack is PollAck.MANUAL:
            self._by_hand.update(receipts)
        elif request.ack is PollAck.ON_SUCCESS or in_doubt:
            self._at_the_end.update(dict.fromkeys(receipts))

    def is_by_hand(self, receipt: str) -> bool:
        """Whether the app may acknowledge this itself."""
        return receipt in self._by_hand

    async def fetch(self, request: PollRequest) -> PolledBatch:
        """Fetch what there is within the time-out, at most as much as a run records at once."""
        return await self._cut_off_with_run(self._fetch(request))

    async def keep(self, request: PollRequest, batch: PolledBatch) -> None:
        """They are on the journal now: acknowledge them, or have them in hand until then."""
        receipts = request.receipts(batch.handles)
        self.remember(request, batch.handles)
        self._in_hand.update(zip(receipts, batch.handles.values(), strict=True))
        if request.ack is PollAck.AUTO and receipts:
            await self.ack(receipts)

    async def give_back(self, request: PollRequest, handles: Sequence[str]) -> None:
        boundary(f"before give back {request.name}")
        if handles:
            await self._said(self._open[request.source].nak(handles))

    async def ack(self, receipts: Iterable[str]) -> int:
        """Acknowledge those that are in hand here; return how many."""
        by_source: defaultdict[SourceSpec, list[str]] = defaultdict(list)
        for receipt in [*receipts]:
            handle = self._in_hand.pop(receipt, None)
            if handle is not None:
                self._at_the_end.pop(receipt, None)
                by_source[self._recorded[receipt].source].append(handle)
        for spec, handles in by_source.items():
            boundary(f"before ack {spec.kind}")
            await self._said(self._open[spec].ack(handles))
            boundary(f"after ack {spec.kind}")
        return sum(map(len, by_source.values()))

    def stop(self) -> None:
        """Cut off what is being fetched: the run is another's, or this process ends."""
        for fetching in self._fetching:
            fetching.cancel()

    async def close(self, *, succeeded: bool) -> None:
        """Let go of the sources. If the run has ended well, acknowledge what is left until then;
        give back everything else.
        """
        if succeeded:
            await self._acknowledge_rest()
        if not self._open:
            return
        boundary("before close sources")
        sources, self._open = [*self._open.values()], {}
        self._in_hand.clear()
        try:
            async with asyncio.timeout(CLOSE_S):
                await asyncio.gather(*(self._said(source.close()) for source in sources))
        except TimeoutError:
            log.warning("%s: a source did not let go within %g s", self._name, CLOSE_S)

    async def _acknowledge_rest(self) -> None:
        missing: defaultdict[SourceSpec, dict[str, str]] = defaultdict(dict)
        for receipt in self._at_the_end.keys() - self._in_hand.keys():
            known = self._recorded[receipt]
            missing[known.source][known.place] = receipt
        await self.ack(self._at_the_end)
        for spec, receipts in missing.items():
            await self._said(self._acknowledge_again(spec, receipts))

    async def _acknowledge_again(self, spec: SourceSpec, receipts: dict[str, str]) -> None:
        """Ask the source once more for what this run does not have in hand, by place, and
        acknowledge it.
        """
        source, others = await self._opened(spec), 0
        wait_s = TIMEOUT_MS.get(spec.kind, RuntimeSpec().timeout_ms) / 1000
        while receipts and others < MOST_OF_OTHERS:
            received = await source.fetch(AGAIN_AT_ONCE, wait_s)
            if not received:
                return
            ours = []
            for message, handle in received:
                if receipt := receipts.pop(message.place, ""):
                    self._in_hand[receipt] = handle
                    ours.append(receipt)
            others += len(received) - len(ours)
            await self.ack(ours)

    async def _fetch(self, request: PollRequest) -> PolledBatch:
        batch = PolledBatch(request, self._limits)
        async with self._locks[request.source]:
            source = await self._opened(request.source)
            boundary(f"before poll {request.name}")
            try:
                await self._fill(batch, source)
            except BaseException as error:
                if not isinstance(error, TapeError) or not batch.items:
                    await self.give_back(request, [*batch.handles.values(), *batch.over])
                    raise
            boundary(f"after poll {request.name}")
            await self._said(source.nak(batch.over))
        return batch

    async def _fill(self, batch: PolledBatch, source: Source) -> None:
        loop = asyncio.get_running_loop()
        ends = loop.time() + batch.request.timeout_ms / 1000
        while batch.room:
            left_s = ends - loop.time()
            if left_s <= 0:
                return
            quiet_s = min(left_s, QUIET_S) if batch.items else left_s
            received = await source.fetch(batch.room, quiet_s)
            if not received:
                return
            batch.take(await self._without_known(batch.request, received))

    async def _without_known(
        self, request: PollRequest, received: Sequence[ReceivedMessage]
    ) -> list[ReceivedMessage]:
        """The app gets a message once. What comes again because its acknowledgement was lost, or
        because another driver had it in hand, is in hand again.
        """
        new, auto = [], []
        receipts = request.receipts(each.message.place for each in received)
        for receipt, each in zip(receipts, received, strict=True):
            known = self._recorded.get(receipt)
            if known is None or known.ack is PollAck.MANUAL:
                new.append(each)
                continue
            self._in_hand[receipt] = each.receipt
            if known.ack is PollAck.AUTO:
                auto.append(receipt)
        await self.ack(auto)
        return new

    async def _opened(self, spec: SourceSpec) -> Source:
        if spec not in self._open:
            self.check()
            opener = self._open_source
            assert opener is not None  # noqa: S101 - checked above
            self._open[spec] = await opener(spec, self._name)
        return self._open[spec]

    async def _cut_off_with_run(self, fetching: Coroutine[Any, Any, R]) -> R:
        task = asyncio.create_task(fetching, name=self._name)
        self._fetching.add(task)
        try:
            return await task
        finally:
            self._fetching.discard(task)
            if not task.done():  # a branch of the app was cut off
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def _said(self, saying: Coroutine[Any, Any, None]) -> None:
        """What could not be said costs a delivery more, and nothing else."""
        try:
            await saying
        except TapeError as error:
            log.warning("%s: messages may come again: %s", self._name, error)
        except Exception as error:  # noqa: BLE001 - whatever it is
            log_unknown(log, f"{self._name}: messages may come again: a source has failed", error)
