"""What becomes of messages: runs, and of the rest as little as possible."""

from typing import Any

import pytest

from tape.errors import InvalidArgument, NotFound, StaleLease, WrongState
from tape.model.accept_messages import AcceptOutcome, position_number
from tape.model.entry import Trace
from tape.model.message import SourceMessage
from tape.model.run import RUNS
from tape.model.subscription import (
    ACCEPTED_PLACES,
    SEEN_KEYS,
    SUBSCRIPTION_DEAD_LETTERS,
    AcceptedPlace,
    SeenKey,
)
from tests.conformance.subscribing import PULL, PUSH, bad, plain, run_of
from tests.unit.model.subscription_world import World

WINDOW: dict[str, Any] = {"window_ms": 1_000}


def counts(world: World, name: str = "s") -> dict[str, int]:
    row = world.listener(name)
    return {outcome.value: getattr(row, outcome.value) for outcome in AcceptOutcome}


def run_id(place: str) -> str:
    return run_of(place).name.run_id


def listening(**fields: Any) -> tuple[World, int]:
    world = World().active(PULL._replace(**fields))
    return world, world.take()


def test_a_message_becomes_a_run_and_its_place_is_known() -> None:
    world, token = listening()
    batch = world.accept(token, plain("a/1"), plain("a/2"))
    assert batch.messages == [
        ("a/1", "accepted", run_id("a/1")),
        ("a/2", "accepted", run_id("a/2")),
    ]
    assert world.words[-2:] == ["runnable", "runnable"]
    run = world.state.get(RUNS, run_id("a/1"))
    assert run is not None
    assert run.name == ("app", "subscription", "s", "a/1")
    assert (run.pool, run.lease_owner) == ("pool", "")
    place = world.state.get(ACCEPTED_PLACES, ("s", "a/1"))
    assert place == AcceptedPlace("s", "a/1", run_id("a/1"), 7, world.state.now_ms)
    assert counts(world) == {"accepted": 2, "redelivered": 0, "deduplicated": 0, "dead_lettered": 0}
    assert world.listener().last_accepted_at_ms == world.state.now_ms


def test_what_is_delivered_again_is_counted_and_nothing_else() -> None:
    world, token = listening()
    world.accept(token, plain("a/1"))
    words = world.words
    world.later(5)
    other_app = plain("a/1", run=run_of("a/1", app="another"))
    assert world.accept(token, other_app).messages == [("a/1", "redelivered", run_id("a/1"))]
    assert world.words == words
    assert counts(world)["redelivered"] == 1
    assert world.listener().last_accepted_at_ms == world.state.now_ms - 5


def test_two_of_one_place_in_a_batch_are_as_one_after_the_other() -> None:
    world, token = listening()
    assert world.outcomes(token, plain("a/1"), plain("a/1"), plain("a/2"), plain("a/1")) == [
        "accepted", "redelivered", "accepted", "redelivered",
    ]  # fmt: skip
    assert world.words.count("runnable") == 2


def test_a_key_within_the_window_belongs_to_the_first_with_it() -> None:
    world, token = listening()
    world.accept(token, plain("a/1", "k"), **WINDOW)
    world.later(999)
    batch = world.accept(token, plain("a/2", "k"), plain("a/3", "j"), **WINDOW)
    assert batch.messages == [
        ("a/2", "deduplicated", run_id("a/1")),
        ("a/3", "accepted", run_id("a/3")),
    ]
    (payload,) = world.payloads("message_deduplicated")
    assert payload == {
        "message_id": "id of a/2", "place": "a/2", "key": "k", "run_id": run_id("a/1"),
    }  # fmt: skip
    assert world.state.get(RUNS, run_id("a/2")) is None
    words = world.words
    assert world.outcomes(token, plain("a/2", "k"), **WINDOW) == ["redelivered"]
    assert world.words == words  # its place is known, so it is quiet from now on
    assert counts(world) == {"accepted": 2, "redelivered": 1, "deduplicated": 1, "dead_lettered": 0}


def test_two_of_one_key_in_a_batch_are_as_one_after_the_other() -> None:
    world, token = listening()
    assert world.outcomes(token, *(plain(f"a/{n}", "k") for n in range(3)), **WINDOW) == [
        "accepted", "deduplicated", "deduplicated",
    ]  # fmt: skip


def test_after_the_window_a_key_is_new_again() -> None:
    world, token = listening()
    world.accept(token, plain("a/1", "k"), **WINDOW)
    world.later(1_000)
    assert world.outcomes(token, plain("a/2", "k"), **WINDOW) == ["accepted"]
    now = world.state.now_ms
    row = world.state.get(SEEN_KEYS, ("s", "", "k"))
    assert row == SeenKey("s", "", "k", run_id("a/2"), "a/2", now, now + 1_000)
    world.later(999)
    assert world.outcomes(token, plain("a/3", "k"), **WINDOW) == ["deduplicated"]


