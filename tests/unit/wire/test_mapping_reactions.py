"""Reactions and tasks come back from the wire as they were; nonsense is refused by name."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tape.bus.reactions import ReactionOperations
from tape.calls.reactions import new_from_wire
from tape.errors import InvalidArgument, NotFound, NotHeld, TapeError
from tape.model.entry import Entry
from tape.model.reaction import NewReaction, Reaction, ReactionState
from tape.model.task import Task, TaskOutcome, TaskStatus
from tape.ports.tasks import Claim, Want
from tape.wire import mapping_tasks
from tape.wire.v1 import tape_pb2 as pb
from tests.unit.wire.by_row import answered, asked, sent, told

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
int64s = st.integers(-(2**63), 2**63 - 1)
int32s = st.integers(-(2**31), 2**31 - 1)
INT32 = (
    "handler_kind", "max_concurrency", "rate_limit_per_s", "debounce_ms", "retry_max",
    "retry_backoff_ms", "dlq_after_n", "num_shards", "status", "attempts", "schema_version",
    "shard", "most",
)  # fmt: skip
SPECIAL = dict.fromkeys(INT32, int32s) | {
    "deleted": st.integers(0, 1),
    "from_global_seq": st.none() | int64s,
    "engine": st.sampled_from(["server", "spark", "other"]),
}


def rows(row: type, **special: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    by_type = {str: texts, int: int64s, bool: st.booleans()}
    chosen = SPECIAL | special
    fields = {
        name: chosen[name] if name in chosen else by_type[kind]
        for name, kind in row.__annotations__.items()
    }
    return st.builds(row, **fields)


reactions = rows(Reaction)
states = rows(ReactionState, reaction=reactions)
tasks = rows(Task, entry=rows(Entry)).map(
    lambda task: task._replace(entry=task.entry._replace(global_seq=task.source_global_seq))
)


@given(rows(NewReaction))
def test_what_is_asked_for(new: NewReaction) -> None:
    assert new_from_wire(asked(ReactionOperations.register_reaction, new)) == new


@given(reactions, st.lists(states, max_size=3))
def test_reactions_and_their_progress(reaction: Reaction, listed: list[ReactionState]) -> None:
    message = answered(ReactionOperations.register_reaction, reaction)
    assert told(ReactionOperations.register_reaction, message) == reaction
    response = answered(ReactionOperations.list_reactions, listed)
    assert told(ReactionOperations.list_reactions, response) == listed
    assert [each.reaction_id for each in response.progress] == [
        state.reaction.reaction_id for state in listed
    ]


def test_an_absent_setting_has_its_default() -> None:
    bare = pb.Reaction(reaction_id="r", subject_pattern="/**", handler_kind=pb.HANDLER_KIND_TASK)
    assert new_from_wire(sent(bare)) == NewReaction("r", "/**", 2)


def test_an_explicit_nought_is_nought() -> None:
    names = ("rate_limit_per_s", "debounce_ms", "retry_max", "retry_backoff_ms", "dlq_after_n")
    message = pb.Reaction(subject_pattern="/**", handler_kind=pb.HANDLER_KIND_TASK)
    for name in (*names, "max_concurrency", "num_shards", "from_global_seq"):
        setattr(message, name, 0)
    new = new_from_wire(sent(message))
    assert [getattr(new, name) for name in names] == [0] * 5
    assert (new.max_concurrency, new.num_shards, new.from_global_seq) == (0, 0, 0)


def test_one_start_only() -> None:
    message = pb.Reaction(bootstrap_from_head=True)
    assert new_from_wire(message).from_global_seq is None
    message.from_global_seq = 0
    with pytest.raises(InvalidArgument) as refused:
        new_from_wire(message)
    assert refused.value.field == "bootstrap_from_head"


@given(tasks)
def test_tasks(task: Task) -> None:
    message = sent(mapping_tasks.task_to_wire(task))
    assert mapping_tasks.task_from_wire(message) == task
    assert mapping_tasks.tasks_from_wire([message]) == [task]
    entry = task.entry
    assert (message.task_id, message.source_run_id) == (task.task_id, entry.run_id)
    assert (message.trace_id, message.parent_span_id) == (entry.trace_id, entry.span_id)
    assert (message.subject, message.payload_json) == (entry.subject, entry.payload_json)


@given(texts, int64s, st.lists(rows(Want), min_size=1, max_size=3), int32s)
def test_claims(owner: str, lease_ms: int, wants: list[Want], wait_ms: int) -> None:
    claim = Claim(owner, lease_ms, wants)
    request = sent(mapping_tasks.claim_to_wire(claim, wait_ms))
    assert mapping_tasks.claim_from_wire(request) == claim
    assert request.wait_ms == wait_ms


def test_a_claim_may_name_its_one_reaction_itself() -> None:
    request = pb.ClaimTasksRequest(reaction_id="r", shard=-1, owner="o", lease_ms=5, max=7)
    assert mapping_tasks.claim_from_wire(request) == Claim("o", 5, [Want("r", -1, 7)])


VERDICTS = st.sampled_from(["done", "failed", "refused", "given_back"])


@given(texts, st.lists(st.builds(TaskOutcome, texts, VERDICTS, texts, texts), max_size=4))
def test_outcomes(owner: str, outcomes: list[TaskOutcome]) -> None:
    (request,) = map(sent, mapping_tasks.outcomes_to_wire(owner, outcomes))
    assert request.owner == owner
    assert [TaskOutcome(*each) for each in mapping_tasks.outcomes_from_wire(request)] == outcomes


def test_tracebacks_that_are_too_much_for_one_request_go_in_several() -> None:
    long = mapping_tasks.REQUEST_CHARACTERS // 3
    outcomes = [TaskOutcome(f"r/0/{n}", "failed", "no", "x" * long) for n in range(5)]
    requests = mapping_tasks.outcomes_to_wire("o", outcomes)
    assert [len(request.outcomes) for request in requests] == [2, 2, 1]
    assert {request.owner for request in requests} == {"o"}
    told = [each for request in requests for each in mapping_tasks.outcomes_from_wire(request)]
    assert told == outcomes


@pytest.mark.parametrize("number", [0, 5, -1, 2**31 - 1])
def test_a_verdict_nobody_knows(number: int) -> None:
    request = pb.SettleTasksRequest(outcomes=[pb.TaskOutcome(verdict=pb.VERDICT_DONE)])
    request.outcomes.add().verdict = number  # type: ignore[assignment]
    with pytest.raises(InvalidArgument) as refused:
        mapping_tasks.outcomes_from_wire(sent(request))
    assert refused.value.field == "outcomes[1].verdict"
    with pytest.raises(InvalidArgument, match="'lost' is not one of done, failed"):
        mapping_tasks.outcomes_to_wire("o", [("t", "lost", "", "")])  # type: ignore[list-item]


def test_what_became_of_tasks() -> None:
    results: list[TaskStatus | TapeError] = [
        *TaskStatus,
        NotFound("no task has the id 'a/0/1'"),
        NotHeld(),
        InvalidArgument("no", field="f"),
    ]
    back = mapping_tasks.settled_from_wire(sent(mapping_tasks.settled_to_wire(results)))
    assert back[:5] == list(TaskStatus)
    for was, is_now in zip(results[5:], back[5:], strict=True):
        assert (type(is_now), str(is_now)) == (type(was), str(was))


def test_an_answer_of_a_newer_server_is_an_error_and_no_crash() -> None:
    response = pb.SettleTasksResponse(tasks=[pb.SettledTask(), pb.SettledTask(reason="NEWER")])
    response.tasks[0].status = 9  # type: ignore[assignment]
    assert [type(each) for each in mapping_tasks.settled_from_wire(response)] == [TapeError] * 2
