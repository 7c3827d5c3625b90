"""Whether an entry matches a reaction, decided by the server's own code in Spark's workers."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame

from tape.errors import PredicateError, TapeError
from tape.journal.follow import envelope
from tape.model.entry import Entry
from tape.model.subject import parse_pattern
from tape.predicates import STORED_LIMITS, check


def with_expressions(reactions: DataFrame) -> DataFrame:
    """Reactions, each with the regular expression that its pattern is."""
    schema = "reaction_id STRING, subject_pattern STRING, expression STRING"
    return reactions.select("reaction_id", "subject_pattern").mapInArrow(_expressions, schema)


def _expressions(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        patterns = batch.column("subject_pattern").to_pylist()
        found = [_expression(str(pattern)) for pattern in patterns]
        yield batch.append_column("expression", pa.array(found, pa.string()))


def _expression(pattern: str) -> str | None:
    """None for what is no pattern: nothing can be said of its tasks, and another check tells."""
    try:
        return rf"\A(?:{parse_pattern(pattern).expression.pattern})\z"
    except TapeError:
        return None


def without_match(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Of entries with a task and its predicate, those of which the predicate is not true."""
    for batch in batches:
        rows = batch.to_pydict()
        entries = map(Entry, *(rows[name] for name in Entry._fields))
        found = [
            (entry.global_seq, entry.run_id, task_id, fault)
            for entry, task_id, cel in zip(
                entries, rows["task_id"], rows["predicate_cel"], strict=True
            )
            if (fault := _fault(entry, cel))
        ]
        columns = zip(*found, strict=True) if found else ((), (), (), ())
        types = (pa.int64(), pa.string(), pa.string(), pa.string())
        yield pa.RecordBatch.from_arrays(
            [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)],
            names=["global_seq", "run_id", "task_id", "fault"],
        )


def _fault(entry: Entry, cel: str) -> str:
    try:
        true = check(cel, limits=STORED_LIMITS).evaluate(envelope(entry, with_payload=True))
    except PredicateError as error:
        return f"the predicate has no result: {error}"
    return "" if true else "the predicate is false"
