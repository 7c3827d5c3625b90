"""Tasks: their ids, when they are tried again, and what each move does to rows and journal."""

import itertools
from collections.abc import Sequence
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tape.errors import InvalidArgument, NotFound, NotHeld, TapeError
from tape.model.entry import EntryDraft
from tape.model.move import EntryPlace, State
from tape.model.reaction import REACTIONS, TALLIES, HandlerKind, Reaction, Tally
from tape.model.task import (
    BACKOFF_MOST_MS,
    ENDED,
    ERROR_CHARACTERS,
    QUEUE,
    SOURCES,
    DropDeadLetters,
    EndedTask,
    ExpireTasks,
    FailTasks,
    QueuedTask,
    ReplayDeadLetters,
    SourceEntry,
    TaskFailure,
    TaskKey,
    TaskStatus,
    backoff_ms,
    is_used_up,
    parse_task_id,
)
from tape.settings import Limits

LIMITS = Limits()
NOW = 1_000
KEY = TaskKey("r", 0, 7)
IDS = map(str, itertools.count())
PENDING, CLAIMED, DONE, FAILED, DLQ = TaskStatus


def a_reaction(**settings: Any) -> Reaction:
    plain = Reaction(
        "r", "", "/tape/**", "", HandlerKind.TASK, "", "", 9, 0, 0, 5, 100, 5, 1, "server", 1, 0
    )
    return plain._replace(**settings)


def queued(key: TaskKey = KEY, **fields: Any) -> QueuedTask:
    """In the hands of `a` for the second time."""
    plain = QueuedTask(*key, CLAIMED, 2, 0, "a", NOW + 500, NOW - 100, "", "", 0, NOW - 200)
    return plain._replace(**fields)


def letter(key: TaskKey = KEY, **fields: Any) -> EndedTask:
    plain = EndedTask(*key, DLQ, 5, "a", "broken", NOW - 200, NOW - 10)
    return plain._replace(**fields)


def world(
    *tasks: QueuedTask,
    ended: Sequence[EndedTask] = (),
    reaction: Reaction | None = None,
    tally: Tally | None = None,
) -> State:
    state = State(NOW, 100)
    state.put_loaded(QUEUE, tasks)
    state.put_loaded(ENDED, ended)
    state.put_loaded(REACTIONS, [reaction or a_reaction()])
    state.put_loaded(SOURCES, [SourceEntry(7, "/tape/event/x", "ab", "cd", "")])
    in_hand = sum(task.status == CLAIMED for task in tasks)
    dead = sum(task.status == DLQ for task in ended)
    state.put_loaded(TALLIES, [tally or Tally("r", len(tasks), in_hand, dead, 77, 1)])
    return state


def play(state: State, move: Any) -> Any:
    decision = move.decide(state)
    state.apply(decision)
    return decision.reply(EntryPlace(100, NOW))


def fail(
    state: State, *keys: TaskKey, owner: str = "a", error: str = "no", **fields: Any
) -> list[TaskStatus | TapeError]:
    failures = [TaskFailure(key, error, **fields) for key in keys]
    ids = [next(IDS) for _ in keys]
    outcomes: list[TaskStatus | TapeError] = play(state, FailTasks(owner, failures, ids, LIMITS))
    return outcomes


def ids_for(keys: Sequence[TaskKey]) -> list[str]:
    return [next(IDS) for _ in keys]


def counts(state: State) -> tuple[int, int, int]:
    tally = state.get(TALLIES, "r")
    assert tally is not None
    assert (tally.next_free_us, tally.shards) == (77, 1)
    return tally.queued, tally.in_flight, tally.dead_letters


def verbs(entries: Sequence[EntryDraft]) -> list[str]:
    return [entry.subject.split("/")[3] for entry in entries]


