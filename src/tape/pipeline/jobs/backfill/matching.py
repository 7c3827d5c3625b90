"""What reactions make of entries, as `reactions.rules` decides it, with the whole of Spark.

Each entry is looked at once for all reactions: an array holds the number of each reaction that
matches (negative where the predicate has no result), and becomes rows. Debounced reactions are a
second look of their own, since only their matches need to be brought together by subject.

Spark must compile what it decides by columns. A method of more than 8,000 bytes of code its JVM
never compiles further, so sessions have `spark.sql.codegen.hugeMethodLimit` at that.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from operator import or_
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from tape.model.reaction import Reaction
from tape.model.subject import Pattern, parse_pattern
from tape.pipeline.jobs.backfill import evaluation
from tape.pipeline.jobs.backfill.evaluation import SentReaction
from tape.pipeline.jobs.backfill.shards import key_hash, shard_of_hash
from tape.pipeline.schema import PAYLOAD
from tape.predicates import STORED_LIMITS, Predicate, check
from tape.predicates.to_spark import parsed_payload, spark_predicate

KEPT: Final = ("global_seq", "ts_ms", "subject")
FEW_ENTRIES: Final = 20_000
NATIVE_MOST: Final = 200
"""So many reactions are columns of one plan; beyond, Python's trie is quicker than Spark's plan."""


class NumberedReaction(NamedTuple):
    """A reaction and its number, from 1, in one list of reactions."""

    number: int
    reaction: Reaction
    pattern: Pattern
    predicate: Predicate


def numbered(reactions: Sequence[Reaction]) -> list[NumberedReaction]:
    return [
        NumberedReaction(
            number,
            reaction,
            parse_pattern(reaction.subject_pattern),
            check(reaction.predicate_cel, limits=STORED_LIMITS),
        )
        for number, reaction in enumerate(reactions, start=1)
    ]


def matches(entries: DataFrame, reactions: Sequence[Reaction]) -> DataFrame:
    """A row for each reaction and entry it matches, or has no result for: then `error` says why.

    Columns: reaction_id, shard, global_seq, ts_ms, subject, error, left_to. Work of a debounced
    reaction whose burst goes on is left to a later entry: `left_to` is that one's shard, else NULL.
    """
    rules = numbered(reactions)
    found = decided(entries, rules, keep=evaluation.SEEN)
    ids = _of_each(rules, lambda rule: rule.reaction.reaction_id)
    expressions = {rule.number: rule.reaction.predicate_cel for rule in rules}
    return found.select(
        F.element_at(ids, F.col("number")).alias("reaction_id"),
        "shard", "global_seq", "ts_ms", "subject",
        evaluation.reasons(expressions).alias("error"),
        "left_to",
    )  # fmt: skip


def decided(
    entries: DataFrame,
    rules: Sequence[NumberedReaction],
    keep: Sequence[str] = (),
    later: DataFrame | None = None,
    *,
    native: bool = True,
) -> DataFrame:
    """Decide which reactions match, by number, with `failed` for `error` and the columns to keep.

    `later` entries may go on with a burst; they have rows as well, but only of debounced reactions.
    Without `native` all is decided in Python, for few entries: compiling a plan with forty
    predicates takes longer than deciding thousands of entries without one.
    """
    wanted = tuple(dict.fromkeys((*KEPT, *keep)))
    if native and PAYLOAD not in entries.columns:
        entries = _with_payload(entries, rules)
        later = None if later is None else _with_payload(later, rules)
    plain = [rule for rule in rules if not rule.reaction.debounce_ms]
    debounced = [rule for rule in rules if rule.reaction.debounce_ms]
    frames = []
    if plain or not debounced:
        found = _found(entries, plain, wanted, native=native)
        frames.append(found.withColumn("left_to", F.lit(None).cast("int")))
    if debounced:
        if later is not None:
            entries = entries.unionByName(later)
        found = _found(entries, debounced, wanted, native=native)
        frames.append(_with_bursts(found, debounced))
    return frames[0] if len(frames) == 1 else frames[0].unionByName(frames[1])


def _with_payload(entries: DataFrame, rules: Sequence[NumberedReaction]) -> DataFrame:
    """Parsed for those entries only that some pattern is for."""
    chosen = entries.where(_any(rules)) if len(rules) <= NATIVE_MOST else entries
    return chosen.withColumn(PAYLOAD, parsed_payload(F.col("payload_json")))


def _any(rules: Sequence[NumberedReaction]) -> Column:
    patterns = {rule.pattern.text: rule.pattern for rule in rules}
    return reduce(or_, map(subject_matches, patterns.values()), F.lit(False))


def _found(
    entries: DataFrame, rules: Sequence[NumberedReaction], wanted: Sequence[str], *, native: bool
) -> DataFrame:
    """A row for each hit.

    The hits are a column before they are rows: Spark compiles a projection and interprets a
    generator. The outer explode keeps it from asking all predicates twice, once in a filter for
    entries with any hit.
    """
    found = entries.select(*wanted, "run_id", _hits(rules, native=native).alias("hits"))
    hits = found.select(*wanted, "run_id", F.explode_outer("hits").alias("hit"))
    sharded = [rule.number for rule in rules if rule.reaction.num_shards > 1]
    number = F.abs("hit")
    shard = F.lit(0)
    if sharded:
        shards = _of_each(rules, lambda rule: rule.reaction.num_shards)
        shard = shard_of_hash(key_hash(number.isin(sharded)), F.element_at(shards, number))
    return hits.where(F.col("hit").isNotNull()).select(
        number.alias("number"), (F.col("hit") < 0).alias("failed"), shard.alias("shard"), *wanted
    )


def _hits(rules: Sequence[NumberedReaction], *, native: bool) -> Column:
    """Each pattern is asked once, and only where it matches the predicates behind it."""
    by_pattern: dict[Pattern, list[Column]] = {}
    asked: list[NumberedReaction] = []
    answers = _answers(rules[:NATIVE_MOST]) if native else {}
    for rule in rules:
        if rule.predicate in answers:
            hit = answers[rule.predicate] * rule.number
            by_pattern.setdefault(rule.pattern, []).append(hit)
        else:
            asked.append(rule)
    none = F.array().cast("array<int>")
    hits = none
    if by_pattern:
        parts = (
            F.when(subject_matches(pattern), F.array(*columns)).otherwise(none)
            for pattern, columns in by_pattern.items()
        )
        hits = F.array_remove(F.concat(*parts), 0)
    if not asked:
        return hits
    wanted = _any(asked) if len(asked) <= NATIVE_MOST else F.lit(True)
    questions = [
        SentReaction(rule.number, rule.pattern.text, rule.reaction.predicate_cel) for rule in asked
    ]
    return F.concat(hits, evaluation.decisions(questions, wanted))


def _answers(rules: Sequence[NumberedReaction]) -> dict[Predicate, Column]:
    """1 where a predicate holds, 0 where not, -1 where it has no result. Those that only Python can
    tell are left out."""
    answers = {}
    for predicate in dict.fromkeys(rule.predicate for rule in rules):
        if predicate.always_true:
            answers[predicate] = F.lit(1)
        elif (translated := spark_predicate(predicate)).engine == "column":
            answers[predicate] = F.coalesce(translated.column.cast("int"), F.lit(-1))
    return answers


def _with_bursts(found: DataFrame, rules: Sequence[NumberedReaction]) -> DataFrame:
    """As `reactions.rules` does: the next match of the subject takes the place of one whose window
    it falls into."""
    burst = Window.partitionBy("number", "subject", "failed").orderBy("global_seq")
    windows = _of_each(rules, lambda rule: rule.reaction.debounce_ms)
    until = F.col("ts_ms") + F.element_at(windows, F.col("number"))
    goes_on = ~F.col("failed") & (F.lead("ts_ms").over(burst) < until)
    return found.withColumn("left_to", F.when(goes_on, F.lead("shard").over(burst)))


def _of_each(
    rules: Sequence[NumberedReaction], of: Callable[[NumberedReaction], int | str]
) -> Column:
    """A literal array, to look up by number what holds for a rule."""
    values = {rule.number: of(rule) for rule in rules}
    blank = type(next(iter(values.values())))()
    return F.array(*(F.lit(values.get(n, blank)) for n in range(1, max(values) + 1)))


SUBJECT = "subject"


def subject_matches(pattern: Pattern) -> Column:
    """Whether a well-formed subject matches; never NULL."""
    subject = F.col(SUBJECT)
    if pattern.everything:
        return F.lit(True)
    if pattern.exact:
        return subject == pattern.prefix
    if "*" not in pattern.segments:
        return (subject == pattern.prefix) | subject.startswith(pattern.prefix + "/")
    # Both ends are cheaper than the expression, and most subjects fail one.
    ends = subject.startswith(pattern.prefix)
    if not pattern.deep:
        ends &= subject.endswith(pattern.text.rpartition("*")[2])
    return ends & subject.rlike(f"^{pattern.expression.pattern}$")
