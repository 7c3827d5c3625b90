"""The pen: puts a run's writes on its journal in the order in which its app makes them.

Some writes must be durable before the app goes on: whoever begins an act, waits or ends is held
until the journal has it. Others are *posted*: what an act came to, or what was drawn by chance.
The app goes on at once, and they go out with the next write that it waits for, in the same
transaction and before it. So nothing can happen in the world that depends on a record which a
crash could still undo, and a step costs one commit and not two.

Posted writes that nobody waits behind go out by themselves a moment later, with what was posted
until then.

A write that is refused for what it holds costs its app an error if it waits for it. One that was
posted cannot be told so any more: then the app is unwound, and its run fails.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from tape.errors import (
    BusinessKeyTaken,
    InvalidArgument,
    RunCancelled,
    StoreFailed,
    TapeError,
)
from tape.model.run import Run
from tape.model.run_write import Extended, RunWrite
from tape.runs.boundary import boundary
from tape.runs.driving.unwinding import Abandoned, Unrecorded

LINGER_S = 0.002
MOST_TOGETHER = 200
MOST_BYTES = 4 * 1024 * 1024
REFUSALS = (InvalidArgument, RunCancelled, BusinessKeyTaken, StoreFailed)
"""Judgements on one write; any other error says that the journal is not to be had."""

Extend = Callable[[Sequence[RunWrite]], Awaitable[Extended]]
"""Sends writes. The first time, that may be what begins the run, even without any."""

Instead = Callable[[TapeError], Sequence[RunWrite]]
"""What is written in the place of a write that is refused."""


class _Posted(NamedTuple):
    """A write that is to go out, and where its reply is awaited, if it is."""

    write: RunWrite
    done: asyncio.Future[Any] | None = None
    instead: Instead | None = None

    @property
    def has_happened(self) -> bool:
        """Whether it tells of what happened already. Nothing else goes out behind a refusal."""
        return self.done is None and self.instead is not None


class Pen:
    """`seen_seq` is the last number of the run's journal its driver knows of.

    `missed` is whether something came from outside in between that it does not know. `has_begun`
    is whether there is such a run yet: else it begins with the first write. `on_lost` is called
    when nothing more can be written, `on_written` with the run as a write has left it.
    """

    on_lost: Callable[[BaseException], None] | None = None
    on_written: Callable[[Run], None] | None = None

    def __init__(self, extend: Extend, seen_seq: int, *, has_begun: bool = True) -> None:
        self._extend = extend
        self._loop = asyncio.get_running_loop()
        self._posted: list[_Posted] = []
        self._sending: asyncio.Task[None] | None = None
        self._later: asyncio.TimerHandle | None = None
        self._lost: Abandoned | None = None
        self._refused: Unrecorded | None = None
        self.has_begun = has_begun
        self.seen_seq = seen_seq
        self.missed = False

    def post(self, write: RunWrite) -> None:
        """Have it written before anything that comes later."""
        self.post_or(write, None)

    def post_happened(self, write: RunWrite) -> None:
        """The same for what has happened already: whatever is refused, it is worth knowing."""
        self.post_or(write, _nothing)

    def post_or(self, write: RunWrite, instead: Instead | None) -> None:
        """The same, with something to write instead if it is refused."""
        if self._lost is not None:
            raise self._lost
        self._posted.append(_Posted(write, None, instead))
        self._send_later()

    def enter(self, write: RunWrite, instead: Instead | None = None) -> "asyncio.Future[Any]":
        """It has its place now; its reply comes once it and everything before it is durable.

        Whoever does not wait for that any more takes nothing back.
        """
        self.check()
        done = self._loop.create_future()
        self._posted.append(_Posted(write, done, instead))
        self._send()
        return done

    async def write(self, write: RunWrite) -> Any:
        """Its reply, once it and everything before it is durable."""
        return await self.enter(write)

    async def write_end(self, write: RunWrite) -> Any:
        """The same for the end of the run, which comes even after a write that was refused."""
        await self.settle()
        self._refused = None
        return await self.write(write)

    async def flush(self) -> None:
        """Wait until the run has begun and everything posted is durable."""
        await self.settle()
        if not self.has_begun and self._lost is None:
            self._send(even_nothing=True)
            await self.settle()
        self.check()

    async def catch_up(self) -> None:
        """Wait while more is posted than goes out at once."""
        while self._is_behind:
            self._send()
            if self._sending is not None:
                await asyncio.shield(self._sending)

    async def settle(self) -> None:
        """Wait until nothing is left to be written."""
        while self._posted or self._sending is not None:
            self._send()
            if self._sending is not None:
                await asyncio.shield(self._sending)

    def lose(self, cause: BaseException) -> None:
        """Nothing more is written: every step from here on unwinds the app."""
        if self._lost is None:
            self._lost = Abandoned(cause)
            if self.on_lost is not None:
                self.on_lost(cause)
        self._fail(self._lost)

    def check(self) -> None:
        """Unwind an app that can write nothing more."""
        if self._lost is not None:
            raise self._lost
        if self._refused is not None:
            raise self._refused

    def _send(self, *, even_nothing: bool = False) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None
        if self._sending is None and (self._posted or even_nothing):
            self._sending = self._loop.create_task(self._send_all())

    def _send_later(self) -> None:
        """Have more go out with it, so that not each is a commit of its own."""
        if self._posted and self._later is None and self._sending is None:
            self._later = self._loop.call_later(LINGER_S, self._send)

    async def _send_all(self) -> None:
        try:
            while self._lost is None:
                batch = self._next_batch()
                if self._refused is None:
                    await self._send_batch(batch)
                else:
                    await self._send_singly(batch)
                if not self._is_awaited:
                    break
        finally:
            self._sending = None
            self._send_later()

    @property
    def _is_awaited(self) -> bool:
        """Whether somebody waits for some of what is left, or for it to become less."""
        return self._is_behind or any(posted.done is not None for posted in self._posted)

    @property
    def _is_behind(self) -> bool:
        return len(self._posted) > MOST_TOGETHER

    def _next_batch(self) -> list[_Posted]:
        """As much as goes out at once: bounded in number and, but for the first, in size."""
        count = size = 0
        for posted in self._posted[:MOST_TOGETHER]:
            size += posted.write.size
            if count and size > MOST_BYTES:
                break
            count += 1
        batch = self._posted[:count]
        del self._posted[:count]
        return batch

    async def _send_batch(self, batch: list[_Posted]) -> None:
        try:
            extended = await self._send_together([posted.write for posted in batch])
        except REFUSALS as error:
            if len(batch) > 1:
                await self._send_singly(batch)
            else:
                await self._refuse(batch, error)
        except BaseException as error:
            self._posted = [*batch, *self._posted]
            self.lose(error)
            if not isinstance(error, TapeError):
                raise
        else:
            self.has_begun = True
            self._note(extended)
            for posted, reply in zip(batch, extended.replies, strict=True):
                _answer(posted.done, reply)

    async def _send_together(self, writes: list[RunWrite]) -> Extended:
        names = "+".join(type(write).__name__ for write in writes) or "BeginRun"
        boundary(f"before {names}")
        extended = await self._extend(writes)
        boundary(f"after {names}")
        return extended

    async def _send_singly(self, batch: list[_Posted]) -> None:
        """A refusal costs the others nothing, unless it was of something they depend on."""
        self._posted[:0] = batch
        for _ in batch:
            if self._lost is not None:
                return
            posted = self._posted.pop(0)
            if self._refused is not None and not posted.has_happened:
                _answer(posted.done, self._refused)
            else:
                await self._send_batch([posted])

    async def _refuse(self, batch: list[_Posted], error: TapeError) -> None:
        if not batch:  # the run itself could not begin
            self.lose(error)
            return
        (refused,) = batch
        if refused.done is None:
            self._refused = self._refused or Unrecorded(error)
        if refused.instead is not None and (writes := refused.instead(error)):
            await self._send_batch([_Posted(write) for write in writes])
        _answer(refused.done, error)

    def note_seq(self, seq: int) -> None:
        """An entry of this run, at that number, was written without the pen."""
        if seq != self.seen_seq + 1:
            self.missed = True
        self.seen_seq = max(seq, self.seen_seq)

    def _note(self, extended: Extended) -> None:
        if extended.first_seq and extended.first_seq != self.seen_seq + 1:
            self.missed = True
        self.seen_seq = extended.run.seq_cursor
        if self.on_written is not None:
            self.on_written(extended.run)

    def _fail(self, error: Abandoned) -> None:
        for posted in self._posted:
            _answer(posted.done, error)
        self._posted.clear()


def _nothing(_error: TapeError) -> Sequence[RunWrite]:
    return ()


def _answer(done: "asyncio.Future[Any] | None", reply: Any) -> None:
    if done is None or done.done():
        return
    if isinstance(reply, BaseException):
        done.set_exception(reply)
        done.exception()  # no surprise to the event loop if nobody waits for it any more
    else:
        done.set_result(reply)
