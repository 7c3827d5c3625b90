"""The rows of a batch with its decisions laid over them."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from tape.model.entry import EntryDraft
from tape.model.move import KNOWN, Decision, Need, RowChange, State, Table, UsedKey, delete, save
from tape.stores.rows import changed_rows, group_needs, prefix_range


class Parent(NamedTuple):
    a: str
    b: str
    text: str


class Child(NamedTuple):
    a: str
    b: str
    c: str


PARENTS = Table("parents", Parent, lambda row: (row.a, row.b))
CHILDREN = Table("children", Child, lambda row: (row.a, row.b, row.c), parent=PARENTS)
OTHERS = Table("others", Parent, lambda row: (row.a, row.b))


def apply(state: State, *changes: RowChange, entries: Iterable[EntryDraft] = ()) -> int:
    return state.apply(Decision(lambda _place: None, list(entries), changes))


def draft(key: str = "", seq: int = 0) -> EntryDraft:
    return EntryDraft(f"id-{key}", "event", "/tape/event/recorded/a/_/_", "null", seq=seq)._replace(
        idempotency_key=key
    )


def test_a_loaded_row_is_found_by_its_key_in_its_table() -> None:
    state = State()
    row = Parent("1", "2", "x")
    state.put_loaded(PARENTS, [row])
    assert state.get(PARENTS, ("1", "2")) == row
    assert state.get(PARENTS, ("1", "3")) is None
    assert state.get(OTHERS, ("1", "2")) is None
    assert (state.saves, state.deletions) == ({}, {})


def test_a_saved_row_hides_the_loaded_one_and_is_written_once() -> None:
    state = State()
    state.put_loaded(PARENTS, [Parent("1", "2", "old")])
    apply(state, save(PARENTS, Parent("1", "2", "new")))
    apply(state, save(PARENTS, Parent("1", "2", "newer")))
    assert state.get(PARENTS, ("1", "2")) == ("1", "2", "newer")
    assert state.saves == {PARENTS: {("1", "2"): ("1", "2", "newer")}}


def test_a_deleted_row_is_gone_with_what_was_below_it() -> None:
    state = State()
    state.put_loaded(PARENTS, [Parent("1", "2", "x"), Parent("1", "3", "y")])
    state.put_loaded(CHILDREN, [Child("1", "2", "c"), Child("1", "3", "c")])
    apply(state, save(CHILDREN, Child("1", "2", "d")), save(CHILDREN, Child("1", "3", "d")))
    apply(state, delete(PARENTS, ("1", "2")))
    assert state.get(PARENTS, ("1", "2")) is None
    assert state.get(CHILDREN, ("1", "2", "c")) is None
    assert state.get(CHILDREN, ("1", "2", "d")) is None
    assert state.get(PARENTS, ("1", "3")) is not None
    assert state.get(CHILDREN, ("1", "3", "c")) is not None
    assert state.saves[CHILDREN] == {("1", "3", "d"): ("1", "3", "d")}


def test_a_row_made_again_is_deleted_first_and_then_saved() -> None:
    state = State()
    state.put_loaded(PARENTS, [Parent("1", "2", "old")])
    apply(state, delete(PARENTS, ("1", "2")), save(PARENTS, Parent("1", "2", "new")))
    assert state.get(PARENTS, ("1", "2")) == ("1", "2", "new")
    assert state.deletions == {PARENTS: {("1", "2"): ()}}
    assert state.saves == {PARENTS: {("1", "2"): ("1", "2", "new")}}


def test_a_row_saved_and_deleted_is_only_deleted() -> None:
    state = State()
    apply(state, save(PARENTS, Parent("1", "2", "x")), delete(PARENTS, ("1", "2")))
    assert state.saves == {PARENTS: {}}
    assert state.deletions == {PARENTS: {("1", "2"): ()}}
    assert [verb for verb, _table, _rows in changed_rows(state)] == ["delete"]


def test_entries_are_numbered_through_the_batch() -> None:
    state = State(next_global_seq=10)
    assert apply(state, entries=[draft(), draft("k", 3)]) == 0
    assert apply(state, entries=[draft("l")]) == 2
    assert apply(state) == 3
    assert state.get(KNOWN, "k") == UsedKey("k", "id-k", 11, 3)
    assert state.get(KNOWN, "l") == UsedKey("l", "id-l", 12, 0)
    assert len(state.entries) == 3


def test_needs_are_grouped_by_table_and_asked_once() -> None:
    needs: list[Need] = [
        Need(PARENTS, ("1", "2")),
        Need(KNOWN, "k"),
        Need(PARENTS, ("1", "2")),
        Need(PARENTS, ("2", "1")),
        Need(KNOWN, "k"),
    ]
    grouped: dict[Any, Any] = group_needs(needs)
    assert grouped == {PARENTS: [("1", "2"), ("2", "1")], KNOWN: [("k",)]}


def test_a_prefix_is_a_half_open_range() -> None:
    low, high = prefix_range("/tape/a")
    assert low <= "/tape/a" < high
    assert low <= "/tape/a/b" < high
    assert low <= "/tape/a~" < high
    assert not low <= "/tape/b" < high
    assert prefix_range("") == ("", "")
