"""Cadences of scheduled subscriptions: cron in five fields, in UTC, where no hour is left out."""

from datetime import UTC, datetime, timedelta
from typing import Final

from cronsim import CronSim, CronSimError

from tape.errors import InvalidArgument

FORM: Final = "five fields: minute, hour, day of month, month, day of week"
_MOST_CHARACTERS: Final = 200
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND: Final = timedelta(seconds=1)


def next_due_ms(cadence: str, after_ms: int) -> int:
    """When a cadence is due next, strictly after a time; in milliseconds since 1970."""
    try:
        due = next(CronSim(cadence, _EPOCH + timedelta(milliseconds=after_ms)))
    except (StopIteration, CronSimError, OverflowError):
        raise InvalidArgument(f"{cadence} is never due again", field="cadence") from None
    return (due - _EPOCH) // _SECOND * 1000


def cadence_fault(cadence: str) -> str:
    """What is wrong with a cadence, in words; empty if nothing is."""
    if len(cadence) > _MOST_CHARACTERS:
        return f"is longer than {_MOST_CHARACTERS} characters"
    count = len(cadence.split())
    if count != 5:
        return f"{cadence} has {count} fields, and a cadence has {FORM}; in UTC"
    try:
        next(CronSim(cadence, _EPOCH))
    except CronSimError as fault:
        what = str(fault).removeprefix("Bad ").replace("-", " ")
        return f"{cadence} is not a cadence: its {what} is not possible; a cadence has {FORM}"
    except StopIteration:
        return f"{cadence} is a date that never comes"
    return ""
