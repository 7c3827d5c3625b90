"""What is logged of an error that nobody has thought of: where it was raised, and no text of it."""

import logging

import pytest

from tape.telemetry.unknown_errors import MOST_ERRORS, MOST_FRAMES, frames_of, log_unknown

CANARY = "hunter2"


def caught(*, within: bool = False) -> BaseException:
    def log_in() -> None:
        raise KeyError(CANARY)

    def connect() -> None:
        try:
            log_in()
        except KeyError as error:
            if within:
                raise ExceptionGroup(CANARY, [error, ValueError(CANARY)]) from None
            raise ConnectionError(f"no login {CANARY}") from error

    try:
        connect()
    except (ConnectionError, ExceptionGroup) as error:
        error.add_note(CANARY)
        return error
    raise AssertionError


def heads(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("  ")]


def test_kinds_and_frames_of_the_whole_chain() -> None:
    text = frames_of(caught())
    assert heads(text) == ["ConnectionError", "caused by KeyError"]
    assert [line.rsplit(" ", 1)[1] for line in text.splitlines() if line.startswith("  ")] == [
        "caught", "connect", "connect", "log_in",
    ]  # fmt: skip
    assert f'File "{__file__}", line ' in text
    assert CANARY not in text


def test_the_errors_of_a_group() -> None:
    text = frames_of(caught(within=True))
    assert heads(text) == ["ExceptionGroup", "together with KeyError", "together with ValueError"]
    assert CANARY not in text


def test_it_is_bounded() -> None:
    def deep(left: int) -> None:
        if left:
            deep(left - 1)
        raise ValueError(CANARY)

    error: BaseException
    try:
        deep(100)
    except ValueError as raised:
        error = raised
    for _number in range(30):
        wrapped = RuntimeError(CANARY)
        wrapped.__cause__, error = error, wrapped
    assert heads(frames_of(error)) == [
        "RuntimeError", *["caused by RuntimeError"] * (MOST_ERRORS - 1), "... and more errors",
    ]  # fmt: skip
    while error.__cause__ is not None:
        error = error.__cause__
    lines = frames_of(error).splitlines()
    assert lines[1] == f"  ... {102 - MOST_FRAMES} frames left out ..."
    assert len(lines) == MOST_FRAMES + 2


def test_the_log_says_that_texts_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    log_unknown(logging.getLogger("tape.test"), "logging in has failed", caught())
    (record,) = caplog.records
    head, _newline, below = record.getMessage().partition("\n")
    assert head == (
        "logging in has failed with ConnectionError; the texts of errors are left out, as they may "
        "repeat a secret"
    )
    assert below.startswith("    ConnectionError\n      File ")
    assert CANARY not in caplog.text
