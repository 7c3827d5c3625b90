"""Options of the data source: what they mean, and how a bad one is refused."""

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    In,
    IsNotNull,
    IsNull,
    LessThanOrEqual,
    Not,
    StringContains,
    StringStartsWith,
)

from tape.errors import InvalidArgument
from tape.pipeline.source.filters import narrowed, pushed
from tape.pipeline.source.options import ReadOptions, read_options, refuse_unknown
from tape.ports.bulk import Condition


def test_names_are_known_in_any_case() -> None:
    refuse_unknown({"URL": "", "Max_Entries_Per_Trigger": "", "checkpointLocation": ""})
    given = {"URL": "sqlite:x", "From": "3", "PARTITION_ROWS": "5", "on_error": "fail"}
    expected = ReadOptions("sqlite:x", after=3, partition_rows=5, on_error="fail")
    assert read_options(given, streaming=False) == expected
    assert read_options({"url": "u", "start": "7"}, streaming=True).start == 7


@pytest.mark.parametrize(
    ("options", "streaming", "said"),
    [
        ({}, False, "url: is required"),
        ({"from": "-1"}, False, "from: '-1' is not a whole number of 0 or more"),
        ({"from": "1e3"}, False, "from: '1e3' is not"),
        ({"upto": "9" * 30}, False, "upto: '9+' is not"),
        ({"batch_rows": "0"}, False, "batch_rows: '0' is not a whole number of 1"),
        ({"partition_rows": "٣"}, False, "partition_rows"),
        ({"pattern": "/tape/event/**/x"}, False, r"pattern at position 12: \*\* may only be"),
        ({"where": "kind =="}, False, "where at position 7: Syntax error"),
        ({"where": "nothing == 1"}, True, "where at position 0: undeclared reference"),
        ({"on_error": "stop"}, False, "on_error: 'stop' is not one of skip, fail"),
        ({"table": "run"}, False, "table: 'run' is not one of journal, runs"),
        ({"table": "runs", "from": "1"}, False, "from: is for the journal, runs is read whole"),
        ({"payload": "xml"}, False, "payload: 'xml' is not one of text, variant"),
        ({"start": "oldest"}, True, "start: 'oldest' is neither earliest, latest nor a number"),
        ({"start": "5"}, False, "start: is not an option of a batch"),
        ({"upto": "5"}, True, "upto: is not an option of a stream"),
        ({"max_entries_per_trigger": "0"}, True, "max_entries_per_trigger: '0' is not"),
    ],
)
def test_a_bad_option_is_refused_by_name(
    options: dict[str, str], streaming: bool, said: str
) -> None:
    url = {"url": "sqlite:x"} if options else {}
    with pytest.raises(InvalidArgument, match=said):
        read_options(url | options, streaming=streaming)


def test_filters_are_pushed_where_a_store_decides_them_alike() -> None:
    yes: list[Filter] = [
        EqualTo(("kind",), "event"),
        EqualNullSafe(("run_id",), ""),
        GreaterThan(("global_seq",), 5),
        LessThanOrEqual(("global_seq",), 90),
        In(("subject",), ("a", "b")),
        StringStartsWith(("subject",), "/tape"),
        IsNotNull(("seq",)),
    ]
    no: list[Filter] = [
        EqualTo(("kind",), "a\x00b"),
        EqualTo(("kind",), 5),
        EqualTo(("seq",), True),
        EqualTo(("payload", "n"), 1),
        EqualTo(("nothing",), 1),
        GreaterThan(("seq",), 1.5),
        In(("subject",), ("a", None)),
        In(("seq",), ()),
        In(("seq",), tuple(range(5_000))),
        IsNull(("seq",)),
        Not(EqualTo(("kind",), "event")),
        StringContains(("subject",), "x"),
    ]
    conditions, left = pushed([*yes, *no])
    assert left == no
    assert conditions == [
        ("kind", "=", "event"), ("run_id", "=", ""), ("global_seq", ">", 5),
        ("global_seq", "<=", 90), ("subject", "in", ("a", "b")), ("subject", "starts", "/tape"),
    ]  # fmt: skip
    found = narrowed(0, 100, conditions)
    assert (found.after, found.upto, len(found.conditions)) == (5, 90, 4)
    exact = narrowed(0, 100, [Condition("global_seq", "=", 7), Condition("global_seq", "<", 50)])
    assert exact == (6, 7, ())
    assert narrowed(8, 100, [Condition("global_seq", ">=", 3)]) == (8, 100, ())