class TestIds:
    @given(
        reaction_id=st.text(
            st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1
        ),
        shard=st.integers(0, 2**31 - 1),
        source=st.integers(0, 10**18 - 1),
    )
    def test_an_id_is_read_back_as_it_was_written(
        self, reaction_id: str, shard: int, source: int
    ) -> None:
        key = TaskKey(reaction_id, shard, source)
        assert parse_task_id(key.task_id) == key

    def test_a_reaction_may_have_slashes_of_its_own(self) -> None:
        assert parse_task_id("a/b/0/1/2") == TaskKey("a/b/0", 1, 2)

    @pytest.mark.parametrize(
        "text",
        ["r", "r/0", "/0/1", "r/0/", "r//1", "r/x/1", "r/0/-1", "r/+0/1", "r/0/1 ",
         "r/0/\u0661", "a\0b/0/1", "r/0/" + "9" * 19],
    )  # fmt: skip
    def test_what_is_no_id_names_no_task(self, text: str) -> None:
        with pytest.raises(NotFound, match="REACTION_ID/SHARD/SOURCE_GLOBAL_SEQ"):
            parse_task_id(text)
        with pytest.raises(InvalidArgument, match="REACTION_ID/SHARD/SOURCE_GLOBAL_SEQ") as caught:
            parse_task_id(text, field="after_task_id")
        assert caught.value.field == "after_task_id"

    @pytest.mark.parametrize("text", ["", "\ud800/0/1", "r/2147483648/1"])
    def test_what_cannot_be_an_id_is_refused_by_its_name(self, text: str) -> None:
        with pytest.raises(InvalidArgument) as caught:
            parse_task_id(text)
        assert caught.value.field == "task_id"


class TestRetries:
    def test_pauses_double_up_to_a_day(self) -> None:
        reaction = a_reaction(retry_backoff_ms=100)
        assert [backoff_ms(reaction, n) for n in (1, 2, 3, 4)] == [100, 200, 400, 800]
        assert backoff_ms(reaction, 30) == BACKOFF_MOST_MS
        assert backoff_ms(reaction, 10_000) == BACKOFF_MOST_MS
        assert backoff_ms(a_reaction(retry_backoff_ms=0), 10_000) == 0

    @given(attempts=st.integers(1, 10_000), start=st.integers(0, BACKOFF_MOST_MS))
    def test_a_pause_is_never_shorter_than_the_one_before(self, attempts: int, start: int) -> None:
        reaction = a_reaction(retry_backoff_ms=start)
        assert backoff_ms(reaction, attempts) <= backoff_ms(reaction, attempts + 1)
        assert backoff_ms(reaction, attempts + 1) <= BACKOFF_MOST_MS

    @pytest.mark.parametrize(
        ("retry_max", "dlq_after_n", "attempts", "used_up"),
        [
            (5, 5, 4, False), (5, 5, 5, True),  # the number of attempts comes first
            (5, 9, 5, False), (5, 9, 6, True),  # so many retries after the first attempt
            (0, 9, 1, True), (9, 1, 1, True),
            (5, 0, 5, False), (5, 0, 6, True), (0, 0, 1, True),
        ],
    )  # fmt: skip
    def test_when_attempts_are_used_up(
        self, retry_max: int, dlq_after_n: int, attempts: int, used_up: bool
    ) -> None:
        reaction = a_reaction(retry_max=retry_max, dlq_after_n=dlq_after_n)
        assert is_used_up(reaction, attempts) is used_up


