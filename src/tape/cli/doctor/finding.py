"""What a check found."""

from enum import StrEnum
from typing import NamedTuple


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
