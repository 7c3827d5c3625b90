"""A source in memory, which delivers again what was not acknowledged."""

import asyncio
from collections.abc import Mapping, Sequence

from tape.errors import TapeError
from tape.model.message import SourceMessage
from tape.model.subscription_spec import SourceSpec
from tape.ports.source import ReceivedMessage, Source


class HeapSource:
    """What it was `sent` is fetched in order. `fault` is raised by the next fetches."""

    def __init__(self, far_side: "FarSide") -> None:
        self._far_side = far_side
        self._in_hand: dict[str, SourceMessage] = {}

    async def fetch(self, most: int, wait_s: float) -> list[ReceivedMessage]:
        far = self._far_side
        if far.fault is not None:
            raise far.fault
        if not far.waiting:
            far.has_more.clear()
            try:
                async with asyncio.timeout(wait_s):
                    await far.has_more.wait()
            except TimeoutError:
                far.idle_fetches += 1
                return []
        taken, far.waiting = far.waiting[:most], far.waiting[most:]
        self._in_hand |= {message.place: message for message in taken}
        far.fetches.append(len(taken))
        return [ReceivedMessage(message, message.place) for message in taken]

    async def ack(self, receipts: Sequence[str]) -> None:
        for receipt in receipts:
            if self._in_hand.pop(receipt, None) is not None:
                self._far_side.acked.append(receipt)
                origin, _, position = receipt.rpartition("/")
                self._far_side.passed[origin] = int(position)
        self._far_side.changed()

    async def nak(self, receipts: Sequence[str]) -> None:
        given_back = [self._in_hand.pop(each) for each in receipts if each in self._in_hand]
        self._far_side.waiting = given_back + self._far_side.waiting

    async def backlog(self) -> int | None:
        if self._far_side.backlog_fault is not None:
            raise self._far_side.backlog_fault
        return len(self._far_side.waiting) + len(self._in_hand)

    async def passed(self) -> Mapping[str, int]:
        return dict(self._far_side.passed)

    def warnings(self) -> list[str]:
        return [*self._far_side.warnings]

    async def close(self) -> None:
        await self.nak([*self._in_hand])
        self._far_side.closed += 1
        self._far_side.changed()


class FarSide:
    """Where messages wait; opens sources on them."""

    def __init__(self, *messages: SourceMessage) -> None:
        self.waiting = [*messages]
        self.acked: list[str] = []
        self.passed: dict[str, int] = {}
        """By origin, what was acknowledged last."""
        self.warnings: list[str] = []
        self.fetches: list[int] = []
        self.idle_fetches = 0
        self.opened = 0
        self.closed = 0
        self.fault: Exception | None = None
        self.backlog_fault: Exception | None = None
        self.opening_fault: TapeError | None = None
        self.opening_mends = False
        """Whether a source that is opened anew has no longer the fault."""
        self.has_more = asyncio.Event()
        self._news = asyncio.Event()

    async def open(self, spec: SourceSpec, name: str) -> Source:
        self.opened += 1
        self.changed()
        if self.opening_fault is not None:
            raise self.opening_fault
        if self.opening_mends:
            self.fault = None
        return HeapSource(self)

    def send(self, *messages: SourceMessage) -> None:
        self.waiting += messages
        self.has_more.set()

    def changed(self) -> None:
        self._news.set()

    async def until_acked(self, count: int) -> None:
        while len(self.acked) < count:
            self._news.clear()
            await self._news.wait()

    async def until_closed(self) -> None:
        while not self.closed:
            self._news.clear()
            await self._news.wait()

    async def until_opened(self, count: int) -> None:
        while self.opened < count:
            self._news.clear()
            await self._news.wait()
