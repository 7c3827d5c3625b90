"""What of a read is decided where: in the store where that is exact, in the worker otherwise."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from tape.errors import PredicateError
from tape.journal.follow import envelope
from tape.model.entry import Entry
from tape.model.subject import Pattern, parse_pattern
from tape.pipeline.source.options import OnError
from tape.ports.bulk import Condition, Operator
from tape.ports.predicate import EntryPredicate
from tape.predicates import check

MOST_IN_LIST: Final = 1_000
_KINDS: Final = Entry.__annotations__
_COMPARISONS: Final[dict[type[Filter], Operator]] = {
    EqualTo: "=",
    EqualNullSafe: "=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
    StringStartsWith: "starts",
}
Keep = Callable[[pa.RecordBatch], pa.RecordBatch]


def pushed(filters: Iterable[Filter]) -> tuple[list[Condition], list[Filter]]:
    """Those that a store decides exactly as Spark does, and those left to Spark."""
    conditions: list[Condition] = []
    left: list[Filter] = []
    for found in filters:
        if isinstance(found, IsNotNull) and found.attribute[0] in _KINDS:
            continue  # no column of an entry is NULL
        condition = _condition(found)
        if condition is None:
            left.append(found)
        else:
            conditions.append(condition)
    return conditions, left


def _condition(found: Filter) -> Condition | None:
    match found:
        case In((column,), values):
            listed = tuple(values)
            if 0 < len(listed) <= MOST_IN_LIST and all(_fits(column, item) for item in listed):
                return Condition(column, "in", listed)
        case (
            EqualTo((column,), value)
            | EqualNullSafe((column,), value)
            | GreaterThan((column,), value)
            | GreaterThanOrEqual((column,), value)
            | LessThan((column,), value)
            | LessThanOrEqual((column,), value)
            | StringStartsWith((column,), value)
        ) if _fits(column, value):
            return Condition(column, _COMPARISONS[type(found)], value)
    return None


def _fits(column: str, value: object) -> bool:
    """Whether a store compares the column with this value as Spark does."""
    kind = _KINDS.get(column)
    if kind is str:
        return type(value) is str and "\x00" not in value
    return kind is int and type(value) is int


class Narrowed(NamedTuple):
    """A range of the journal, and the conditions that are not about it."""

    after: int
    upto: int
    conditions: tuple[Condition, ...]


def narrowed(after: int, upto: int, conditions: Iterable[Condition]) -> Narrowed:
    """Bounds on `global_seq` become the bounds of what is read."""
    rest: list[Condition] = []
    for condition in conditions:
        match condition:
            case Condition("global_seq", ">", int(value)):
                after = max(after, value)
            case Condition("global_seq", ">=", int(value)):
                after = max(after, value - 1)
            case Condition("global_seq", "<", int(value)):
                upto = min(upto, value - 1)
            case Condition("global_seq", "<=", int(value)):
                upto = min(upto, value)
            case Condition("global_seq", "=", int(value)):
                after, upto = max(after, value - 1), min(upto, value)
            case _:
                rest.append(condition)
    return Narrowed(after, upto, tuple(rest))


class Selection:
    """Pattern and predicate of one read, compiled in the process that applies them."""

    def __init__(self, pattern: str, where: str, on_error: OnError) -> None:
        self._pattern = parse_pattern(pattern, field="pattern")
        self._where = check(where, field="where")
        self._on_error = on_error

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """What the store decides of the pattern."""
        if self._pattern.everything:
            return ()
        if self._pattern.exact:
            return (Condition("subject", "=", self._pattern.text),)
        return (Condition("subject", "starts", self._pattern.prefix),)

    @property
    def predicate(self) -> EntryPredicate | None:
        return None if self._where.always_true else self._where

    @property
    def columns(self) -> frozenset[str]:
        """What it has to see of an entry."""
        seen = set() if self._pattern.everything or self._pattern.exact else {"subject"}
        if not self._where.always_true:
            seen |= self._where.names & _KINDS.keys() | {"global_seq"}
            if self._with_payload:
                seen |= {"payload_json", "kind"}
        return frozenset(seen)

    def applied(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows that are selected, where the store has not decided it all."""
        by_pattern = not (self._pattern.everything or self._pattern.exact)
        for batch in batches:
            kept = _matching(batch, self._pattern) if by_pattern else batch
            if kept.num_rows and not self._where.always_true:
                kept = kept.filter(pa.array(self._decided(kept), pa.bool_()))
            if kept.num_rows:
                yield kept

    @property
    def _with_payload(self) -> bool:
        return not self._where.names.isdisjoint(("payload", "prev_value_json"))

    def _decided(self, batch: pa.RecordBatch) -> Iterator[bool]:
        evaluate, with_payload = self._where.evaluate, self._with_payload
        for entry in _entries(batch):
            try:
                yield evaluate(envelope(entry, with_payload=with_payload))
            except PredicateError as error:
                if self._on_error == "fail":
                    raise PredicateError(f"where, at entry {entry.global_seq}: {error}") from error
                yield False


def _matching(batch: pa.RecordBatch, pattern: Pattern) -> pa.RecordBatch:
    expression = f"\\A(?:{pattern.expression.pattern})\\z"
    return batch.filter(pc.match_substring_regex(batch.column("subject"), expression))


def _entries(batch: pa.RecordBatch) -> Iterator[Entry]:
    """Rows as entries, blank where a column was not read."""
    names: Sequence[str] = batch.schema.names
    return map(
        Entry,
        *(
            batch.column(name).to_pylist()
            if name in names
            else repeat("" if kind is str else 0, batch.num_rows)
            for name, kind in _KINDS.items()
        ),
    )
