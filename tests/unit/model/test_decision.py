"""Decisions: recorded once for each ordinal, and found there again."""

from dataclasses import replace

import pytest

from tape.errors import InvalidArgument, StaleLease, TooLarge
from tape.model.decision import DECISIONS, DecisionPlace, RecordDecision
from tape.model.move import Need
from tape.model.run_end import CancelRun
from tests.unit.model.run_world import LIMITS, NOW, RUN, driven, faulty, refused, unchanged


def test_the_journal_holds_it_and_its_place_is_kept() -> None:
    world = driven()
    place = world.drive(RecordDecision(3, "gpt", '{"q": 1}', '["a"]', "because", "p1"))
    assert place == DecisionPlace(RUN, 3, 2, NOW) == world.get(DECISIONS, (RUN, 3))
    draft = world.entries[-1]
    assert (draft.kind, draft.seq) == ("decision", 2)
    assert draft.subject == f"/tape/decision/recorded/{RUN}/3"
    assert world.payload() == {
        "decision_index": 3,
        "model": "gpt",
        "request": {"q": 1},
        "response": ["a"],
        "rationale": "because",
        "policy_version": "p1",
    }


def test_the_first_one_counts() -> None:
    world = driven()
    place = world.drive(RecordDecision(0, "m", "1", "1"))
    world.now_ms += 5
    with unchanged(world):
        assert world.drive(RecordDecision(0, "m", "1", "1")) == place
        assert world.drive(RecordDecision(0, "other", "2", "2")) == place


def test_another_driver_finds_what_the_one_before_decided() -> None:
    world = driven()
    place = world.drive(RecordDecision(0, "m"))
    world.begin("a")
    with unchanged(world):
        assert world.extend(2, RecordDecision(0, "m")).replies == [place]
    with refused(world, StaleLease):
        world.extend(1, RecordDecision(0, "m"))


def test_one_that_is_to_be_cancelled_may_still_decide() -> None:
    world = driven()
    world.change(CancelRun("enough", ""))
    assert world.drive(RecordDecision(0, "m")).seq == 3


def test_what_it_looks_at_and_weighs() -> None:
    write = RecordDecision(7, "m", "12", "345", "6789")
    assert list(write.needs(RUN)) == [Need(DECISIONS, (RUN, 7))]
    assert write.size == 9


def test_json_that_is_left_out_is_null() -> None:
    checked = RecordDecision(0, "m", "", "").checked(LIMITS)
    assert (checked.request_json, checked.response_json) == ("null", "null")


@pytest.mark.parametrize(
    ("write", "field"),
    [
        (RecordDecision(-1, "m"), "decision_index"),
        (RecordDecision(2**31, "m"), "decision_index"),
        (RecordDecision(0, "\0"), "model"),
        (RecordDecision(0, "m", "{"), "request_json"),
        (RecordDecision(0, "m", "1", "NaN"), "response_json"),
        (RecordDecision(0, "m", "1", "1", "\ud800"), "rationale"),
        (RecordDecision(0, "m", "1", "1", "", "\0"), "policy_version"),
    ],
)
def test_bad_input_is_refused_with_its_field(write: RecordDecision, field: str) -> None:
    faulty(write, InvalidArgument, field)


@pytest.mark.parametrize(
    ("write", "field"),
    [
        (RecordDecision(0, "x" * 513), "model"),
        (RecordDecision(0, "m", policy_version="x" * 513), "policy_version"),
        (RecordDecision(0, "m", "[" * 65 + "]" * 65), "request_json"),
    ],
)
def test_what_is_too_large_is_refused_with_its_field(write: RecordDecision, field: str) -> None:
    faulty(write, TooLarge, field)


@pytest.mark.parametrize("text", ["x" * 9, "ä" * 5])
def test_a_rationale_is_no_larger_than_a_payload(text: str) -> None:
    with pytest.raises(TooLarge) as refusal:
        RecordDecision(0, "m", rationale=text).checked(replace(LIMITS, payload_bytes=10))
    assert refusal.value.field == "rationale"
    RecordDecision(0, "m", rationale=text[:4]).checked(replace(LIMITS, payload_bytes=10))


def test_the_largest_ordinal_will_do() -> None:
    assert driven().drive(RecordDecision(2**31 - 1, "m")).seq == 2
