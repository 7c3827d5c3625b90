"""The traceback of what a program's own code raised, as text."""

import logging
import traceback

import pytest

from tape.cli.logs import PlainLines
from tape.errors import InvalidArgument
from tape.model.json_text import UNLIMITED
from tape.model.names import check_name
from tape.model.traceback_text import TRACEBACK_CHARACTERS
from tape.ports.user_code import called
from tape.ports.user_traceback import TracebackBlock, recorded_cause, traceback_of


def raised_by(function: object) -> BaseException:
    """What a function raises, through frames of Tape."""
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - any
        called(function)  # type: ignore[arg-type]
    error = caught.value
    assert error.__traceback__ is not None
    error.__traceback__ = error.__traceback__.tb_next  # without the frame of this helper
    return error


def pay() -> None:
    secret = "hunter2"  # noqa: F841 - locals are not shown
    raise ValueError("no funds")


def test_it_begins_with_the_function() -> None:
    text = traceback_of(raised_by(pay)).split("\n")
    assert text[0] == "Traceback (most recent call last):"
    assert "test_user_traceback.py" in text[1]
    assert text[1].endswith("in pay")
    assert text[-1] == "ValueError: no funds"
    assert "user_code.py" not in "".join(text)
    assert "secret =" not in "".join(text)


def test_causes_are_part_of_it() -> None:
    def charge() -> None:
        try:
            called(pay)
        except ValueError as error:
            raise LookupError("card") from error

    text = traceback_of(raised_by(charge))
    cause, error = text.split("\n\nThe above exception was the direct cause", 1)
    assert cause.endswith("ValueError: no funds")
    assert "in charge" in error
    assert text.endswith("LookupError: card")


def test_a_group_is_shown_with_its_errors() -> None:
    def both() -> None:
        errors = []
        for function in (pay, pay):
            try:
                called(function)
            except ValueError as error:
                errors.append(error)
        raise ExceptionGroup("two", errors)

    text = traceback_of(raised_by(both))
    assert text.count("ValueError: no funds") == 2
    assert "in both" in text


def test_frames_of_tape_below_the_function_stay() -> None:
    def wrong() -> None:
        check_name("", UNLIMITED, field="owner", required=True)

    text = traceback_of(raised_by(wrong))
    assert text.index("in wrong") < text.index("in check_name")


def test_what_tape_raised_itself_has_none() -> None:
    def refused() -> None:
        raise InvalidArgument("no")

    error = raised_by(refused)
    error.__traceback__ = None
    assert traceback_of(error) == ""
    assert traceback_of(ValueError("never raised")) == ""


def test_what_ends_a_program_is_shown_as_the_cause() -> None:
    def leave() -> None:
        raise SystemExit(3)

    text = traceback_of(raised_by(leave))
    assert "in leave" in text
    assert text.endswith("RuntimeError: SystemExit(3)")


def test_it_is_bounded() -> None:
    def deeper(depth: int = 0) -> None:
        if depth % 2:
            deeper(depth + 1)
        deeper(
            depth + 1,
        )

    text = traceback_of(raised_by(deeper))
    assert len(text) <= TRACEBACK_CHARACTERS
    assert text.startswith("Traceback (most recent call last):\n  ... ")
    assert "RecursionError" in text


class Hostile(Exception):
    def __str__(self) -> str:
        raise KeyError("even now")

    @property
    def __notes__(self) -> list[str]:  # type: ignore[override]  # a hostile one
        raise RuntimeError("nor these")


def test_an_error_that_cannot_be_told_harms_nobody() -> None:
    def hostile() -> None:
        raise Hostile

    assert isinstance(traceback_of(raised_by(hostile)), str)


def test_bytes_that_no_store_takes_are_harmless() -> None:
    def odd() -> None:
        raise ValueError("\0 and \udc80")

    assert traceback_of(raised_by(odd)).endswith("ValueError: \\0 and ?")


def test_a_recorded_one_is_the_cause_of_what_is_raised_later() -> None:
    text = traceback_of(raised_by(pay))

    def replayed() -> None:
        raise LookupError("pay failed") from recorded_cause(text)

    shown = traceback_of(raised_by(replayed))
    assert text in shown
    assert shown.index("ValueError: no funds") < shown.index("in replayed")
    assert recorded_cause("") is None


def plain_line(message: str, *args: object) -> str:
    record = logging.LogRecord("tape", logging.WARNING, "", 0, message, args, None)
    return PlainLines("%(levelname)s:%(message)s").format(record)


def test_below_a_log_line_it_is_indented() -> None:
    block = TracebackBlock("Traceback:\nERROR:root:forged\n\x1b[31mred")
    below = "\n    Traceback:\n    ERROR:root:forged\n    "
    assert plain_line("task %s failed%s", "a\nb", block) == (
        f"WARNING:task a\\nb failed{below}\\x1b[31mred"
    )
    assert plain_line("task %s failed%s", 1, TracebackBlock("")) == "WARNING:task 1 failed"
    assert f"failed{block}" == f"failed{below}\x1b[31mred"


def test_python_itself_would_show_the_same() -> None:
    """Nothing but frames is left out."""
    with pytest.raises(ValueError, match="no funds") as caught:
        pay()
    shown = "".join(traceback.format_exception(caught.value)).rstrip("\n")
    assert traceback_of(caught.value) == shown
