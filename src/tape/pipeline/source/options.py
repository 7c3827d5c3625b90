"""The options of the data source: every name there is, and what a read makes of them.

Spark hands options over as text under lower-case names, whatever case they were written in.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, Literal, TypeVar, cast

from tape.errors import InvalidArgument
from tape.model.subject import EVERYTHING, parse_pattern
from tape.ports.bulk_tables import SIDE_TABLES
from tape.predicates import STORED_LIMITS, check

JOURNAL: Final = "journal"
_SELECTING: Final = {"url", "config", "pattern", "where", "on_error", "payload"}
_SIZING: Final = {"partition_rows", "batch_rows"}
READING: Final = frozenset({"from", "upto", "table", "lake", "push_filters"} | _SELECTING | _SIZING)
STREAMING: Final = frozenset({"start", "max_entries_per_trigger"} | _SELECTING | _SIZING)
WRITING: Final = frozenset({"url", "config", "into", "write_id", "epoch"})
_SPARKS_OWN: Final = frozenset(("checkpointlocation", "queryname", "path"))

LARGEST: Final = 2**63 - 1
BATCH_ROWS: Final = 20_000

N = TypeVar("N", int, None)
OnError = Literal["skip", "fail"]


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What to read. `after` and `upto` are None where the journal's own ends are meant, and
    `partition_rows` where the range decides.

    `start` is a stream's: `earliest`, `latest` or a number. Pattern and predicate are text here and
    have been checked: this travels to other processes, and what they compile to does not.
    """

    url: str
    after: int | None = None
    upto: int | None = None
    pattern: str = EVERYTHING
    where: str = ""
    on_error: OnError = "skip"
    table: str = JOURNAL
    lake: str = ""
    push_filters: bool = False
    partition_rows: int | None = None
    batch_rows: int = BATCH_ROWS
    start: str | int = "earliest"
    max_entries: int = 0


def refuse_unknown(options: Mapping[str, str]) -> None:
    """Names that no read and no write knows: most likely one is mistyped."""
    known = READING | STREAMING | WRITING
    for name in options:
        if name.lower() not in known | _SPARKS_OWN:
            near = get_close_matches(name.lower(), known, 1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(known))}"
            raise InvalidArgument(f"is not an option of the data source tape; {hint}", field=name)


def read_options(options: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """What a batch or a stream is asked for; refuses what it cannot mean, by name."""
    given = {name.lower(): value for name, value in options.items()}
    _refuse_misplaced(given, streaming=streaming)
    if not given.get("url"):
        raise InvalidArgument("is required: sqlite:PATH or postgres://…", field="url")
    _refuse_variant(given)
    pattern = given.get("pattern") or EVERYTHING
    parse_pattern(pattern, field="pattern")
    where = given.get("where", "")
    check(where, field="where", limits=STORED_LIMITS)
    after, upto = (_number(given, name, None, least=0) for name in ("from", "upto"))
    if after is not None and upto is not None and after > upto:
        raise InvalidArgument(f"{upto} is before {after}, where it begins", field="upto")
    return ReadOptions(
        url=given["url"],
        after=after,
        upto=upto,
        pattern=pattern,
        where=where,
        on_error=cast("OnError", _choice(given, "on_error", ("skip", "fail"))),
        table=_choice(given, "table", (JOURNAL, *SIDE_TABLES)),
        lake=given.get("lake", ""),
        push_filters=_choice(given, "push_filters", ("false", "true")) == "true",
        partition_rows=_number(given, "partition_rows", None, least=1),
        batch_rows=_number(given, "batch_rows", BATCH_ROWS, least=1),
        start=_start(given),
        max_entries=_number(given, "max_entries_per_trigger", 0, least=1),
    )


def _refuse_misplaced(given: Mapping[str, str], *, streaming: bool) -> None:
    what, known = ("stream", STREAMING) if streaming else ("batch", READING)
    for name in given:
        if name not in known | _SPARKS_OWN:
            raise InvalidArgument(f"is not an option of a {what}", field=name)
    table = given.get("table", JOURNAL)
    if table == JOURNAL:
        return
    for name in ("from", "upto", "pattern", "where", "lake", "payload", "push_filters"):
        if name in given:
            raise InvalidArgument(f"is for the journal, {table} is read whole", field=name)


def _refuse_variant(given: Mapping[str, str]) -> None:
    """Spark itself parses JSON many times faster than Python could on its way there."""
    if _choice(given, "payload", ("text", "variant")) == "variant":
        raise InvalidArgument(
            "the source itself gives text; tape.spark.journal(…, payload='variant') adds the "
            "parsed column, as .withColumn('payload', try_parse_json('payload_json')) does",
            field="payload",
        )


def _number(given: Mapping[str, str], name: str, default: N, *, least: int) -> int | N:
    text = given.get(name, "").strip()
    if not text:
        return default
    if not text.isascii() or not text.isdecimal() or not least <= int(text) <= LARGEST:
        raise InvalidArgument(f"{text!r} is not a whole number of {least} or more", field=name)
    return int(text)


def _choice(given: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    """One of them, the first if nothing is said."""
    chosen = given.get(name, choices[0])
    if chosen not in choices:
        raise InvalidArgument(f"{chosen!r} is not one of {', '.join(choices)}", field=name)
    return chosen


def _start(given: Mapping[str, str]) -> str | int:
    start = given.get("start", "earliest")
    if start in ("earliest", "latest"):
        return start
    if not start.isascii() or not start.isdecimal() or int(start) > LARGEST:
        raise InvalidArgument(f"{start!r} is neither earliest, latest nor a number", field="start")
    return int(start)