def test_a_window_does_not_slide() -> None:
    world, token = listening()
    world.accept(token, plain("a/1", "k"), **WINDOW)
    for n in range(2, 12):
        world.later(100)
        outcome = "deduplicated" if n < 11 else "accepted"
        assert world.outcomes(token, plain(f"a/{n}", "k"), **WINDOW) == [outcome]


@pytest.mark.parametrize(("declared_now", "lasts"), [(200, 200), (5_000, 1_000)])
def test_another_window_may_shorten_one_and_never_lengthens_it(
    declared_now: int, lasts: int
) -> None:
    world, token = listening()
    world.accept(token, plain("a/1", "k"), **WINDOW)
    world.later(lasts - 1)
    assert world.outcomes(token, plain("a/2", "k"), window_ms=declared_now) == ["deduplicated"]
    world.later(1)
    assert world.outcomes(token, plain("a/3", "k"), window_ms=declared_now) == ["accepted"]


def test_a_message_whose_place_is_forgotten_is_no_repeat_of_itself() -> None:
    world, token = listening()
    world.accept(token, plain("a/1", "k"), **WINDOW)
    world.state._delete(ACCEPTED_PLACES, ("s", "a/1"))
    words = world.words
    batch = world.accept(token, plain("a/1", "k"), plain("a/2", "k"), **WINDOW)
    assert [message.outcome for message in batch.messages] == ["redelivered", "deduplicated"]
    assert {message.run_id for message in batch.messages} == {run_id("a/1")}
    assert world.words == [*words, "message_deduplicated"]
    assert world.state.get(ACCEPTED_PLACES, ("s", "a/1")) is not None


def test_a_message_with_a_run_is_older_than_any_window() -> None:
    """Its place is forgotten, the window of its key has passed: neither does it open another, nor
    is it a repeat of who opened one since."""
    world, token = listening()
    own = {"own_runs": {run_id("a/1")}, **WINDOW}
    world.accept(token, plain("a/1", "k"), **WINDOW)
    world.state._delete(ACCEPTED_PLACES, ("s", "a/1"))
    world.later(1_000)
    assert world.accept(token, plain("a/1", "k"), **WINDOW).unclear == [run_id("a/1")]
    assert world.outcomes(token, plain("a/1", "k"), **own) == ["redelivered"]
    assert world.outcomes(token, plain("a/2", "k"), **WINDOW) == ["accepted"]
    world.state._delete(ACCEPTED_PLACES, ("s", "a/1"))
    words = world.words
    again = world.accept(token, plain("a/1", "k"), plain("a/3", "k"), **own)
    assert again.messages == [
        ("a/1", "redelivered", run_id("a/1")),
        ("a/3", "deduplicated", run_id("a/2")),
    ]
    assert world.words == [*words, "message_deduplicated"]


def test_without_a_window_keys_mean_nothing() -> None:
    world, token = listening()
    assert world.outcomes(token, plain("a/1", "k"), plain("a/2", "k")) == ["accepted", "accepted"]
    assert world.state.get(SEEN_KEYS, ("s", "", "k")) is None
    assert world.outcomes(token, plain("a/3"), plain("a/4"), **WINDOW) == ["accepted", "accepted"]


def test_keys_belong_to_a_subscription() -> None:
    world, token = listening()
    world.accept(token, plain("a/1", "k"), **WINDOW)
    world.active(PUSH)
    mine = plain("a/1", "k", run=run_of("a/1", name="p"))
    assert world.outcomes(0, mine, name="p", **WINDOW) == ["accepted"]


def test_what_cannot_be_a_run_is_a_dead_letter_once() -> None:
    world, token = listening()
    assert world.accept(token, bad("a/1"), plain("a/2"), bad("a/1")).messages == [
        ("a/1", "dead_lettered", ""),
        ("a/2", "accepted", run_id("a/2")),
        ("a/1", "redelivered", ""),
    ]
    ((key, letter),) = world.state.saves[SUBSCRIPTION_DEAD_LETTERS].items()
    assert key == ("s", letter[1])
    (payload,) = world.payloads("message_dead_lettered")
    assert payload == {
        "id": letter[1], "message_id": "id of a/1", "place": "a/1", "reason": "not_json",
        "detail": "why", "attempts": 1,
    }  # fmt: skip
    assert (letter[7], letter[-1]) == (world.state.now_ms, "e2==")
    assert world.outcomes(token, bad("a/1")) == ["redelivered"]
    assert counts(world) == {"accepted": 1, "redelivered": 2, "deduplicated": 0, "dead_lettered": 1}


