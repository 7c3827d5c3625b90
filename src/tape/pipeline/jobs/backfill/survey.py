"""What a backfill would do: counts and examples for each reaction, and nothing is changed."""

from collections.abc import Sequence
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tape.pipeline.jobs.backfill import evaluation
from tape.pipeline.jobs.backfill.evaluation import SEEN, seen_entry
from tape.pipeline.jobs.backfill.matching import NumberedReaction

SAMPLES: Final = 3
BROADCAST_TASKS: Final = 300_000
COUNTS: Final = ("matched", "coalesced", "errors", "already_there")


def survey(
    found: DataFrame, entries: DataFrame, tasks: DataFrame | None, rules: Sequence[NumberedReaction]
) -> list[dict[str, Any]]:
    """One record for each rule, of what was decided for these entries and which tasks there are."""
    nowhere = F.lit(False)
    marked = found.withColumn("there", nowhere) if tasks is None else _marked(found, tasks, rules)
    rows = {row.number: row.asDict() for row in marked.groupBy("number").agg(*_figures()).collect()}
    blank = dict.fromkeys((*COUNTS, "first", "last", "failed_first"), 0)
    records = [{**blank, **rows.get(rule.number, {})} for rule in rules]
    wanted = {record["failed_first"] for record in records}.union(*map(_sampled, records)) - {0}
    examples = _examples(entries, sorted(wanted))
    return [_record(rule, row, examples) for rule, row in zip(rules, records, strict=True)]


def _figures() -> list[Column]:
    """Long numbers only: Spark aggregates those in place, and would sort for anything else."""
    failed, seq = F.col("failed"), F.col("global_seq")
    fires = ~failed & F.col("left_to").isNull() & ~F.col("there")
    return [
        F.count_if(~failed).alias("matched"),
        F.count_if(F.col("left_to").isNotNull()).alias("coalesced"),
        F.count_if(failed).alias("errors"),
        F.count_if(F.col("there")).alias("already_there"),
        F.coalesce(F.min(F.when(~failed, seq)), F.lit(0)).alias("first"),
        F.coalesce(F.max(F.when(~failed, seq)), F.lit(0)).alias("last"),
        F.coalesce(F.min(F.when(failed, seq)), F.lit(0)).alias("failed_first"),
        *(
            F.coalesce(F.min_by(F.when(fires, seq), F.when(fires, F.xxhash64(seq, F.lit(k)))),
                       F.lit(0)).alias(f"sample_{k}")
            for k in range(SAMPLES)
        ),
    ]  # fmt: skip


def _marked(found: DataFrame, tasks: DataFrame, rules: Sequence[NumberedReaction]) -> DataFrame:
    """With `there`: whether the reaction has a task of the entry, in whatever shard."""
    numbers = {rule.reaction.reaction_id: rule.number for rule in rules}
    number = F.create_map(*(F.lit(part) for pair in numbers.items() for part in pair))
    known = tasks.where(F.col("reaction_id").isin(list(numbers))).select(
        number[F.col("reaction_id")].alias("number"),
        F.col("source_global_seq").alias("global_seq"),
        F.lit(True).alias("there"),
    )
    if known.limit(BROADCAST_TASKS + 1).count() <= BROADCAST_TASKS:
        known = F.broadcast(known)
    fires = ~found.failed & found.left_to.isNull()
    there = F.coalesce(F.col("there"), F.lit(False)) & fires
    return found.join(known, ["number", "global_seq"], "left").withColumn("there", there)


def _sampled(row: dict[str, Any]) -> set[int]:
    return {row.get(f"sample_{k}", 0) for k in range(SAMPLES)}


def _examples(entries: DataFrame, wanted: list[int]) -> dict[int, Any]:
    if not wanted:
        return {}
    rows = entries.where(F.col("global_seq").isin(wanted)).select(*SEEN).collect()
    return {row.global_seq: seen_entry(row) for row in rows}


def _record(
    rule: NumberedReaction, row: dict[str, Any], examples: dict[int, Any]
) -> dict[str, Any]:
    sample = sorted(_sampled(row) & examples.keys())
    failed = examples.get(row["failed_first"])
    return {
        "reaction_id": rule.reaction.reaction_id,
        **{name: row[name] for name in COUNTS},
        "would_fire": row["matched"] - row["coalesced"] - row["already_there"],
        "first": row["first"],
        "last": row["last"],
        "first_error": evaluation.reason(rule.reaction.predicate_cel, failed) if failed else "",
        "sample": [f"{seq} {examples[seq].subject}" for seq in sample],
    }
