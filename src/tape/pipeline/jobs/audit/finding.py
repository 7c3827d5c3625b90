"""Runs checks over frames: how many violations each has found, and the first of them."""

from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import reduce
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from tape.pipeline.jobs.audit.catalogue import GROUPS
from tape.pipeline.jobs.audit.check import Check, RowRule, Words, violation_columns
from tape.pipeline.jobs.audit.frames import AuditScope, Frames

AT_ONCE: Final = 2
"""Groups of checks of a small journal: Spark prepares one while the other is computed."""


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
    found = []
    rules: dict[str, list[tuple[str, RowRule]]] = {}
    for check in checks:
        if isinstance(check.find, RowRule):
            rules.setdefault(check.find.source.name, []).append((check.name, check.find))
        else:
            found.append(check.find(frames).selectExpr(f"'{check.name}' AS check", "*"))
    found += [_in_one_pass(frames, of_one_source) for of_one_source in rules.values()]
    return reduce(DataFrame.unionByName, found)


def _in_one_pass(frames: Frames, rules: Sequence[tuple[str, RowRule]]) -> DataFrame:
    """Rows that break any of the rules of one source, once for each rule that they break."""
    moment = frames.moment
    wheres, broken = [], []
    for name, rule in rules:
        where, found = _text(rule.where, moment), _text(rule.found, moment)
        columns = violation_columns(found, rule.key, rule.global_seq, rule.run_id)
        wheres.append(f"({where})")
        broken.append(f"IF({where}, STRUCT('{name}' AS check, {', '.join(columns)}), NULL)")
    odd = frames.get(rules[0][1].source).where(" OR ".join(wheres))
    listed = f"FILTER(ARRAY({', '.join(broken)}), one -> one IS NOT NULL)"
    return odd.selectExpr(f"INLINE({listed})")


def _text(words: Words, moment: AuditScope) -> str:
    return words if isinstance(words, str) else words(moment)


def run_checks(
    frames: Frames,
    names: Collection[str] = (),
    *,
    limit: int = 20,
    done: Callable[[int, str], None] = lambda _count, _name: None,
) -> Iterator[Result]:
    """The results of the checks with these names, or of all; `done` is told how many are."""
    groups = [[c for c in group if not names or c.name in names] for group in GROUPS]
    groups = [group for group in groups if group]
    count = 0
    computing = ThreadPoolExecutor(AT_ONCE if frames.keep_local else 1)
    try:
        running = [computing.submit(_run_group, frames, group, limit) for group in groups]
        for group, results in zip(groups, running, strict=True):
            yield from results.result()
            count += len(group)
            done(count, group[-1].name)
    finally:
        # Where one has failed the others are not begun.
        computing.shutdown(cancel_futures=True)


def _run_group(frames: Frames, checks: Sequence[Check], limit: int) -> list[Result]:
    asked = [
        check
        for check in checks
        if frames.has_any(check.inputs) and (not check.about or frames.has_some(check.about))
    ]
    counts: dict[str, int] = {}
    first: dict[str, list[Violation]] = {}
    if asked and frames.keep_local is not None:
        counts, first = _collected(violations(frames, asked), limit)
    elif asked:
        counts, first = _counted(violations(frames, asked).persist(), limit)
    return [Result(check, counts.get(check.name, 0), first.get(check.name, [])) for check in checks]


Found = tuple[dict[str, int], dict[str, list[Violation]]]
"""How many violations of each check there are, and the first of them."""


def _collected(found: DataFrame, limit: int) -> Found:
    """Of a small journal: what is found is no more than the driver has anyway."""
    every: dict[str, list[Violation]] = {}
    for row in found.collect():
        violation = Violation(*(row[name] for name in Violation._fields))
        every.setdefault(row["check"], []).append(violation)
    return (
        {name: len(listed) for name, listed in every.items()},
        {name: sorted(listed)[:limit] for name, listed in every.items()},
    )


def _counted(found: DataFrame, limit: int) -> Found:
    try:
        counts = {row["check"]: row["count"] for row in found.groupBy("check").count().collect()}
        return counts, _first(found, limit) if counts else {}
    finally:
        found.unpersist()


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
