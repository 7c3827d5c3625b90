"""Spark decides what the server's matcher decides: tasks, shards, bursts, errors, counts."""

from collections.abc import Sequence

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tape.model.reaction import Reaction, fnv1a, shard_of
from tape.pipeline.jobs.backfill import matching
from tape.pipeline.jobs.backfill.shards import fnv1a_all
from tests.pipeline.backfill.world import DESKS, by_server, by_spark, entries, frame, reactions
from tests.unit.subscriptions.subscribed import document, message, subscribed


def expect_alike(spark: SparkSession, count: int, rules: Sequence[Reaction]) -> None:
    made = list(entries(count))
    expected = by_server(made, rules)
    found = by_spark(matching.matches(frame(spark, made), rules))
    assert found.tasks == expected.tasks
    assert found.counts == expected.counts
    assert len({key[0] for key in expected.counts}) > len(rules) * 0.7
    assert sum(of[1] for of in expected.counts.values()) > count / 1_000
    assert sum(of[2] for of in expected.counts.values()) > count / 50


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(5_000, marks=pytest.mark.middle),
        pytest.param(200_000, marks=pytest.mark.long),
    ],
)
def test_forty_reactions_decide_as_in_the_server(spark: SparkSession, count: int) -> None:
    expect_alike(spark, count, reactions())


def test_more_reactions_than_a_plan_should_hold(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matching, "NATIVE_MOST", 7)
    expect_alike(spark, 1_000, reactions(14))


@pytest.mark.middle
async def test_entries_of_subscriptions_decide_as_in_the_server(
    spark: SparkSession, sqlite_url: str
) -> None:
    async with subscribed(sqlite_url) as desk:
        await desk.listen(document(dedup={"window_secs": 60}))
        await desk.accept(*(message(n, message_id=f"m{n % 7}") for n in range(20)))
        await desk.accept(message(21, b"{"))
        made = await desk._entries("/tape/subscription/")
    (rule, *_) = reactions(1)
    plain = rule._replace(predicate_cel="", debounce_ms=0)
    rules = [
        plain._replace(reaction_id="all", subject_pattern="/tape/subscription/**"),
        plain._replace(
            reaction_id="repeats", subject_pattern="/tape/subscription/*/orders"
        )._replace(predicate_cel="has(payload.key) && payload.key == 'm3'"),
    ]
    expected = by_server(made, rules)
    found = by_spark(matching.matches(frame(spark, made), rules))
    assert found == expected
    assert {task[0] for task in found.tasks} == {"all", "repeats"}
    assert len(found.tasks) > len(made)


def test_hashes_are_those_of_the_server() -> None:
    texts = ["", "a", "/tape/event/recorded/a", "größe", "日本語", "x" * 700, *DESKS]
    hashed = fnv1a_all(pa.array(texts)[1:])
    assert [int(one) % 2**64 for one in hashed] == [fnv1a(text) for text in texts[1:]]
    assert len(fnv1a_all(pa.array([], pa.string()))) == 0


def test_shards_are_those_of_the_server(spark: SparkSession) -> None:
    made = list(entries(200))
    (rule,) = [r._replace(subject_pattern="/**", predicate_cel="", num_shards=7, debounce_ms=0)
               for r in reactions(1)]  # fmt: skip
    found = matching.matches(frame(spark, made), [rule]).select("global_seq", "shard").collect()
    expected = {entry.global_seq: shard_of(entry.run_id, entry.subject, 7) for entry in made}
    assert dict(map(tuple, found)) == expected
