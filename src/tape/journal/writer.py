"""The writer: takes moves from a bounded queue and commits many of them in one transaction.

While one batch is being made durable the next gathers, so the batch grows with the load and
nothing waits for a timer. What can go wrong, and whom it concerns:

* a move is refused: its caller alone; the others of the batch are written;
* the store cannot be reached: the same batch is tried again for `retry_for_s`, then all its callers
  get StoreUnavailable. A commit that may have happened is looked up by the store, never guessed,
  and never tried again while that is unknown;
* the batch fails for another reason: it is tried again move by move, so that only the culprit's
  caller gets the error;
* the queue is full: the caller waits, and after `queue_wait_s` gets Overloaded.
"""

import asyncio
from collections import deque
from typing import Any, NamedTuple, TypeVar

from tape.config import WriterSettings
from tape.errors import Closed, OutcomeUnknown, Overloaded, StoreFailed, StoreUnavailable
from tape.journal.batch import Verdict, decide_all, needs_of, settle
from tape.model.move import Move, Place, State
from tape.ports.store import Store

T = TypeVar("T")

RETRY_FIRST_S = 0.05
RETRY_MOST_S = 1.0


class _Waiting(NamedTuple):
    move: Move[Any]
    done: asyncio.Future[Any]


class Writer:
    def __init__(self, store: Store, settings: WriterSettings) -> None:
        self._store = store
        self._settings = settings
        self._queue: deque[_Waiting] = deque()
        self._queued_bytes = 0
        self._arrived = asyncio.Event()
        self._room = asyncio.Condition()
        self._waiting = 0  # callers for whom there was no room: who comes later waits behind them
        self._closing = False
        self._task = asyncio.create_task(self._run(), name="tape-writer")

    async def submit(self, move: Move[T]) -> T:
        """The move's reply once it is durable, or its refusal."""
        if self._closing:
            raise Closed
        if self._is_full or self._waiting:
            await self._wait_for_room()
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._queue.append(_Waiting(move, done))
        self._queued_bytes += move.weight
        self._arrived.set()
        return await done

    async def close(self) -> None:
        """Write what is queued, then stop."""
        self._closing = True
        self._arrived.set()
        async with self._room:
            self._room.notify_all()
        await asyncio.gather(self._task, return_exceptions=True)

    @property
    def _is_full(self) -> bool:
        return (
            len(self._queue) >= self._settings.queue_moves
            or self._queued_bytes >= self._settings.queue_bytes
        )

    async def _wait_for_room(self) -> None:
        self._waiting += 1
        try:
            async with asyncio.timeout(self._settings.queue_wait_s), self._room:
                await self._room.wait_for(lambda: not self._is_full or self._closing)
        except TimeoutError:
            raise Overloaded(
                f"{len(self._queue)} moves with {self._queued_bytes} bytes are waiting to be "
                "written: slow down and retry"
            ) from None
        finally:
            self._waiting -= 1
        if self._closing:
            raise Closed

    async def _run(self) -> None:
        while self._queue or not self._closing:
            if not self._queue:
                self._arrived.clear()
                await self._arrived.wait()
                continue
            batch = self._take_batch()
            async with self._room:
                self._room.notify_all()
            await self._write(batch)

    def _take_batch(self) -> list[_Waiting]:
        batch: list[_Waiting] = []
        weight = 0
        while self._queue and len(batch) < self._settings.batch_moves:
            weight += self._queue[0].move.weight
            if batch and weight > self._settings.batch_bytes:
                break
            waiting = self._queue.popleft()
            self._queued_bytes -= waiting.move.weight
            if not waiting.done.cancelled():
                batch.append(waiting)
        return batch

    async def _write(self, batch: list[_Waiting]) -> None:
        moves = [waiting.move for waiting in batch]
        try:
            verdicts, place = await self._commit_patiently(moves)
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

    async def _commit_patiently(self, moves: list[Move[Any]]) -> tuple[list[Verdict], Place]:
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

    async def _commit(self, moves: list[Move[Any]]) -> tuple[list[Verdict], Place]:
        verdicts: list[Verdict] = []

        def decide(state: State) -> None:
            verdicts.extend(decide_all(moves, state))

        place = await self._store.commit(needs_of(moves), decide)
        return verdicts, place


def _answer(done: asyncio.Future[Any], verdict: Verdict, place: Place) -> None:
    if done.cancelled():
        return
    try:
        done.set_result(settle(verdict, place))
    except StopIteration as error:  # the one error that a future does not take
        done.set_exception(RuntimeError(repr(error)))
    except Exception as error:  # noqa: BLE001 - whatever it is, it belongs to this caller
        done.set_exception(error)


def _fail(batch: list[_Waiting], error: Exception) -> None:
    for waiting in batch:
        if not waiting.done.cancelled():
            waiting.done.set_exception(error)
