"""Recording what was staged, on the driver: see `model.bulk_write` for why each row is once."""

import logging
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeVar

from tape.errors import OutcomeUnknown, StoreFailed
from tape.journal.ids import UlidFactory
from tape.journal.writer import Writer
from tape.model.bulk_write import BulkWrite, ChunkPlace, RegisterWrite, StagedPart, parts_of
from tape.model.move import Move
from tape.pipeline.source.forms import Form, decode
from tape.ports.store import Store
from tape.settings import Settings

T = TypeVar("T")

log = logging.getLogger("tape.pipeline")

ABANDONED_MS: Final = 7 * 24 * 3600 * 1000
"""Staged so long ago and never registered: nobody will come for it any more."""
TRIES: Final = 3


class Epoch(NamedTuple):
    """What a driver was asked to record. `is_nameless`: nobody can come back to this write."""

    write_id: str
    number: int
    origin: str
    is_nameless: bool = False


class Recorder:
    """Records epochs on an open store; made anew for each."""

    def __init__(self, store: Store, form: Form, settings: Settings) -> None:
        self._store = store
        self._form = form
        self._limits = settings.limits
        self._writing = settings.writer
        self._ids = UlidFactory()

    async def record(self, epoch: Epoch, parts: Sequence[StagedPart]) -> BulkWrite:
        """Register the parts as this epoch and record it, or finish what is registered as it."""
        writer = Writer(self._store, self._writing)
        try:
            before = await self._store.writes.get_write(epoch.write_id)
            if before is not None and before.epoch < epoch.number:
                await self._finish(writer, before)
            move = RegisterWrite(epoch.write_id, epoch.number, epoch.origin, parts)
            write = await self._submit(writer, move)
            if write.epoch == epoch.number:
                write = await self._finish(writer, write)
        finally:
            await writer.close()
        await self._clean_up(epoch)
        return write

    async def abandon(self, epoch: Epoch, parts: Sequence[StagedPart]) -> None:
        """Forget what was staged, unless it is registered: then it will be recorded."""
        listed = await self._store.writes.get_write_list(epoch.write_id, epoch.number)
        kept = {part.name for part in parts_of(listed)} if listed else set()
        gone = [part.name for part in parts if part.name not in kept]
        await self._store.writes.discard_parts(epoch.write_id, epoch.number, gone)

    async def _finish(self, writer: Writer, write: BulkWrite) -> BulkWrite:
        """Record the rest of the registered list. Others may be at it: then less is left to do."""
        listed = await self._store.writes.get_write_list(write.write_id, write.epoch)
        if write.is_finished or listed is None:
            return write
        places = [(part.name, number) for part in parts_of(listed) for number in range(part.chunks)]
        for number in range(write.recorded, write.chunks):
            part, chunk = places[number]
            body = await self._store.writes.get_chunk(write.write_id, write.epoch, part, chunk)
            if body is None:
                await self._check_recorded(write, number)
                continue
            rows = decode(self._form, body)
            place = ChunkPlace(write.write_id, write.epoch, number)
            move = self._form.move(place, rows, self._ids.take, self._limits)
            await self._submit(writer, move)
        found = await self._store.writes.get_write(write.write_id)
        return found or write

    async def _check_recorded(self, write: BulkWrite, number: int) -> None:
        """A chunk is not there any more: fine if another driver has recorded it."""
        now = await self._store.writes.get_write(write.write_id)
        if now is None or now.epoch > write.epoch or now.recorded > number:
            return
        raise StoreFailed(
            f"chunk {number} of epoch {write.epoch} of write {write.write_id!r} is gone; "
            f"{number} of {write.chunks} chunks are recorded"
        )

    async def _submit(self, writer: Writer, move: Move[T]) -> T:
        """A move that may have been made is made again: it sees for itself if it was."""
        for _ in range(TRIES - 1):
            try:
                return await writer.submit(move)
            except OutcomeUnknown as fault:
                log.warning(
                    "the store became unreachable during a commit, looking again: %s", fault
                )
        return await writer.submit(move)

    async def _clean_up(self, epoch: Epoch) -> None:
        store, (write_id, number, _, is_nameless) = self._store, epoch
        await store.writes.forget_write(write_id, number, wholly=is_nameless)
        while await store.writes.discard_staged(write_id, number, ABANDONED_MS):
            pass
