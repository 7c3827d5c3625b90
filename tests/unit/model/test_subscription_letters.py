"""Dead letters: accepted after all, refused again, or dropped."""

from typing import Any

import pytest

from tape.errors import NotFound
from tape.model.accept_messages import PlannedMessage
from tape.model.run import RUNS
from tape.model.subscription import (
    ACCEPTED_PLACES,
    SUBSCRIPTION_DEAD_LETTERS,
    SubscriptionDeadLetter,
)
from tape.model.subscription_letters import (
    DropSubscriptionLetters,
    ReplayedLetter,
    ReplaySubscriptionLetter,
)
from tests.conformance.playing import IDS, LIMITS
from tests.conformance.subscribing import bad, plain, run_of
from tests.unit.model.subscription_world import World


def run_id(place: str) -> str:
    return run_of(place).name.run_id


def buried(*places: str) -> tuple[World, int, list[str]]:
    """A world with dead letters, the token, and the letters' ids."""
    world = World().active()
    token = world.take()
    world.accept(token, *(bad(place) for place in places))
    ids = [payload["id"] for payload in world.payloads("message_dead_lettered")]
    return world, token, ids


def letter(world: World, letter_id: str) -> SubscriptionDeadLetter | None:
    return world.state.get(SUBSCRIPTION_DEAD_LETTERS, ("s", letter_id))


def replay(world: World, letter_id: str, planned: PlannedMessage, **options: Any) -> ReplayedLetter:
    move = ReplaySubscriptionLetter(
        "s", letter_id, planned, ids=IDS.take(3), limits=LIMITS, **options
    )
    reply = world.play(move)
    assert isinstance(reply, ReplayedLetter)
    return reply


def drop(world: World, *letter_ids: str) -> int:
    return int(
        world.play(DropSubscriptionLetters("s", letter_ids, IDS.take(len(letter_ids)), LIMITS))
    )


def test_a_letter_becomes_the_run_that_it_could_not_be() -> None:
    world, token, (one,) = buried("a/1")
    assert replay(world, one, plain("a/1")) == (True, run_id("a/1"), ())
    assert letter(world, one) is None
    assert world.state.get(RUNS, run_id("a/1")) is not None
    (payload,) = world.payloads("message_replayed")
    assert payload == {
        "id": one, "message_id": "id of a/1", "place": "a/1", "run_id": run_id("a/1"),
    }  # fmt: skip
    row = world.listener()
    assert (row.replayed, row.accepted, row.dead_lettered) == (1, 0, 1)
    assert world.accept(token, plain("a/1")).messages == [("a/1", "redelivered", run_id("a/1"))]


def test_a_letter_that_is_gone_is_not_replayed_again() -> None:
    world, _token, (one,) = buried("a/1")
    replay(world, one, plain("a/1"))
    words = world.words
    assert replay(world, one, plain("a/1")) == (False, "", ())
    assert (world.words, world.listener().replayed) == (words, 1)


def test_a_letter_that_is_refused_again_stays_and_is_counted() -> None:
    world, _token, (one,) = buried("a/1")
    before = letter(world, one)
    assert before is not None
    words = world.words
    world.later(50)
    assert replay(world, one, bad("a/1", "too_deep")) == (False, "", ())
    assert letter(world, one) == before._replace(reason="too_deep", attempts=2)
    assert world.words == words
    assert world.listener().replayed == 0


def test_a_letter_whose_key_was_seen_since_belongs_to_the_first() -> None:
    world, token, (one,) = buried("a/1")
    world.accept(token, plain("a/2", "k"), window_ms=1_000)
    assert replay(world, one, plain("a/1", "k"), window_ms=1_000).run_id == run_id("a/2")
    assert world.state.get(RUNS, run_id("a/1")) is None
    assert world.words[-2:] == ["message_deduplicated", "message_replayed"]
    row = world.listener()
    assert (row.replayed, row.deduplicated) == (1, 1)
    place = world.state.get(ACCEPTED_PLACES, ("s", "a/1"))
    assert place is not None
    assert place.run_id == run_id("a/2")


def test_a_run_of_unknown_origin_leaves_the_letter() -> None:
    world, token, (one,) = buried("a/1")
    other = World().active()
    other.accept(other.take(), plain("a/1"))
    run = other.state.get(RUNS, run_id("a/1"))
    assert run is not None
    world.state.put_loaded(RUNS, [run])
    assert replay(world, one, plain("a/1")).unclear == (run_id("a/1"),)
    assert letter(world, one) is not None
    assert replay(world, one, plain("a/1"), own_runs={run_id("a/1")}).is_replayed
    assert world.accept(token, plain("a/1")).messages[0].run_id == run_id("a/1")


def test_letters_are_dropped_with_an_entry_each_and_stay_accepted() -> None:
    world, token, (one, two, three) = buried("a/1", "a/2", "a/3")
    assert drop(world, one, two, "nothing", one) == 2
    assert [letter(world, each) is None for each in (one, two, three)] == [True, True, False]
    assert world.payloads("message_dropped")[0] == {
        "id": one, "message_id": "id of a/1", "place": "a/1", "reason": "not_json",
    }  # fmt: skip
    assert len(world.payloads("message_dropped")) == 2
    assert drop(world, one, two) == 0
    assert world.outcomes(token, plain("a/1")) == ["redelivered"]


def test_letters_belong_to_a_subscription_that_is_there() -> None:
    for move in (
        ReplaySubscriptionLetter("s", "x", plain("a/1"), ids=IDS.take(3), limits=LIMITS),
        DropSubscriptionLetters("s", ["x"], IDS.take(1), LIMITS),
    ):
        with pytest.raises(NotFound):
            World().play(move)
