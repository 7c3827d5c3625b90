"""The writer: takes moves from its queue and commits many of them in one transaction.

While one batch is being made durable the next gathers, so the batch grows with the load and
nothing waits for a timer. What can go wrong, and whom it concerns:

* a move is refused: its caller alone; the others of the batch are written;
* the store cannot be reached: the same batch is tried again for `retry_for_s`, then all its callers
  get StoreUnavailable. A commit that may have happened is looked up by the store, never guessed,
  and never tried again while that is unknown;
* the batch fails for another reason: it is tried again move by move, so that only the culprit's
  caller gets the error.
"""

import asyncio
from typing import Any, TypeVar

from tape.errors import OutcomeUnknown, StoreFailed, StoreUnavailable
from tape.journal.batch import Verdict, decide_all, needs_of, settle
from tape.journal.queue import MoveQueue, QueuedMove
from tape.model.entry import EntryDraft
from tape.model.move import EntryPlace, Move, State
from tape.ports.store import Store
from tape.settings import WriterSettings
from tape.telemetry import metrics
from tape.telemetry.metrics import count_entries

T = TypeVar("T")

RETRY_FIRST_S = 0.05
RETRY_MOST_S = 1.0


class Writer:
    def __init__(self, store: Store, settings: WriterSettings) -> None:
        self._store = store
        self._settings = settings
        self._queue = MoveQueue(settings)
        self._closing = False
        self._task = asyncio.create_task(self._run(), name="tape-writer")

    async def submit(self, move: Move[T]) -> T:
        """The move's reply once it is durable, or its refusal."""
        reply: T = await (await self._queue.put(move))
        return reply

    async def close(self) -> None:
        """Write what is queued, then stop."""
        self._closing = True
        self._queue.close()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while batch := await self._queue.next_batch():
            await self._write(batch)

    async def _write(self, batch: list[QueuedMove]) -> None:
        moves = [waiting.move for waiting in batch]
        try:
            verdicts, place = await self._commit_with_retries(moves)
        except StoreFailed as error:
            if len(batch) == 1:
                _fail(batch, error)
                return
            for waiting in batch:
                await self._write([waiting])
        except Exception as error:  # noqa: BLE001 - the loop outlives any batch; callers get the error
            _fail(batch, error)
        else:
            for waiting, verdict in zip(batch, verdicts, strict=True):
                _answer(waiting.done, verdict, place)

    async def _commit_with_retries(
        self, moves: list[Move[Any]]
    ) -> tuple[list[Verdict], EntryPlace]:
        loop = asyncio.get_running_loop()
        give_up = loop.time() + self._settings.retry_for_s
        pause = RETRY_FIRST_S
        while True:
            try:
                return await self._commit(moves)
            except OutcomeUnknown:
                raise
            except StoreUnavailable:
                if self._closing or loop.time() + pause > give_up:
                    raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, RETRY_MOST_S)

    async def _commit(self, moves: list[Move[Any]]) -> tuple[list[Verdict], EntryPlace]:
        verdicts: list[Verdict] = []
        entries: list[EntryDraft] = []

        def decide(state: State) -> None:
            nonlocal entries
            verdicts[:] = decide_all(moves, state)
            entries = state.entries

        place = await self._store.commit(needs_of(moves), decide)
        if entries:
            metrics.ENTRIES_APPENDED.inc(len(entries))
            metrics.APPEND_BATCHES.inc()
            count_entries(entries)
        return verdicts, place


def _answer(done: asyncio.Future[Any], verdict: Verdict, place: EntryPlace) -> None:
    if done.cancelled():
        return
    try:
        done.set_result(settle(verdict, place))
    except StopIteration as error:  # the one error that a future does not take
        done.set_exception(RuntimeError(repr(error)))
    except Exception as error:  # noqa: BLE001 - whatever it is, it belongs to this caller
        done.set_exception(error)


def _fail(batch: list[QueuedMove], error: Exception) -> None:
    for waiting in batch:
        if not waiting.done.cancelled():
            waiting.done.set_exception(error)
