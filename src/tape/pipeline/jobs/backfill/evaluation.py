"""Predicates that Spark cannot decide itself, decided by the server's own code in its workers.

One call for all of them, so that an entry is handed over and its payload parsed at most once.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, IntegerType, StringType

from tape.errors import PredicateError
from tape.journal.follow import envelope
from tape.model.entry import Entry
from tape.model.subject import parse_pattern
from tape.model.subject_trie import SubjectTrie
from tape.ports.predicate import EntryPredicate
from tape.predicates import ENVELOPE, STORED_LIMITS, check

SEEN = (*(name for name in Entry._fields if name in ENVELOPE), "payload_json")
"""The columns of an entry that predicates see; `payload_json` is what the others are read from."""
_SUBJECT = SEEN.index("subject")
ERROR_CHARACTERS = 500
SUBJECTS_REMEMBERED = 50_000
_BLANK = Entry(0, "", 0, "", "", "null", 0, "", "", "", 0, "", "", "", "", "", "", 0, "")


class SentReaction(NamedTuple):
    """A reaction by its number, as it travels to the workers: they compile it themselves."""

    number: int
    pattern: str
    expression: str


def decisions(asked: Sequence[SentReaction], wanted: Column) -> Column:
    """For entries that are wanted: the number of each that holds, negative where it has no result.

    What is not wanted is not handed over.
    """
    compiled = tuple(asked)

    def decide(*columns: "pa.Array[Any]") -> "pa.Array[Any]":
        return pa.array(_decide(compiled, columns), pa.list_(pa.int32()))

    decide.__annotations__ = {"columns": pa.Array, "return": pa.Array}
    called = F.arrow_udf(decide, ArrayType(IntegerType()))  # type: ignore[attr-defined]
    return called(*(F.when(wanted, F.col(name)) for name in SEEN))  # type: ignore[no-any-return]


def reasons(expressions: Mapping[int, str]) -> Column:
    """Why the rule `number` has no result, where it `failed`; NULL elsewhere."""
    known = dict(expressions)

    def explain(*columns: "pa.Array[Any]") -> "pa.Array[Any]":
        rows = zip(*(column.to_pylist() for column in columns), strict=True)
        told = [None if n is None else reason(known[n], seen_entry(seen)) for n, *seen in rows]
        return pa.array(told, pa.string())

    explain.__annotations__ = {"columns": pa.Array, "return": pa.Array}
    called = F.arrow_udf(explain, StringType())  # type: ignore[attr-defined]
    failed = (F.when(F.col("failed"), F.col(name)) for name in ("number", *SEEN))
    return called(*failed)  # type: ignore[no-any-return]


def _decide(asked: tuple[SentReaction, ...], columns: "Sequence[pa.Array[Any]]") -> list[list[int]]:
    chosen = _chooser(asked)
    results: list[list[int]] = []
    for row in zip(*(column.to_pylist() for column in columns), strict=True):
        subject = row[_SUBJECT]
        candidates = chosen(subject) if subject is not None else ()
        results.append(_held(candidates, seen_entry(row)) if candidates else [])
    return results


def _held(candidates: "Sequence[tuple[int, EntryPredicate]]", entry: Entry) -> list[int]:
    found = []
    parsed = envelope(entry, with_payload=any(needs_payload(p) for _, p in candidates))
    for number, predicate in candidates:
        try:
            if predicate.evaluate(parsed):
                found.append(number)
        except PredicateError:
            found.append(-number)
    return found


@lru_cache(16)
def _chooser(
    asked: tuple[SentReaction, ...],
) -> "Callable[[str], list[tuple[int, EntryPredicate]]]":
    trie: SubjectTrie[tuple[int, EntryPredicate]] = SubjectTrie()
    for one in asked:
        trie.add(
            parse_pattern(one.pattern), (one.number, check(one.expression, limits=STORED_LIMITS))
        )
    return lru_cache(SUBJECTS_REMEMBERED)(trie.match)


def seen_entry(row: Sequence[Any]) -> Entry:
    """An entry with what a predicate may see of it."""
    return _BLANK._replace(**dict(zip(SEEN, row, strict=True)))


def needs_payload(predicate: EntryPredicate) -> bool:
    return not {"payload", "prev_value_json"}.isdisjoint(predicate.names)


def reason(expression: str, entry: Entry) -> str:
    """Why a predicate has no result for an entry, as the server words it; empty if it has one."""
    predicate = check(expression, limits=STORED_LIMITS)
    try:
        predicate.evaluate(envelope(entry, with_payload=needs_payload(predicate)))
    except PredicateError as error:
        return f"entry {entry.global_seq}: {error}"[:ERROR_CHARACTERS]
    return ""
