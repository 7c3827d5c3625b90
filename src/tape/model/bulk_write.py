"""Writing in bulk, exactly once.

A *write* is a sequence of epochs, and an epoch is a list of *parts*: what one task staged, in
chunks. The list is registered before the first row of it is recorded. From then on that list is the
epoch, whoever brings another one: a driver that was killed and staged everything again finishes
what is registered. Each chunk is one move that appends its rows and counts itself in the same
transaction, and a chunk that is not the next one changes nothing. So any number of drivers may
record the same epoch, one after another or at once, and each row is recorded once.

Rows are checked before they are staged. A chunk therefore cannot be refused, and no epoch is left
half recorded because of its data.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import orjson

from tape.errors import InvalidArgument, StoreFailed
from tape.model.entry import EntryDraft
from tape.model.event import ENVELOPE_BYTES
from tape.model.move import KNOWN, Decision, Need, Overlay, RowChange, State, Table, save
from tape.model.value import WriteValue

BATCH: Final = "batch"
"""The origin of a write that is no stream's."""


class BulkWrite(NamedTuple):
    """How far a write has come: `recorded` of the `chunks` of its newest epoch.

    `origin` is the stream it belongs to. `rows` and `duplicates` count over all epochs: what was
    recorded, and what had an idempotency key that was used before.
    """

    write_id: str
    epoch: int
    origin: str
    chunks: int
    recorded: int
    rows: int
    duplicates: int
    updated_at_ms: int

    @property
    def is_finished(self) -> bool:
        return self.recorded >= self.chunks


class WriteList(NamedTuple):
    """The registered parts of an epoch."""

    write_id: str
    epoch: int
    parts_json: str


class StagedPart(NamedTuple):
    """What one task has staged."""

    name: str
    chunks: int
    rows: int


WRITES = Table("writes", BulkWrite, lambda row: row.write_id)
WRITE_LISTS = Table("write_lists", WriteList, lambda row: (row.write_id, row.epoch))


def parts_of(listed: WriteList) -> list[StagedPart]:
    return [StagedPart(*part) for part in orjson.loads(listed.parts_json)]


class RegisterWrite:
    """Make a list of parts an epoch of a write; the write as it then stands.

    An epoch that is registered already, or an older one, stays as it is.
    """

    __slots__ = ("_chunks", "_epoch", "_list", "_origin", "_write_id", "weight")

    def __init__(self, write_id: str, epoch: int, origin: str, parts: Sequence[StagedPart]) -> None:
        self._write_id = write_id
        self._epoch = epoch
        self._origin = origin
        self._chunks = sum(part.chunks for part in parts)
        self._list = WriteList(write_id, epoch, orjson.dumps(parts, default=tuple).decode())
        self.weight = ENVELOPE_BYTES + len(self._list.parts_json)

    def needs(self) -> Iterable[Need]:
        yield Need(WRITES, self._write_id)

    def decide(self, state: State) -> Decision[BulkWrite]:
        before = state.get(WRITES, self._write_id)
        if before is not None:
            self._check_origin(before)
            if before.epoch >= self._epoch:
                stands = before
                return Decision(lambda _place: stands)
            if not before.is_finished:
                raise StoreFailed(
                    f"epoch {before.epoch} of write {self._write_id!r} is not finished, so "
                    f"epoch {self._epoch} cannot begin"
                )
        rows, duplicates = (before.rows, before.duplicates) if before else (0, 0)
        after = BulkWrite(
            self._write_id, self._epoch, self._origin, self._chunks, 0, rows, duplicates,
            state.now_ms,
        )  # fmt: skip
        changes = [save(WRITES, after), save(WRITE_LISTS, self._list)]
        return Decision(lambda _place: after, (), changes)

    def _check_origin(self, before: BulkWrite) -> None:
        if before.origin != self._origin:
            # A stream that begins again at epoch 0 under an old name would be skipped in silence.
            raise InvalidArgument(
                f"{self._write_id!r} belongs to another write ({before.origin}, this is "
                f"{self._origin}): a stream with a new checkpoint needs a new write_id",
                field="write_id",
            )


class ChunkPlace(NamedTuple):
    """Which chunk of an epoch's list: the first has `number` 0."""

    write_id: str
    epoch: int
    number: int


class _RecordChunk:
    __slots__ = ("_place", "weight")

    def __init__(self, place: ChunkPlace, weight: int) -> None:
        self._place = place
        self.weight = weight + ENVELOPE_BYTES

    def _turn(self, state: State) -> BulkWrite | None:
        """The write, if this chunk is the next of it."""
        write = state.get(WRITES, self._place.write_id)
        if write is None or (write.epoch, write.recorded) != self._place[1:]:
            return None
        return write

    def _counted(self, write: BulkWrite, rows: int, duplicates: int, now_ms: int) -> BulkWrite:
        return write._replace(
            recorded=write.recorded + 1,
            rows=write.rows + rows,
            duplicates=write.duplicates + duplicates,
            updated_at_ms=now_ms,
        )


class RecordEventChunk(_RecordChunk):
    """Append the events of a chunk, if it is the next; whether it was.

    An event whose key was used before, here or elsewhere, is left out and counted.
    """

    __slots__ = ("_drafts",)

    def __init__(self, place: ChunkPlace, drafts: Sequence[EntryDraft]) -> None:
        super().__init__(place, sum(len(draft.payload_json) + ENVELOPE_BYTES for draft in drafts))
        self._drafts = drafts

    def needs(self) -> Iterable[Need]:
        yield Need(WRITES, self._place.write_id)
        for draft in self._drafts:
            if draft.idempotency_key:
                yield Need(KNOWN, draft.idempotency_key)

    def decide(self, state: State) -> Decision[bool]:
        write = self._turn(state)
        if write is None:
            return Decision(lambda _place: False)
        entries: list[EntryDraft] = []
        mine: set[str] = set()
        for draft in self._drafts:
            key = draft.idempotency_key
            if key:
                if key in mine or state.get(KNOWN, key) is not None:
                    continue
                mine.add(key)
            entries.append(draft)
        left_out = len(self._drafts) - len(entries)
        after = self._counted(write, len(entries), left_out, state.now_ms)
        return Decision(lambda _place: True, entries, [save(WRITES, after)])


class RecordValueChunk(_RecordChunk):
    """Set the values of a chunk in their order, if it is the next; whether it was."""

    __slots__ = ("_values",)

    def __init__(self, place: ChunkPlace, values: Sequence[WriteValue]) -> None:
        super().__init__(place, sum(value.weight for value in values))
        self._values = values

    def needs(self) -> Iterable[Need]:
        yield Need(WRITES, self._place.write_id)
        for value in self._values:
            yield from value.needs()

    def decide(self, state: State) -> Decision[bool]:
        write = self._turn(state)
        if write is None:
            return Decision(lambda _place: False)
        seen = Overlay(state)
        entries: list[EntryDraft] = []
        for value in self._values:
            decision = value.decide(seen)
            entries += decision.entries
            seen.apply(decision.changes)
        counted = self._counted(write, len(entries), 0, state.now_ms)
        changes: list[RowChange] = [*seen.changes, save(WRITES, counted)]
        return Decision(lambda _place: True, entries, changes)
