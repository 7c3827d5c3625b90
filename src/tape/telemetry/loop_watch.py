"""Watching an event loop from a thread: one that stands still is told of while it does.

A function that blocks the loop holds up everything of its process, the renewal of leases among it.
From inside nothing can be said about it. So a thread has the loop answer several times a second,
and when it does not, names the task that runs on it and the line that it is at.

Leases are not renewed from this thread. A loop that stands still may never go on, and then its runs
and tasks must go to another: a lease that a thread keeps alive would hold them for ever.
"""

import asyncio
import logging
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NamedTuple
from weakref import WeakKeyDictionary

from tape.telemetry import metrics

log = logging.getLogger("tape.loop")

BLOCKED_S = 2.0
"""How long a loop may stand still before that is said; half of a lease if that is less."""
WHAT_TO_DO = (
    "make it a plain def, which runs in a thread, or run the blocking part with await "
    "asyncio.to_thread(…)"
)
_PATHS = sysconfig.get_paths()
_OF_OTHERS = tuple(_PATHS[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))


class Block(NamedTuple):
    """What held a loop up and where; by the monotonic clock from when, and to when if it ended."""

    what: str
    where: str
    began: float
    ended: float | None = None

    @property
    def seconds(self) -> float:
        return (self.ended or time.monotonic()) - self.began


class LoopWatch:
    """Watches the running event loop until it is stopped."""

    def __init__(self, blocked_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._blocked_s = blocked_s
        self._loop_thread = threading.get_ident()
        self._stopping = threading.Event()
        self.last: Block | None = None
        threading.Thread(target=self._watch, name="tape-loop-watch", daemon=True).start()

    def stop(self) -> None:
        self._stopping.set()

    def _watch(self) -> None:
        while not self._stopping.wait(self._blocked_s / 4):
            answered, asked_at = threading.Event(), time.monotonic()
            try:
                self._loop.call_soon_threadsafe(answered.set)
            except RuntimeError:  # the loop has ended
                return
            if answered.wait(self._blocked_s):
                continue
            self._log_block(asked_at)
            while not answered.wait(self._blocked_s):
                if self._stopping.is_set() or self._loop.is_closed():
                    return
            self._log_end_of_block()

    def _log_block(self, began: float) -> None:
        task = asyncio.current_task(self._loop)
        what = "something" if task is None else task.get_name()
        where = _line_of(sys._current_frames().get(self._loop_thread))  # noqa: SLF001 - documented
        self.last = Block(what, where, began)
        log.warning(
            "%s has blocked the event loop for %.1f s, at %s: no other work of this process "
            "continues, and no lease is renewed; %s",
            what, self.last.seconds, where, WHAT_TO_DO,
        )  # fmt: skip
        metrics.LOOP_BLOCKS.inc()

    def _log_end_of_block(self) -> None:
        if self.last is not None:
            self.last = block = self.last._replace(ended=time.monotonic())
            metrics.LOOP_BLOCKED_SECONDS.inc(block.seconds)
            log.info("%s blocked the event loop for %.1f s in all", block.what, block.seconds)


_WATCHES: WeakKeyDictionary[asyncio.AbstractEventLoop, list[LoopWatch]] = WeakKeyDictionary()


@contextmanager
def watched_loop(lease_s: float) -> Iterator[None]:
    """Watch the running event loop meanwhile, for holders of leases that are so long."""
    watches = _WATCHES.setdefault(asyncio.get_running_loop(), [])
    watch = LoopWatch(min(BLOCKED_S, lease_s / 2))
    watches.append(watch)
    try:
        yield
    finally:
        watches.remove(watch)
        watch.stop()


def last_block(within_s: float) -> Block | None:
    """What held up the running loop within the last so many seconds, if that was noticed."""
    blocks = [watch.last for watch in _WATCHES.get(asyncio.get_running_loop(), ()) if watch.last]
    newest = max(blocks, key=lambda block: block.began, default=None)
    if newest is None or (newest.ended and time.monotonic() - newest.ended > within_s):
        return None
    return newest


def _line_of(frame: FrameType | None) -> str:
    """The innermost line of the program's own code, or of any if none of it is."""
    innermost = frame
    while frame is not None:
        if not frame.f_code.co_filename.startswith(_OF_OTHERS):
            break
        frame = frame.f_back
    frame = frame or innermost
    if frame is None:
        return "a line that is not known"
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
