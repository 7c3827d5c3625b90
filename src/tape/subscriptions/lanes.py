"""Lanes: of each subscription one move to accept is on its way at a time, and what waits for it is
accepted together.

So a subscription has a bounded share of the writer's queue however many ask at once, and many small
requests cost as much as a few large ones.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Sequence
from typing import Final, NamedTuple, Protocol

from tape.model.accept_messages import AcceptedMessage, PlannedMessage
from tape.settings import MIB
from tape.subscriptions.company import Company
from tape.subscriptions.planning import Planner

MOST_BYTES: Final = 4 * MIB


class LaneTerms(NamedTuple):
    """By what messages are accepted. Those with the same terms may be accepted together."""

    name: str
    planner: Planner
    registered_at_ms: int
    fencing_token: int
    tells_received: bool = False


class AcceptTogether(Protocol):
    def __call__(
        self, terms: LaneTerms, planned: Sequence[PlannedMessage]
    ) -> Awaitable[list[AcceptedMessage] | None]: ...


class _WaitingChunk(NamedTuple):
    terms: LaneTerms
    planned: Sequence[PlannedMessage]
    size: int
    done: asyncio.Future[list[AcceptedMessage] | None]


class AcceptLanes:
    def __init__(self, accept: AcceptTogether) -> None:
        self._accept = accept
        self._company = Company(asyncio.get_running_loop().time)
        self._waiting: dict[str, deque[_WaitingChunk]] = {}
        self._working: set[asyncio.Task[None]] = set()

    def most_together(self, name: str, count: int) -> int:
        """How many messages of a subscription are accepted in one move, of so many it has now."""
        self._company.note(name, count)
        return self._company.most_together(name)

    async def accept(
        self, terms: LaneTerms, planned: Sequence[PlannedMessage], size: int
    ) -> list[AcceptedMessage] | None:
        """What became of each, in order, or None if that is what accepting them came to. `size` is
        about how many bytes they hold."""
        done: asyncio.Future[list[AcceptedMessage] | None] = (
            asyncio.get_running_loop().create_future()
        )
        chunk = _WaitingChunk(terms, planned, size, done)
        lane = self._waiting.get(terms.name)
        if lane is not None:
            lane.append(chunk)
        else:
            self._waiting[terms.name] = deque([chunk])
            task = asyncio.create_task(self._work(terms.name), name=f"tape-accept-{terms.name}")
            self._working.add(task)
            task.add_done_callback(self._working.discard)
        return await done

    async def close(self) -> None:
        """Wait for what is on its way."""
        await asyncio.gather(*self._working, return_exceptions=True)

    async def _work(self, name: str) -> None:
        """Until nobody waits."""
        lane = self._waiting[name]
        try:
            while together := _next_together(lane, self._company.most_together(name)):
                await self._accept_together(together)
        finally:
            del self._waiting[name]
            for chunk in lane:
                chunk.done.cancel()

    async def _accept_together(self, together: list[_WaitingChunk]) -> None:
        planned = [one for chunk in together for one in chunk.planned]
        try:
            accepted = await self._accept(together[0].terms, planned)
        except Exception as error:  # noqa: BLE001 - whatever it is, it belongs to who asked
            for chunk in together:
                if not chunk.done.done():
                    chunk.done.set_exception(error)
            return
        except BaseException:  # the loop ends, and with it those who wait
            for chunk in together:
                chunk.done.cancel()
            raise
        first = 0
        for chunk in together:
            if not chunk.done.done():
                upto = first + len(chunk.planned)
                chunk.done.set_result(None if accepted is None else accepted[first:upto])
            first += len(chunk.planned)


def _next_together(lane: deque[_WaitingChunk], most: int) -> list[_WaitingChunk]:
    """The first that waits, and those behind it that go along, so many messages at most."""
    together: list[_WaitingChunk] = []
    count = size = 0
    while lane:
        chunk = lane[0]
        if chunk.done.done():  # nobody wants to know any more
            lane.popleft()
            continue
        if together and (
            chunk.terms != together[0].terms
            or count + len(chunk.planned) > most
            or size + chunk.size > MOST_BYTES
        ):
            break
        together.append(lane.popleft())
        count, size = count + len(chunk.planned), size + chunk.size
    return together
