"""When a cadence is due: in UTC, where a day has always 24 hours; and dates that never come."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tape.errors import InvalidArgument
from tape.subscriptions.cadence import cadence_fault, next_due_ms

YEAR_9999 = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("cadence", "after", "due"),
    [
        ("*/1 * * * *", "2026-06-11T10:00:00", "2026-06-11T10:01:00"),
        ("*/1 * * * *", "2026-06-11T10:00:00.001", "2026-06-11T10:01:00"),
        ("*/1 * * * *", "2026-06-11T10:00:59.999", "2026-06-11T10:01:00"),
        ("*/15 * * * *", "2026-06-11T23:59:00", "2026-06-12T00:00:00"),
        ("0 6 * * MON-FRI", "2026-06-12T06:00:00", "2026-06-15T06:00:00"),  # from Friday
        ("0 0 1 1 *", "2026-01-01T00:00:00", "2027-01-01T00:00:00"),
        ("0 0 L * *", "2026-02-01T00:00:00", "2026-02-28T00:00:00"),
        # In the hours that clocks leave out or have twice in Berlin, New York and Sydney.
        ("30 2 * * *", "2026-03-29T02:29:00", "2026-03-29T02:30:00"),
        ("30 2 * * *", "2026-10-25T02:30:00", "2026-10-26T02:30:00"),
        ("30 2 * * *", "2026-03-08T00:00:00", "2026-03-08T02:30:00"),
        ("0 * * * *", "2026-03-29T01:00:00", "2026-03-29T02:00:00"),
        ("0 * * * *", "2026-10-25T02:00:00", "2026-10-25T03:00:00"),
        # Leap days: 2100 has none.
        ("0 0 29 2 *", "2026-01-01T00:00:00", "2028-02-29T00:00:00"),
        ("0 0 29 2 *", "2028-02-29T00:00:00", "2032-02-29T00:00:00"),
        ("0 0 29 2 *", "2096-02-29T00:00:00", "2104-02-29T00:00:00"),
        ("0 0 28 2 *", "2028-02-28T00:00:00", "2029-02-28T00:00:00"),
        ("0 0 * 2 MON#5", "2026-01-01T00:00:00", "2044-02-29T00:00:00"),
        ("0 12 31 * *", "2026-01-31T12:00:00", "2026-03-31T12:00:00"),
        ("0 0 * * *", "1970-01-01T00:00:00", "1970-01-02T00:00:00"),
    ],
)
def test_when_it_is_due(cadence: str, after: str, due: str) -> None:
    assert next_due_ms(cadence, ms(after)) == ms(due)


@pytest.mark.parametrize(
    ("cadence", "says"),
    [
        ("0 0 30 2 *", "its day of month is not possible"),
        ("0 0 31 2,4,6,9,11 *", "its day of month is not possible"),
        ("0 0 31 4 *", "its day of month is not possible"),
        ("60 * * * *", "its minute is not possible"),
        ("* 24 * * *", "its hour is not possible"),
        ("* * 0 * *", "its day of month is not possible"),
        ("* * * 13 *", "its month is not possible"),
        ("* * * * 8", "its day of week is not possible"),
        ("*/0 * * * *", "its minute is not possible"),
        ("5-1 * * * *", "its minute is not possible"),
        ("* * * * MONDAY", "its day of week is not possible"),
        ("0 0 * * * *", "has 6 fields, and a cadence has five fields: minute, hour, day of month"),
        ("@hourly", "has 1 fields"),
        ("every minute", "has 2 fields"),
        ("1" * 201, "is longer than 200 characters"),
        ("9" * 190 + " * * * *", "its minute is not possible"),
    ],
)
def test_what_is_no_cadence(cadence: str, says: str) -> None:
    assert says in cadence_fault(cadence)


def test_the_end_of_the_calendar_is_an_error_with_a_name() -> None:
    for after in (round(YEAR_9999.timestamp() * 1000), 10**17):
        with pytest.raises(InvalidArgument, match="is never due again"):
            next_due_ms("0 0 * * *", after)


FIELDS = st.sampled_from(
    ["*", "*/7", "0", "1", "5", "7", "12", "28", "29", "30", "31", "1-5", "L", "LW", "FRI#5", "L5",
     "MON-FRI", "FEB", "1,2,3", "60", "#", "1#2#3", "-", ",", "*/", "1/", "?", "٣", "1-5/2", "LL"]
)  # fmt: skip


@given(fields=st.lists(FIELDS, min_size=5, max_size=5), after_ms=st.integers(0, 4_102_444_800_000))
def test_what_is_a_cadence_is_always_due_again(fields: list[str], after_ms: int) -> None:
    cadence = " ".join(fields)
    if cadence_fault(cadence) == "":
        due = next_due_ms(cadence, after_ms)
        assert due > after_ms
        assert due % 60_000 == 0
        assert next_due_ms(cadence, due - 1) == due, "nothing was left out before it"


@given(text=st.text(max_size=40) | st.text("0123456789*/-,#L? ", max_size=40))
def test_any_text_is_a_cadence_or_has_a_fault(text: str) -> None:
    assert isinstance(cadence_fault(text), str)
