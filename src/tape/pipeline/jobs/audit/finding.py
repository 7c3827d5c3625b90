"""Runs checks over frames: how many violations each has found, and the first of them."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from tape.pipeline.jobs.audit.catalogue import GROUPS
from tape.pipeline.jobs.audit.check import Check
from tape.pipeline.jobs.audit.frames import Frames


class Violation(NamedTuple):
    """What breaks a check: an entry, a run or a key of something, and what is wrong in words."""

    global_seq: int
    run_id: str
    key: str
    found: str


@dataclass(frozen=True, slots=True)
class Result:
    """How many violations of a check there are, and the first of them."""

    check: Check
    count: int
    violations: list[Violation]


def violations(frames: Frames, checks: Sequence[Check]) -> DataFrame:
    """All violations of these checks, each under the name of its check."""
    found = [check.find(frames).withColumn("check", F.lit(check.name)) for check in checks]
    return reduce(DataFrame.unionByName, found)


def run_checks(
    frames: Frames,
    names: Collection[str] = (),
    *,
    limit: int = 20,
    done: Callable[[int, str], None] = lambda _count, _name: None,
) -> Iterator[Result]:
    """The results of the checks with these names, or of all; `done` is told how many are."""
    count = 0
    for group in GROUPS:
        checks = [check for check in group if not names or check.name in names]
        if checks:
            yield from _run_group(frames, checks, limit)
            count += len(checks)
            done(count, checks[-1].name)


def _run_group(frames: Frames, checks: Sequence[Check], limit: int) -> Iterator[Result]:
    found = violations(frames, checks).persist()
    try:
        counts = {row["check"]: row["count"] for row in found.groupBy("check").count().collect()}
        first = _first(found, limit) if counts else {}
    finally:
        found.unpersist()
    for check in checks:
        yield Result(check, counts.get(check.name, 0), first.get(check.name, []))


def _first(found: DataFrame, limit: int) -> dict[str, list[Violation]]:
    in_order = Window.partitionBy("check").orderBy("global_seq", "run_id", "key", "found")
    rows = (
        found.withColumn("place", F.row_number().over(in_order))
        .where(F.col("place") <= limit)
        .orderBy("check", "place")
        .collect()
    )
    first: dict[str, list[Violation]] = {}
    for row in rows:
        violation = Violation(*(row[name] for name in Violation._fields))
        first.setdefault(row["check"], []).append(violation)
    return first
