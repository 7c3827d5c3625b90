"""How often each credential was opened: counted here, and added to its row every `FLUSH_S`.

A write for each opening would be a write for each message that is signed. So the count on the row
is behind by so much at most, and a process that is killed takes what it has not written yet.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from tape.errors import OutcomeUnknown, TapeError
from tape.telemetry import metrics
from tape.telemetry.retrying import Retrying

log = logging.getLogger("tape.wallet")

FLUSH_S: Final = 5.0

AddOpenings = Callable[[Mapping[str, int]], Awaitable[None]]


class Openings:
    def __init__(self, add: AddOpenings, flush_s: float = FLUSH_S) -> None:
        self._add = add
        self._flush_s = flush_s
        self._pending: Counter[str] = Counter()
        self._flushing: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    def count(self, alias: str) -> None:
        metrics.count_opening(alias)
        self._pending[alias] += 1
        if self._flushing is None:
            self._flushing = asyncio.create_task(self._keep_flushing(), name="tape-openings")

    async def flush(self) -> None:
        """Add what was counted. If that fails it is kept, unless it may have been added."""
        pending, self._pending = self._pending, Counter()
        try:
            await self._add(pending)
        except OutcomeUnknown:
            raise
        except BaseException:
            self._pending.update(pending)
            raise

    async def close(self) -> None:
        self._closing.set()
        if self._flushing is not None:
            await self._flushing
        if self._pending:
            log.warning("%d openings of credentials were not counted", self._pending.total())

    async def _keep_flushing(self) -> None:
        """For as long as there is something to add."""
        retrying = Retrying(log, "counting openings of credentials")
        while self._pending:
            with contextlib.suppress(TimeoutError):  # then it is time to add
                await asyncio.wait_for(self._closing.wait(), self._flush_s)
            try:
                await self.flush()
                retrying.succeeded()
            except TapeError as error:
                retrying.failed(error)
                if self._closing.is_set():
                    break
        self._flushing = None
