"""The pen: puts a run's writes on its journal in the order in which its app makes them.

Some writes must be durable before the app goes on: whoever begins an act, waits or ends is held
until the journal has it. Others are *posted*: what an act came to, or what was drawn by chance.
The app goes on at once, and they go out with the next write that it waits for, in the same
transaction and before it. So nothing can happen in the world that depends on a record which a
crash could still undo, and a step costs one commit and not two.

Posted writes that nobody waits behind go out by themselves a moment later.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from tape.errors import RunEnded, StaleLease, StoreUnavailable, TapeError
from tape.model.run_write import Extended, RunWrite
from tape.runs.boundary import boundary
from tape.runs.signals import Abandoned

LINGER_S = 0.002
MOST_TOGETHER = 200

Extend = Callable[[Sequence[RunWrite]], Awaitable[Extended]]
"""Sends writes. The first time, that may be what begins the run."""


class _Posted(NamedTuple):
    write: RunWrite
    done: asyncio.Future[Any]


class Pen:
    """`seen_seq` is the last number of the run's journal its driver knows of.

    `missed` is whether something came from outside in between that it does not know.
    """

    def __init__(self, extend: Extend, seen_seq: int) -> None:
        self._extend = extend
        self._loop = asyncio.get_running_loop()
        self._posted: list[_Posted] = []
        self._sending: asyncio.Task[None] | None = None
        self._later: asyncio.TimerHandle | None = None
        self._lost: Abandoned | None = None
        self.seen_seq = seen_seq
        self.missed = False

    def post(self, write: RunWrite) -> None:
        """Have it written before anything that comes later."""
        self._add(write)
        if self._later is None and self._sending is None:
            self._later = self._loop.call_later(LINGER_S, self._send)

    async def write(self, write: RunWrite) -> Any:
        """Its reply, once it and everything before it is durable."""
        done = self._add(write)
        self._send()
        return await asyncio.shield(done)

    async def flush(self) -> None:
        """Wait until everything posted is durable."""
        while self._posted or self._sending is not None:
            self._send()
            if self._sending is not None:
                await asyncio.shield(self._sending)
        if self._lost is not None:
            raise self._lost

    def lose(self, cause: BaseException) -> None:
        """Nothing more is written: every step from here on unwinds the app."""
        if self._lost is None:
            self._lost = Abandoned(cause)
        self._fail(self._lost)

    def check(self) -> None:
        if self._lost is not None:
            raise self._lost

    def _add(self, write: RunWrite) -> "asyncio.Future[Any]":
        self.check()
        done: asyncio.Future[Any] = self._loop.create_future()
        done.add_done_callback(_look_at)
        self._posted.append(_Posted(write, done))
        return done

    def _send(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None
        if self._sending is None and self._posted:
            self._sending = self._loop.create_task(self._send_all())

    async def _send_all(self) -> None:
        try:
            while self._posted and self._lost is None:
                batch = self._posted[:MOST_TOGETHER]
                del self._posted[:MOST_TOGETHER]
                await self._send_batch(batch)
        finally:
            self._sending = None

    async def _send_batch(self, batch: list[_Posted]) -> None:
        writes = [posted.write for posted in batch]
        names = "+".join(type(write).__name__ for write in writes)
        try:
            boundary(f"before {names}")
            extended = await self._extend(writes)
            boundary(f"after {names}")
        except (StaleLease, RunEnded, StoreUnavailable) as error:
            self._posted = [*batch, *self._posted]
            self.lose(error)
        except TapeError as error:
            if len(batch) == 1:
                _answer(batch[0].done, error)
                return
            for posted in batch:  # a refusal costs the others nothing
                if self._lost is None:
                    await self._send_batch([posted])
        except BaseException as error:
            self._posted = [*batch, *self._posted]
            self.lose(error)
            raise
        else:
            self._note(extended)
            for posted, reply in zip(batch, extended.replies, strict=True):
                _answer(posted.done, reply)

    def note_seq(self, seq: int) -> None:
        """An entry of this run, at that number, was written without the pen."""
        if seq != self.seen_seq + 1:
            self.missed = True
        self.seen_seq = max(seq, self.seen_seq)

    def _note(self, extended: Extended) -> None:
        if extended.first_seq and extended.first_seq != self.seen_seq + 1:
            self.missed = True
        self.seen_seq = extended.run.seq_cursor

    def _fail(self, error: Abandoned) -> None:
        for posted in self._posted:
            _answer(posted.done, error)
        self._posted.clear()


def _answer(done: "asyncio.Future[Any]", reply: Any) -> None:
    if done.done():
        return
    if isinstance(reply, BaseException):
        done.set_exception(reply)
    else:
        done.set_result(reply)


def _look_at(done: "asyncio.Future[Any]") -> None:
    """Nobody awaits a posted write; a refusal of one is no surprise to the event loop."""
    if not done.cancelled():
        done.exception()
