"""Reactions: what is refused and why, and what registering and deregistering do to cursors."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tape.errors import InvalidArgument, TapeError, TooLarge
from tape.model.move import EntryPlace, Need, State
from tape.model.reaction import (
    BOOK,
    BOOK_NAME,
    CURSORS,
    DAY_MS,
    REACTIONS,
    TALLIES,
    Book,
    DeregisterReaction,
    HandlerKind,
    NewReaction,
    Reaction,
    ReactionCursor,
    RegisterReaction,
    Tally,
    check_reaction,
    fnv1a,
    shard_of,
)
from tape.settings import Limits

LIMITS = Limits()
NOW, HEAD = 50, 9
PLAIN = NewReaction("r", "/tape/event/**", HandlerKind.TASK)


def world() -> State:
    state = State(NOW, HEAD + 1)
    state.put_loaded(BOOK, [Book(BOOK_NAME, 4)])
    return state


def play(state: State, move: Any) -> Any:
    decision = move.decide(state)
    state.apply(decision)
    return decision.reply(EntryPlace(HEAD + 1, NOW))


def register(state: State, **settings: Any) -> Reaction:
    reaction = play(state, RegisterReaction(PLAIN._replace(**settings), LIMITS))
    assert isinstance(reaction, Reaction)
    return reaction


def deregister(state: State) -> Any:
    return play(state, DeregisterReaction("r", LIMITS))


def cursors(state: State) -> list[ReactionCursor]:
    found = [state.get(CURSORS, ("r", shard)) for shard in range(8)]
    return [cursor for cursor in found if cursor is not None]


def version(state: State) -> int:
    book = state.get(BOOK, BOOK_NAME)
    assert book is not None
    return book.version


@pytest.mark.parametrize(
    ("settings", "field", "message"),
    [
        ({"reaction_id": ""}, "reaction_id", "must not be empty"),
        ({"reaction_id": "a\0b"}, "reaction_id", "NUL is not allowed"),
        ({"reaction_id": "\ud800"}, "reaction_id", "lone surrogate"),
        ({"name": "a\0b"}, "name", "NUL is not allowed"),
        ({"subject_pattern": "no/slash"}, "subject_pattern", ""),
        ({"subject_pattern": "/tape/**/x"}, "subject_pattern", ""),
        ({"handler_kind": 0}, "handler_kind", "0 is not one of 1 (agent), 2 (task), 3 (publish)"),
        ({"handler_kind": 4}, "handler_kind", "4 is not one of"),
        ({"handler_kind": 1}, "agent_app", "is required with the handler kind agent"),
        ({"handler_kind": 3}, "publish_target", "is required with the handler kind publish"),
        ({"agent_app": "app"}, "agent_app", "goes only with the handler kind agent"),
        ({"publish_target": "nats://h/s"}, "publish_target", "goes only with"),
        ({"handler_kind": 1, "agent_app": "a", "publish_target": "b"}, "publish_target", "only"),
        ({"max_concurrency": 0}, "max_concurrency", "0 is not in 1..100000"),
        ({"max_concurrency": 100_001}, "max_concurrency", "100001 is not in"),
        ({"rate_limit_per_s": -1}, "rate_limit_per_s", "-1 is not in 0..1000000"),
        ({"rate_limit_per_s": 1_000_001}, "rate_limit_per_s", "is not in"),
        ({"debounce_ms": -1}, "debounce_ms", "is not in"),
        ({"debounce_ms": DAY_MS + 1}, "debounce_ms", "is not in"),
        ({"retry_max": -1}, "retry_max", "is not in"),
        ({"retry_max": 10_001}, "retry_max", "is not in"),
        ({"retry_backoff_ms": -1}, "retry_backoff_ms", "is not in"),
        ({"retry_backoff_ms": DAY_MS + 1}, "retry_backoff_ms", "is not in"),
        ({"dlq_after_n": -1}, "dlq_after_n", "is not in"),
        ({"dlq_after_n": 10_001}, "dlq_after_n", "is not in"),
        ({"num_shards": 0}, "num_shards", "0 is not in 1..1024"),
        ({"num_shards": 1_025}, "num_shards", "is not in"),
        ({"engine": "flink"}, "engine", "'flink' is not one of server, spark"),
        ({"from_global_seq": -1}, "from_global_seq", "-1 is not in 0..2^63-1"),
        ({"from_global_seq": 2**63}, "from_global_seq", "is not in"),
    ],
)
def test_what_could_never_work_is_refused(
    settings: dict[str, Any], field: str, message: str
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        check_reaction(PLAIN._replace(**settings), LIMITS)
    assert caught.value.field == field
    assert message in str(caught.value)


@pytest.mark.parametrize("field", ["reaction_id", "name", "agent_app", "publish_target"])
def test_a_name_that_is_too_long_is_refused(field: str) -> None:
    settings: dict[str, Any] = {field: "x" * 513}
    with pytest.raises(TooLarge) as caught:
        check_reaction(PLAIN._replace(**settings), LIMITS)
    assert caught.value.field == field


def test_an_id_must_fit_into_the_subjects_of_its_tasks() -> None:
    check_reaction(PLAIN._replace(reaction_id="x" * 512), LIMITS)
    with pytest.raises(TooLarge, match="subjects of its tasks") as caught:
        check_reaction(PLAIN._replace(reaction_id="/" * 400), LIMITS)
    assert caught.value.field == "reaction_id"


@pytest.mark.parametrize(
    "settings",
    [
        {"handler_kind": HandlerKind.AGENT, "agent_app": "app"},
        {"handler_kind": HandlerKind.PUBLISH, "publish_target": "nats://h/s"},
        {"max_concurrency": 100_000, "rate_limit_per_s": 1_000_000, "debounce_ms": DAY_MS},
        {"retry_max": 0, "retry_backoff_ms": 0, "dlq_after_n": 0, "engine": "spark"},
        {"num_shards": 1_024, "from_global_seq": 0},
    ],
)
def test_what_can_work_is_not_refused(settings: dict[str, Any]) -> None:
    check_reaction(PLAIN._replace(**settings), LIMITS)


def test_registering_looks_at_the_book_first() -> None:
    needs = list(RegisterReaction(PLAIN, LIMITS).needs())
    assert needs[0] == Need(BOOK, BOOK_NAME)
    assert {need.table for need in needs} == {BOOK, REACTIONS, CURSORS, TALLIES}
    assert next(iter(DeregisterReaction("r", LIMITS).needs())) == Need(BOOK, BOOK_NAME)


def test_a_new_reaction_follows_from_the_head() -> None:
    state = world()
    reaction = register(state, num_shards=2)
    assert (reaction.created_at_ms, reaction.deleted) == (NOW, 0)
    assert cursors(state) == [
        ReactionCursor("r", shard, HEAD, 0, 1, 0, 0, 0, "", 0) for shard in (0, 1)
    ]
    assert state.get(TALLIES, "r") == Tally("r", 0, 0, 0, 0, 2)
    assert version(state) == 5
    assert state.entries == []


@pytest.mark.parametrize("start", [0, HEAD])
def test_one_that_asks_for_a_start_catches_up_from_there(start: int) -> None:
    state = world()
    register(state, from_global_seq=start)
    assert cursors(state) == [ReactionCursor("r", 0, start, 0, 0, 0, 0, 0, "", 0)]


def test_a_start_beyond_the_end_is_refused_by_its_name() -> None:
    state = world()
    with pytest.raises(InvalidArgument, match="10 is beyond the end of this journal, 9") as caught:
        register(state, from_global_seq=HEAD + 1)
    assert caught.value.field == "from_global_seq"
    assert not state.saves


def test_the_same_again_changes_nothing() -> None:
    state = world()
    first = register(state)
    state.saves.clear()
    assert register(state) == first
    assert register(state, from_global_seq=HEAD + 100) == first
    assert not state.saves


def test_other_settings_keep_cursors_and_age() -> None:
    state = world()
    register(state)
    before = cursors(state)
    state.now_ms = NOW + 100
    changed = register(state, predicate_cel="payload.x", from_global_seq=0)
    assert (changed.predicate_cel, changed.created_at_ms) == ("payload.x", NOW)
    assert cursors(state) == before
    assert version(state) == 6


def test_more_shards_stand_where_the_first_stands() -> None:
    state = world()
    register(state)
    stands = ReactionCursor("r", 0, 7, 40, 0, 5, 2, 1, "odd", 6)
    state.put_loaded(CURSORS, [stands])
    register(state, num_shards=3)
    assert cursors(state) == [
        stands,
        *(ReactionCursor("r", shard, 7, 40, 0, 0, 0, 0, "", 0) for shard in (1, 2)),
    ]
    assert state.get(TALLIES, "r") == Tally("r", 0, 0, 0, 0, 3)


def test_fewer_shards_leave_no_cursor_behind_but_are_remembered() -> None:
    state = world()
    register(state, num_shards=3)
    register(state, num_shards=1)
    assert [cursor.shard for cursor in cursors(state)] == [0]
    assert state.get(TALLIES, "r") == Tally("r", 0, 0, 0, 0, 3)


def test_stopping_takes_the_cursors_and_keeps_the_tally() -> None:
    state = world()
    register(state, num_shards=2)
    state.put_loaded(TALLIES, [Tally("r", 4, 1, 2, 99, 2)])
    assert deregister(state) is True
    assert cursors(state) == []
    stopped = state.get(REACTIONS, "r")
    assert stopped is not None
    assert stopped.deleted == 1
    assert state.get(TALLIES, "r") == Tally("r", 4, 1, 2, 99, 2)
    assert version(state) == 6
    assert deregister(state) is False
    assert version(state) == 6


def test_stopping_what_never_was_is_nothing() -> None:
    state = world()
    assert deregister(state) is False
    assert not state.saves
    assert not state.deletions


def test_after_a_stop_it_starts_anew() -> None:
    state = world()
    register(state, num_shards=2)
    deregister(state)
    state.now_ms, state.next_global_seq = NOW + 100, HEAD + 6
    anew = register(state)
    assert (anew.created_at_ms, anew.deleted) == (NOW + 100, 0)
    assert cursors(state) == [ReactionCursor("r", 0, HEAD + 5, 0, 1, 0, 0, 0, "", 0)]
    assert version(state) == 7


def test_a_book_that_is_not_there_begins() -> None:
    state = State(NOW, 1)
    register(state)
    assert version(state) == 1


def test_moves_refuse_names_before_they_are_queued() -> None:
    with pytest.raises(TapeError):
        DeregisterReaction("", LIMITS)
    with pytest.raises(TapeError):
        RegisterReaction(PLAIN._replace(reaction_id=""), LIMITS)


@pytest.mark.parametrize(
    ("text", "digest"),
    [
        ("", 0xCBF29CE484222325),
        ("a", 0xAF63DC4C8601EC8C),
        ("b", 0xAF63DF4C8601F1A5),
        ("c", 0xAF63DE4C8601EFF2),
        ("foo", 0xDCB27518FED9D577),
        ("foob", 0xDD120E790C2512AF),
        ("fooba", 0xCAC165AFA2FEF40A),
        ("foobar", 0x85944171F73967E8),
        ("chongo was here!\n", 0x46810940EFF5F915),
    ],
)
def test_fnv1a_is_the_published_one(text: str, digest: int) -> None:
    assert fnv1a(text) == digest


def test_a_hash_is_of_the_utf8() -> None:
    assert fnv1a("ä") == fnv1a("\u00e4") != fnv1a("a")


@given(run_id=st.text(max_size=9), subject=st.text(max_size=9), shards=st.integers(1, 1_024))
def test_a_run_stays_on_its_shard(run_id: str, subject: str, shards: int) -> None:
    shard = shard_of(run_id, subject, shards)
    assert 0 <= shard < shards
    assert shard == fnv1a(run_id or subject) % shards
    if run_id:
        assert shard == shard_of(run_id, subject + "x", shards)


def test_entries_without_a_run_spread_over_the_shards() -> None:
    counts = [0] * 8
    for number in range(8_000):
        counts[shard_of("", f"/tape/event/recorded/a/b/{number}", 8)] += 1
    assert min(counts) > 800