class TestFailing:
    def test_it_waits_longer_each_time(self) -> None:
        state = world(queued())
        assert fail(state, KEY) == [PENDING]
        assert state.get(QUEUE, KEY) == queued(
            status=PENDING, next_attempt_at_ms=NOW + 200, last_error="no"
        )
        assert counts(state) == (1, 0, 0)
        assert state.entries == []

    def test_used_up_it_is_a_dead_letter(self) -> None:
        state = world(queued(attempts=5))
        assert fail(state, KEY, error="broken") == [DLQ]
        assert state.get(QUEUE, KEY) is None
        assert state.get(ENDED, KEY) == letter(completed_at_ms=NOW)
        assert counts(state) == (0, 0, 1)
        (entry,) = state.entries
        assert (entry.kind, entry.subject) == ("task", "/tape/task/dead_lettered/r/r%2F0%2F7")
        assert (entry.trace_id, entry.span_id, entry.parent_span_id) == ("ab", "", "cd")
        assert orjson.loads(entry.payload_json) == {
            "task_id": "r/0/7", "reaction_id": "r", "shard": 0, "source_global_seq": 7,
            "subject": "/tape/event/x", "attempts": 5, "error": "broken",
        }  # fmt: skip

    def test_without_dead_letters_it_has_failed(self) -> None:
        state = world(queued(attempts=6), reaction=a_reaction(dlq_after_n=0))
        assert fail(state, KEY) == [FAILED]
        assert verbs(state.entries) == ["failed"]
        assert counts(state) == (0, 0, 0)

    def test_refused_for_good_no_attempt_is_left(self) -> None:
        assert fail(world(queued(attempts=1)), KEY, permanent=True) == [DLQ]
        never = a_reaction(dlq_after_n=0)
        assert fail(world(queued(attempts=1), reaction=never), KEY, permanent=True) == [FAILED]

    def test_given_back_the_attempt_does_not_count(self) -> None:
        state = world(queued(attempts=5, last_error="before"))
        assert fail(state, KEY, error="", given_back=True) == [PENDING]
        assert state.get(QUEUE, KEY) == queued(
            status=PENDING, attempts=4, next_attempt_at_ms=NOW, last_error="before"
        )
        assert counts(state) == (1, 0, 0)

    def test_an_error_is_bounded_and_can_be_stored(self) -> None:
        state = world(queued())
        fail(state, KEY, error="\ud800\0" + "x" * 9_000)
        task = state.get(QUEUE, KEY)
        assert task is not None
        assert task.last_error.startswith("?\\0xx")
        assert len(task.last_error) == ERROR_CHARACTERS

    def test_after_its_lease_ran_out_it_is_still_its_holders(self) -> None:
        assert fail(world(queued(lease_expires_at_ms=NOW - 1)), KEY) == [PENDING]

    def test_said_twice_it_counts_once(self) -> None:
        state = world(queued())
        assert fail(state, KEY, KEY) == [PENDING, PENDING]
        before = state.get(QUEUE, KEY)
        assert fail(state, KEY) == [PENDING]
        assert state.get(QUEUE, KEY) == before
        assert counts(state) == (1, 0, 0)

    def test_what_ended_stays_as_it_ended(self) -> None:
        state = world(ended=[letter(status=DONE)])
        assert fail(state, KEY, owner="anyone") == [DONE]
        assert not state.saves

    def test_it_is_not_a_strangers_to_fail(self) -> None:
        state = world(queued())
        strange, unknown = fail(state, KEY, TaskKey("r", 0, 8), owner="b")
        assert isinstance(strange, NotHeld)
        assert str(strange) == "task 'r/0/7' was last claimed by another owner than 'b'"
        assert isinstance(unknown, NotFound)
        assert "r/0/8" in str(unknown)
        assert not state.saves

    def test_an_owner_has_a_name(self) -> None:
        with pytest.raises(InvalidArgument) as caught:
            FailTasks("", [], [], LIMITS)
        assert caught.value.field == "owner"

    def test_each_of_many_has_its_own_outcome(self) -> None:
        other = TaskKey("r", 0, 8)
        state = world(queued(attempts=5), queued(other))
        assert fail(state, other, KEY) == [PENDING, DLQ]
        assert counts(state) == (1, 0, 1)
        payload = orjson.loads(state.entries[0].payload_json)
        assert payload["task_id"] == KEY.task_id

    def test_of_a_reaction_nobody_knows_it_is_given_back(self) -> None:
        key = TaskKey("gone", 0, 7)
        state = world(queued(key))
        assert fail(state, key) == [PENDING]
        task = state.get(QUEUE, key)
        assert task is not None
        assert task.attempts == 1

    def test_its_source_may_be_gone(self) -> None:
        key = TaskKey("r", 0, 6)
        state = world(queued(key, attempts=5))
        assert fail(state, key) == [DLQ]
        assert orjson.loads(state.entries[0].payload_json)["subject"] == ""

    def test_it_names_all_it_looks_at(self) -> None:
        move = FailTasks("a", [TaskFailure(KEY, "")], ["1"], LIMITS)
        tables = {QUEUE, ENDED, SOURCES, REACTIONS, TALLIES}
        assert {need.table for need in move.needs()} == tables


