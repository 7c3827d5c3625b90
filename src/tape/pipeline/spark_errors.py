"""Spark's errors in one sentence. What Java and Python printed on the way stays with the cause."""

import contextlib
import re
from collections.abc import Iterator
from typing import Final

from py4j.protocol import (  # type: ignore[import-untyped]  # no py.typed in the wheel
    Py4JError,
    Py4JJavaError,
)
from pyspark.errors import PySparkException

from tape import errors
from tape.errors import InvalidArgument, SparkUnavailable, TapeError

FAULTS: Final = (PySparkException, Py4JError)
_OURS: Final = re.compile(r"^(?:\[\w+\] )?(?:.*Error: )?tape\.errors\.(\w+): (.+)$", re.MULTILINE)
_CONDITION: Final = re.compile(r"^\[[A-Z][\w.]*\] ")
_STATE: Final = re.compile(r" ?SQLSTATE: \w+")
_CAUSE: Final = re.compile(r"^Caused by: (.+)$", re.MULTILINE)
_CLASS: Final = re.compile(r"^(?:[a-z]\w*\.)+[A-Z]\w*(?:: )?")
_LONGEST: Final = 300


@contextlib.contextmanager
def raising_tape_errors() -> Iterator[None]:
    """Turn what Spark raises into one of our errors; ours, that came through Spark, stay ours."""
    try:
        yield
    except FAULTS as fault:
        raise as_tape_error(fault) from fault


def as_tape_error(fault: Exception) -> TapeError:
    text = _text(fault)
    found = _OURS.findall(text)
    if found:
        name, message = found[-1]
        kind = getattr(errors, name, TapeError)
        return _made(kind, message.strip())
    said = _sentence(text)
    if not said:
        return SparkUnavailable(
            "Spark stopped without giving a reason (--verbose shows its output)"
        )
    return TapeError(f"Spark failed: {said}")


def _made(kind: type[TapeError], message: str) -> TapeError:
    return InvalidArgument(message) if issubclass(kind, InvalidArgument) else kind(message)


def _text(fault: Exception) -> str:
    if isinstance(fault, Py4JJavaError):
        with contextlib.suppress(Exception):  # the JVM may be gone
            return f"{fault.java_exception.toString()}\n{fault}"
    return str(fault)


def _sentence(text: str) -> str:
    """What the first cause says, without the names of classes and conditions."""
    causes = _CAUSE.findall(text)
    lines = [line for line in text.splitlines() if line.strip(" :")]
    if not lines and not causes:
        return ""
    said = causes[-1] if causes and len(_bare(lines[0])) < 1 else lines[0]
    return _bare(said)[:_LONGEST]


def _bare(line: str) -> str:
    line = _CLASS.sub("", line.strip())
    return _STATE.sub("", _CONDITION.sub("", line)).strip()
