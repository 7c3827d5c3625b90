"""The way of messages from a source into the journal, under one hold.

    fetch ──► in hand ──► accept, durably ──► acknowledge

A message is acknowledged only when the journal has what became of it; whatever ends the flow before
that, the source delivers it again. Messages are accepted one chunk after the other, so they become
runs in the order in which they came.

While the store does not take what it is offered, or has not said so for a second, nothing more is
fetched. The same messages are offered again: each is accepted once, however often it is offered.
"""

import asyncio
import logging
from typing import Final

from tape.errors import Overloaded, SourceUnavailable, StoreUnavailable, TooLarge
from tape.model.message import SourceMessage, cut
from tape.model.rate import CATCH_UP_US
from tape.model.subscription_spec import SubscriptionSpec
from tape.ports.source import ReceivedMessage, Source
from tape.settings import KIB, MIB
from tape.subscriptions.company import MOST_TOGETHER
from tape.subscriptions.in_hand import InHand
from tape.subscriptions.lanes import MOST_BYTES
from tape.subscriptions.listener_metrics import ListenerMetrics
from tape.subscriptions.listening_report import ListeningReport
from tape.subscriptions.operations import (
    AcceptMessagesRequest,
    SubscriptionHold,
    SubscriptionOperations,
)
from tape.telemetry.retrying import Retrying

log = logging.getLogger("tape.subscriptions")

AGAIN_FIRST_S: Final = 0.05
AGAIN_MOST_S: Final = 1.0
AWAY_MOST_S: Final = 30.0
"""A source that is away for longer ends the flow: another process may reach it."""
OVERDUE_S: Final = 1.0
"""An answer of the store that takes longer stops the fetching until it comes."""
WAITED_S: Final = CATCH_UP_US / 1_000_000
"""A fetch that took longer has waited for messages."""
QUIET_MOST_S: Final = 30.0
"""A source that delivers nothing of what it says it has for so long counts as empty: it may count
what it never delivers, or what another reader has in hand."""
CUT_TO: Final = (MIB, 4 * KIB)
"""Of a message that is too large so much is sent; if that is too much, too, so little."""
STORE_AWAY: Final = (StoreUnavailable, Overloaded)


