"""Writing in bulk: what is registered stands, and a chunk counts once and in its turn."""

import pytest

from tape.errors import InvalidArgument, StoreFailed
from tape.model.bulk_write import (
    BATCH,
    WRITE_LISTS,
    WRITES,
    BulkWrite,
    ChunkPlace,
    RecordEventChunk,
    RecordValueChunk,
    RegisterWrite,
    StagedPart,
    parts_of,
)
from tape.model.event import NewEvent, draft_event
from tape.model.move import KNOWN, EntryPlace, Move, State, UsedKey
from tape.model.value import ANY_VERSION, VALUES, Author, WriteValue
from tape.settings import Limits

LIMITS = Limits()
PARTS = (StagedPart("a", 2, 30), StagedPart("b", 1, 5))


def playing(state: State, move: Move[object]) -> object:
    decision = move.decide(state)
    state.apply(decision)
    return decision.reply(EntryPlace(1, 0))


def register(state: State, epoch: int = 0, parts: tuple[StagedPart, ...] = PARTS) -> object:
    return playing(state, RegisterWrite("w", epoch, BATCH, parts))


def events(number: int, *keys: str, epoch: int = 0) -> RecordEventChunk:
    drafts = [
        draft_event(NewEvent("order.placed", idempotency_key=key), f"id{n}", LIMITS)
        for n, key in enumerate(keys)
    ]
    return RecordEventChunk(ChunkPlace("w", epoch, number), drafts)


def written(state: State) -> BulkWrite:
    row = state.get(WRITES, "w")
    assert row is not None
    return row


def test_the_first_list_of_an_epoch_is_the_epoch() -> None:
    state = State(now_ms=7)
    assert register(state) == BulkWrite("w", 0, BATCH, 3, 0, 0, 0, 7)
    assert register(state, parts=(StagedPart("c", 9, 9),)) == BulkWrite(
        "w", 0, BATCH, 3, 0, 0, 0, 7
    )
    listed = state.get(WRITE_LISTS, ("w", 0))
    assert listed is not None
    assert parts_of(listed) == list(PARTS)


def test_an_epoch_begins_when_the_one_before_is_recorded() -> None:
    state = State()
    register(state, parts=(StagedPart("a", 1, 1),))
    with pytest.raises(StoreFailed, match="epoch 0 of write 'w' is not finished"):
        register(state, epoch=1)
    assert playing(state, events(0, "")) is True
    register(state, epoch=1)
    assert written(state)[:6] == ("w", 1, BATCH, 3, 0, 1)  # rows count on
    assert register(state, epoch=0) == written(state)


def test_a_write_is_not_taken_over_by_another_stream() -> None:
    state = State()
    register(state)
    with pytest.raises(InvalidArgument, match=r"belongs to another write .batch, this is stream q"):
        playing(state, RegisterWrite("w", 0, "stream q", PARTS))
    assert written(state).origin == BATCH


def test_a_chunk_is_recorded_once_and_in_its_turn() -> None:
    state = State(now_ms=9)
    register(state)
    assert playing(state, events(1, "")) is False
    assert playing(state, events(0, "", "")) is True
    assert playing(state, events(0, "", "")) is False
    assert playing(state, events(1, "", epoch=1)) is False
    assert (len(state.entries), written(state)) == (2, BulkWrite("w", 0, BATCH, 3, 1, 2, 0, 9))
    assert playing(State(), events(0, "")) is False


def test_a_key_that_was_used_is_left_out_and_counted() -> None:
    state = State()
    state.put_loaded(KNOWN, [UsedKey("old", "e", 1, 0)])
    register(state)
    assert playing(state, events(0, "old", "new", "new", "")) is True
    assert [entry.idempotency_key for entry in state.entries] == ["new", None]
    assert (written(state).rows, written(state).duplicates) == (2, 2)
    needed = {need.key for need in events(0, "k", "").needs()}
    assert needed == {"w", "k"}


def test_values_of_a_chunk_see_each_other() -> None:
    state = State()
    register(state)
    values = [
        WriteValue("ns", "k", text, ANY_VERSION, author=Author(), event_id=text, limits=LIMITS)
        for text in ("1", "2")
    ]
    move = RecordValueChunk(ChunkPlace("w", 0, 0), values)
    assert {need.key for need in move.needs()} == {"w", ("ns", "k")}
    assert playing(state, move) is True
    assert playing(state, move) is False
    row = state.get(VALUES, ("ns", "k"))
    assert row is not None
    assert (row.value_json, row.version, len(state.entries)) == ("2", 2, 2)
    assert written(state).rows == 2
