"""Held subjects: tried again after growing pauses, let go when nothing of them is left."""

from tape.outbox.held_subjects import HeldSubjects


def test_pauses_double_for_one_row_and_begin_anew_with_another() -> None:
    held = HeldSubjects(1.0, 5.0)
    assert [held.hold("s", 7, 0.0) for _ in range(5)] == [1.0, 2.0, 4.0, 5.0, 5.0]
    assert held.hold("s", 8, 0.0) == 1.0
    assert held.hold("t", 8, 0.0) == 1.0


def test_what_is_due_is_not_left_out() -> None:
    held = HeldSubjects(1.0, 5.0)
    held.hold("s", 1, 0.0)
    held.hold("t", 2, 0.5)
    assert held.not_due(0.9) == ["s", "t"]
    assert held.not_due(1.0) == ["t"]
    assert held.next_due() == 1.0
    assert len(held) == 2


def test_those_that_are_due_and_have_nothing_left_are_let_go() -> None:
    held = HeldSubjects(1.0, 5.0)
    for subject in "stu":
        held.hold(subject, 1, 0.0)
    held.hold("v", 1, 5.0)
    held.release_gone({"t"}, 2.0)
    assert sorted(held.not_due(0.0)) == ["t", "v"]
    held.release("t")
    held.release("t")
    assert held.not_due(0.0) == ["v"]
    held.release("v")
    assert held.next_due() is None
