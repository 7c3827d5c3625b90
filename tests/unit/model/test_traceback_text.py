"""Tracebacks as text: what is kept of one that is too long."""

import orjson
import pytest

from tape.model.error_record import (
    error_json,
    error_words,
    is_error,
    traceback_in,
    without_traceback,
)
from tape.model.traceback_text import (
    TRACEBACK_CHARACTERS,
    bounded_traceback,
    traceback_within,
)
from tape.settings import Limits

FIRST = "Traceback (most recent call last):"


def deep(frames: int, words: str = "ValueError: no") -> str:
    lines = [f'  File "desk.py", line {n}, in f{n}\n    f{n + 1}()' for n in range(frames)]
    return "\n".join([FIRST, *lines, words])


def test_a_short_one_stays_as_it_is() -> None:
    assert bounded_traceback(deep(3)) == deep(3)


def test_of_a_long_one_the_innermost_frames_are_kept() -> None:
    cut = bounded_traceback(deep(1_000)).split("\n")
    assert cut[0] == FIRST
    assert cut[-3:] == deep(1_000).split("\n")[-3:]
    left_out = 2_000 - (len(cut) - 3)
    assert cut[1] == f"  ... {left_out} lines left out ..."
    assert TRACEBACK_CHARACTERS - 100 < len("\n".join(cut)) <= TRACEBACK_CHARACTERS


@pytest.mark.parametrize("words", ["E: " + "x" * 90_000, "E: " + "many\n" * 20_000])
def test_long_words_leave_room_for_the_frames(words: str) -> None:
    cut = bounded_traceback(deep(1_000, words))
    assert len(cut) <= TRACEBACK_CHARACTERS
    assert cut.startswith(FIRST)
    assert "in f999\n    f1000()\nE: " in cut


@pytest.mark.parametrize("most", [200, 201, 400, 1_000, 7_999])
@pytest.mark.parametrize("text", [deep(1_000), "\n" * 9_000, "x" * 9_000, "a\nb\n" * 4_000])
def test_it_is_never_longer_than_it_may_be(text: str, most: int) -> None:
    assert len(bounded_traceback(text, most)) <= most


def test_too_little_room_is_none() -> None:
    assert bounded_traceback(deep(1_000), 150) == ""
    assert traceback_within(deep(1_000), 150) == ""


def test_what_no_database_takes_is_made_harmless() -> None:
    assert bounded_traceback("a\0b\udc80c") == "a\\0b?c"


@pytest.mark.parametrize("text", [deep(1_000), "€" * 8_000, "\x01" * 8_000])
@pytest.mark.parametrize("room", [500, 2_000, 9_000, 100_000])
def test_within_so_many_bytes_of_json(text: str, room: int) -> None:
    cut = traceback_within(text, room)
    assert len(orjson.dumps(cut)) <= room
    assert cut or room < 2_000


def test_a_traceback_is_cut_for_the_limits_and_the_error_is_not() -> None:
    error = ValueError("no " * 100)
    for size in (350, 600, 2_000, 100_000):
        text = error_json(error, deep(1_000), Limits(payload_bytes=size))
        assert len(text) <= size
        record = orjson.loads(text)
        assert (record["type"], record["message"]) == ("ValueError", str(error))
        assert bool(traceback_in(record)) == (size > 350)
    tiny = error_json(error, deep(1_000), Limits(payload_bytes=10))
    assert orjson.loads(tiny) == {"type": "ValueError", "message": str(error)}


def test_an_error_in_words_and_without_its_traceback() -> None:
    error = {"type": "ValueError", "message": "no"}
    raised = error | {"traceback": deep(1)}
    assert is_error(error)
    assert error_words(error) == error_words(raised) == "ValueError: no"
    assert without_traceback(raised) == without_traceback(error) == error
    assert (traceback_in(error), traceback_in(raised)) == ("", deep(1))


@pytest.mark.parametrize("value", [None, 7, "text", [], {"type": "x"}, {"traceback": "t"}])
def test_what_is_no_error_stays_as_it_is(value: object) -> None:
    assert not is_error(value)
    assert without_traceback(value) == value
    assert error_words(value) == orjson.dumps(value).decode()
    assert traceback_in(value) == ""


def test_a_traceback_that_is_no_text_is_none() -> None:
    assert traceback_in({"type": "a", "message": "b", "traceback": [1]}) == ""