def test_directives_are_told_with_the_run_they_made() -> None:
    world, token = listening()
    audit = {"run_id": run_id("a/1"), "applied": []}
    trace = Trace("ab" * 16, "", "cd" * 8)
    told = plain("a/1", audit=audit, run=run_of("a/1")._replace(trace=trace))
    world.accept(token, told, plain("a/2"))
    assert world.words[-3:] == ["runnable", "message_directives_applied", "runnable"]
    assert world.payloads("message_directives_applied") == [audit]
    assert [draft.trace_id for draft in world.state.entries[-3:]] == ["ab" * 16] * 2 + [""]
    words = world.words
    world.accept(token, told)
    assert world.words == words


def test_a_run_of_unknown_origin_stops_the_batch_and_changes_nothing() -> None:
    world, token = listening()
    world.state.put_loaded(RUNS, [_foreign("a/2")])
    before, words = world.listener(), world.words
    batch = world.accept(token, plain("a/1"), plain("a/2"), plain("a/3"))
    assert (batch.messages, batch.unclear) == ([], [run_id("a/2")])
    assert (world.listener(), world.words) == (before, words)
    assert world.state.get(ACCEPTED_PLACES, ("s", "a/1")) is None
    # It turns out to be the message's own, of before its place was forgotten.
    batch = world.accept(token, plain("a/1"), plain("a/2"), own_runs={run_id("a/2")})
    assert [message.outcome for message in batch.messages] == ["accepted", "redelivered"]
    assert world.outcomes(token, plain("a/2")) == ["redelivered"]
    place = world.state.get(ACCEPTED_PLACES, ("s", "a/2"))
    assert place is not None
    assert place.run_id == run_id("a/2")


def _foreign(place: str) -> Any:
    other = World().active()
    other.accept(other.take(), plain(place))
    return other.state.get(RUNS, run_id(place))


def test_plans_by_the_rules_of_a_namesake_are_outdated() -> None:
    world, token = listening()
    created = world.subscription().created_at_ms
    batch = world.accept(token, plain("a/1"), registered_at_ms=created - 1)
    assert (batch.messages, batch.outdated) == ([], True)
    assert world.state.get(RUNS, run_id("a/1")) is None
    assert world.outcomes(token, plain("a/1"), registered_at_ms=created) == ["accepted"]


@pytest.mark.parametrize(
    ("state", "may"),
    [("registered", False), ("active", True), ("paused", True), ("deactivated", False)],
)
def test_a_state_says_whether_anything_is_accepted(state: str, may: bool) -> None:
    world, token = listening()
    moves = {"paused": "pause", "deactivated": "deactivate"}
    if state in moves:
        world.move(moves[state])
    elif state == "registered":
        world = World()
        world.register()
    if may:
        assert world.outcomes(token, plain("a/1")) == ["accepted"]
        return
    with pytest.raises(WrongState, match=f"is {state}") as refused:
        world.accept(token, plain("a/1"))
    assert refused.value.state == state


def test_a_paused_push_takes_nothing() -> None:
    world = World().active(PUSH)
    mine = plain("a/1", run=run_of("a/1", name="p"))
    assert world.outcomes(0, mine, name="p") == ["accepted"]
    world.move("pause", "p")
    with pytest.raises(WrongState):
        world.accept(0, mine, name="p")


def test_a_token_belongs_to_what_is_pulled() -> None:
    world, token = listening()
    world.active(PUSH)
    with pytest.raises(StaleLease):
        world.accept(0, plain("a/1"))
    with pytest.raises(InvalidArgument) as refused:
        world.accept(token, plain("a/1"), name="p")
    assert refused.value.field == "fencing_token"
    with pytest.raises(NotFound):
        world.accept(token, plain("a/1"), name="nobody")


@pytest.mark.parametrize(
    ("source", "position", "number"),
    [
        ("nats", "15", 15),
        ("kafka", "0", 0),
        ("file", str(2**63 - 1), 2**63 - 1),
        ("nats", str(2**63), -1),
        ("nats", "1" * 30, -1),
        ("nats", "015", -1),
        ("nats", "-1", -1),
        ("nats", "", -1),
        ("nats", "٣", -1),
        ("pubsub", "15", -1),
        ("webhook", "15", -1),
    ],
)
def test_a_position_is_a_number_where_the_source_counts(
    source: str, position: str, number: int
) -> None:
    assert position_number(SourceMessage(source, "o", position, b"")) == number
