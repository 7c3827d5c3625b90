"""What a counterparty refuses: the error it raises, and the checks of what a request holds."""

from collections.abc import Mapping
from http import HTTPStatus

Body = Mapping[str, object]

MOST_CENTS = 10**15


class Refusal(Exception):
    """Nothing was done, and the caller is told why."""

    def __init__(self, reason: str, status: HTTPStatus = HTTPStatus.UNPROCESSABLE_ENTITY) -> None:
        super().__init__(reason)
        self.reason = reason
        self.status = status


def text(body: Body, field: str) -> str:
    value = body.get(field)
    if not isinstance(value, str) or not value or not value.isprintable():
        raise Refusal(f"{field!r} must be a printable text, not {value!r}")
    return value


def amount(body: Body, field: str) -> int:
    """A number of cents, below zero or above."""
    value = body.get(field)
    if type(value) is not int or not 0 < abs(value) <= MOST_CENTS:
        raise Refusal(f"{field!r} must be a whole number of cents other than 0, not {value!r}")
    return value


def positive(body: Body, field: str) -> int:
    value = amount(body, field)
    if value < 0:
        raise Refusal(f"{field!r} must be above 0, not {value}")
    return value