class TestExpiring:
    def expire(self, state: State, *keys: TaskKey) -> Any:
        return play(state, ExpireTasks(keys, ids_for(keys)))

    @pytest.mark.parametrize(("expires", "count"), [(NOW - 1, 1), (NOW, 1), (NOW + 1, 0)])
    def test_only_a_lease_that_ran_out(self, expires: int, count: int) -> None:
        state = world(queued(lease_expires_at_ms=expires))
        assert self.expire(state, KEY, KEY) == count
        assert counts(state) == (1, 1 - count, 0)

    def test_it_is_due_at_once_and_the_attempt_counts(self) -> None:
        state = world(queued(lease_expires_at_ms=0))
        self.expire(state, KEY)
        assert state.get(QUEUE, KEY) == queued(
            status=PENDING, next_attempt_at_ms=NOW, last_error="the lease of a ran out",
            lease_expires_at_ms=0,
        )  # fmt: skip

    def test_one_that_takes_its_dispatcher_down_is_a_dead_letter(self) -> None:
        state = world(queued(attempts=5, lease_expires_at_ms=0))
        assert self.expire(state, KEY) == 1
        assert verbs(state.entries) == ["dead_lettered"]
        assert counts(state) == (0, 0, 1)

    def test_what_waits_or_ended_or_never_was_does_not_expire(self) -> None:
        pending = TaskKey("r", 0, 8)
        state = world(
            queued(pending, status=PENDING, lease_expires_at_ms=0), ended=[letter(status=DONE)]
        )
        assert self.expire(state, KEY, pending, TaskKey("r", 0, 9)) == 0
        assert not state.saves


class TestDeadLetters:
    def test_replayed_its_attempts_are_forgotten(self) -> None:
        state = world(ended=[letter()])
        assert play(state, ReplayDeadLetters([KEY, KEY], ids_for([KEY, KEY]))) == 1
        assert state.get(ENDED, KEY) is None
        assert state.get(QUEUE, KEY) == QueuedTask(
            *KEY, PENDING, 0, NOW, "", 0, 0, "broken", "", 0, NOW - 200
        )
        assert counts(state) == (1, 0, 0)
        assert verbs(state.entries) == ["replayed"]
        assert orjson.loads(state.entries[0].payload_json)["attempts"] == 5

    def test_dropped_it_stays_as_failed(self) -> None:
        state = world(ended=[letter()])
        assert play(state, DropDeadLetters([KEY], ids_for([KEY]))) == 1
        assert state.get(ENDED, KEY) == letter(status=FAILED, completed_at_ms=NOW)
        assert counts(state) == (0, 0, 0)
        assert verbs(state.entries) == ["dropped"]
        assert orjson.loads(state.entries[0].payload_json)["error"] == "broken"

    @pytest.mark.parametrize("move", [ReplayDeadLetters, DropDeadLetters])
    @pytest.mark.parametrize("status", [DONE, FAILED])
    def test_what_is_no_dead_letter_is_left_alone(self, move: Any, status: TaskStatus) -> None:
        other = TaskKey("r", 0, 8)
        state = world(queued(other), ended=[letter(status=status)])
        keys = [KEY, other]
        assert play(state, move(keys, ids_for(keys))) == 0
        assert not state.saves
        assert state.entries == []

    @pytest.mark.parametrize("move", [ReplayDeadLetters, DropDeadLetters])
    def test_what_does_not_exist_refuses_them_all(self, move: Any) -> None:
        state = world(ended=[letter()])
        keys = [KEY, TaskKey("r", 0, 9)]
        with pytest.raises(NotFound, match="r/0/9"):
            play(state, move(keys, ids_for(keys)))
        assert not state.saves

    def test_a_later_move_sees_an_earlier_one(self) -> None:
        state = world(queued(attempts=5))
        assert fail(state, KEY) == [DLQ]
        assert play(state, ReplayDeadLetters([KEY], ids_for([KEY]))) == 1
        (outcome,) = fail(state, KEY)
        assert isinstance(outcome, NotHeld)
        assert play(state, DropDeadLetters([KEY], ids_for([KEY]))) == 0
        assert counts(state) == (1, 0, 0)
        assert KEY not in state.saves.get(ENDED, {})
        assert KEY in state.saves[QUEUE]
