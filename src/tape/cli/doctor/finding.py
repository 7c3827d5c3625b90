"""What a check found."""

from enum import StrEnum
from typing import NamedTuple

TOLD = 5


class Verdict(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Finding(NamedTuple):
    """`advice` says what to do, and is empty where nothing needs doing."""

    check: str
    verdict: Verdict
    found: str
    advice: str = ""


def ok(check: str, found: str) -> Finding:
    return Finding(check, Verdict.OK, found)


def warn(check: str, found: str, advice: str) -> Finding:
    return Finding(check, Verdict.WARN, found, advice)


def fail(check: str, found: str, advice: str) -> Finding:
    return Finding(check, Verdict.FAIL, found, advice)


def some(found: list[str]) -> str:
    """The first few, and how many more there are."""
    more = f"; and {len(found) - TOLD} more" if len(found) > TOLD else ""
    return "; ".join(found[:TOLD]) + more