class MessageFlow:
    """Use it for one source, once: `fetch` or `fetch_batch`, beside `accept`."""

    def __init__(
        self,
        operations: SubscriptionOperations,
        source: Source,
        held: SubscriptionHold,
        spec: SubscriptionSpec,
        report: ListeningReport,
        *,
        hand_bytes: int,
        tells_received: bool = False,
    ) -> None:
        self._tells_received = tells_received
        self._operations = operations
        self._source = source
        self._held = held
        self._spec = spec
        self._report = report
        self._metrics = ListenerMetrics(spec.name, spec.source.kind.value)
        self._in_hand = InHand(spec.max_in_flight, hand_bytes)
        self._unused = 0
        """What the rate has granted, and no message came for."""
        self._held_up = False
        """Whether the rate granted too few at last: the source gave them all at once."""
        self._store_takes = asyncio.Event()
        self._store_takes.set()
        dispatch = spec.dispatch
        most = dispatch.batch_max if dispatch.batch_dispatch else MOST_TOGETHER
        self._chunk = min(most, MOST_TOGETHER)  # more would be accepted in two turns
        self._retrying = Retrying(log, f"subscription {spec.name!r}")
        self._loop = asyncio.get_running_loop()

    async def fetch(self, *, until_empty: bool = False) -> None:
        """Until cancelled, or until the source is empty and nothing is in hand. SourceUnavailable
        once the source is away for long."""
        wait_s = self._spec.runtime.timeout_ms / 1000
        away_since: float | None = None
        came_at = self._loop.time()
        while True:
            try:
                if await self._fetch(self._spec.runtime.batch, wait_s):
                    came_at = self._loop.time()
                elif until_empty and await self._is_empty(came_at):
                    return
            except SourceUnavailable as error:
                now = self._loop.time()
                away_since = now if away_since is None else away_since
                if now - away_since > AWAY_MOST_S:
                    raise
                self._report.last_error = str(error)
                self._retrying.failed(error)
                await asyncio.sleep(AGAIN_FIRST_S)  # sources pause longer by themselves
                continue
            if away_since is not None:
                away_since = None
                self._retrying.succeeded()

    async def accept(self) -> None:
        """Until nothing is in hand, after `end`."""
        while chunk := await self._in_hand.take(self._chunk, MOST_BYTES):
            await self._accept(chunk)

    def end(self) -> None:
        """Nothing more is fetched."""
        self._in_hand.close()

    def leave(self) -> None:
        """It is over: what is still in hand goes back to the source."""
        self._report.in_flight = 0
        self._metrics.end()

    async def fetch_batch(self) -> None:
        """Fetch what there is within the time-out, a batch at most."""
        ends = self._loop.time() + self._spec.runtime.timeout_ms / 1000
        left = self._spec.runtime.batch
        while left:
            received = await self._fetch(left, max(0.0, ends - self._loop.time()))
            if not received:
                return
            left -= received

    async def _fetch(self, most: int, wait_s: float) -> int:
        """Fetch as many as there is room for and the rate allows; how many came."""
        most = await self._in_hand.wait_for_room(most)
        await self._store_takes.wait()
        is_limited = self._spec.dispatch_per_sec > 0
        wanted = most
        if is_limited:
            most = self._unused = await self._reserved(wanted)
        began = self._loop.time()
        received = await self._source.fetch(most, wait_s)
        self._unused = max(0, self._unused - len(received))
        self._report.note_fetched(received)
        self._in_hand.put(received)
        self._report.in_flight = self._in_hand.count
        self._metrics.note_fetched(received, self._in_hand.count)
        has_waited = self._loop.time() - began >= WAITED_S
        self._held_up = len(received) == most < wanted and not has_waited
        if self._held_up:
            self._metrics.note_rate_limited()
        if is_limited and received and has_waited:
            await self._count_from_now(len(received))
        return len(received)

    async def _count_from_now(self, came: int) -> None:
        """Give back what a fetch was granted before it waited, and take what came in its place.
        Else the rate would take the wait for a pause of those that came, and allow as many again at
        once."""
        unused, self._unused = self._unused + came, 0
        while came:
            try:
                reserved = await self._operations.reserve_dispatches(
                    self._spec.name, self._held.fencing_token, came, unused=unused
                )
            except STORE_AWAY as error:  # they count from when they were granted
                self._retrying.failed(error)
                return
            came, unused = came - reserved.granted, 0
            await asyncio.sleep(reserved.again_in_ms / 1000 if came else 0)

    async def _is_empty(self, came_at: float) -> bool:
        """Whether nothing is left to fetch, when a fetch has given nothing. The last message came
        at `came_at`."""
        if self._in_hand.count:
            return False
        return not await self._source.backlog() or self._loop.time() - came_at > QUIET_MOST_S

    async def _reserved(self, most: int) -> int:
        """How many the rate allows, once that is any."""
        while True:
            unused, self._unused = self._unused, 0
            try:
                reserved = await self._operations.reserve_dispatches(
                    self._spec.name,
                    self._held.fencing_token,
                    most,
                    unused=unused,
                    held_up=self._held_up,
                )
            except STORE_AWAY as error:
                self._retrying.failed(error)
                await asyncio.sleep(AGAIN_MOST_S)
                continue
            if reserved.granted:
                return reserved.granted
            self._metrics.note_rate_limited()
            await asyncio.sleep(reserved.again_in_ms / 1000)

    async def _accept(self, chunk: list[ReceivedMessage]) -> None:
        """Offer messages until they are accepted, and then acknowledge them."""
        try:
            await self._offer([received.message for received in chunk])
        except TooLarge:
            if len(chunk) > 1:
                for received in chunk:
                    await self._accept([received])
                return
            await self._offer_cut(chunk[0].message)
        await self._source.ack([received.receipt for received in chunk])
        self._in_hand.settle(chunk)
        self._report.in_flight = self._in_hand.count
        self._metrics.note_accepted(chunk, self._in_hand.count)

    async def _offer_cut(self, message: SourceMessage) -> None:
        """Let a message that no request to the server can hold become a dead letter. Else it would
        block its source for ever. Only the server knows what it takes, and what it refuses it has
        not kept."""
        log.warning(
            "subscription %r: message %s is too large for the server, which gets the beginning of "
            "it as a dead letter", self._spec.name, message.place,
        )  # fmt: skip
        for most in CUT_TO:
            try:
                await self._offer([cut(message, most)])
            except TooLarge:
                if most == CUT_TO[-1]:
                    raise
            else:
                return

    async def _offer(self, messages: list[SourceMessage]) -> None:
        """Until they are accepted."""
        request = AcceptMessagesRequest(
            self._spec.name,
            self._held.revision,
            self._held.fencing_token,
            messages,
            self._tells_received,
        )
        pause_s = AGAIN_FIRST_S
        while True:
            # A writer tries for long before it says that its store is away.
            overdue = self._loop.call_later(OVERDUE_S, self._store_takes.clear)
            try:
                await self._operations.accept_messages(request)
                break
            except STORE_AWAY as error:
                self._store_takes.clear()
                self._retrying.failed(error)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, AGAIN_MOST_S)
            finally:
                overdue.cancel()
        self._store_takes.set()
        self._retrying.succeeded()
