"""Reactions of every kind, entries for them, the same for a seed, and what the server decides."""

import random
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import orjson
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tape.model.entry import Entry
from tape.model.event import NewEvent
from tape.model.reaction import HandlerKind, NewReaction, Reaction
from tape.model.subject import build_subject
from tape.pipeline.schema import ENTRY_SCHEMA
from tape.reactions.rules import Matched, ReactionRule, ReactionRules
from tests.pipeline.lake.world import ARROW_TYPES

SEED = 5
TYPES = ("order", "trade", "quote", "alarm", "größe")
DESKS = ("1", "2", "7", "ünï/cøde", "_", "", "a b", "日本")
PREDICATES = (
    "",
    "payload.n % 3 == 0",
    "payload.price > 50.0",
    'payload.side == "buy" && payload.n > 10',
    'payload.name.startsWith("ü")',
    "int(payload.text) > 50",
    "payload.missing > 1",
    "has(payload.price) && payload.price < 20.0",
    "payload.tags.exists(t, t == 'hot')",
    "payload.tags.all(t, size(t) > 2) || payload.n > 900",
    'kind == "event" && ts_ms % 2 == 0',
    'run_id != "" && seq > 3',
    'subject.endsWith("/7")',
    "payload.price / 0.0 > 1.0",
    "payload.n / (payload.n % 2) > 5",
    'kind == "value" && prev_value_json != "null"',
)
PATTERNS = (
    "/**",
    "/tape/event/recorded/**",
    "/tape/event/recorded/order/**",
    "/tape/event/recorded/order",
    "/tape/event/recorded/*/desk/7",
    "/tape/event/recorded/gr%C3%B6%C3%9Fe/**",
    "/tape/event/recorded/*/*/%C3%BCn%C3%AF%2Fc%C3%B8de",
    "/tape/event/recorded/trade/desk/_",
    "/tape/event/recorded/*/desk/*",
    "/tape/value/**",
    "/tape/*/*/order/**",
    "/tape/event/recorded/quote/desk/%5F",
    "/tape/event/*",
)


def new_reactions(count: int = 40, **settings: Any) -> list[NewReaction]:
    """Patterns and predicates in turn; every third is sharded, every seventh debounced."""
    return [
        NewReaction(
            f"réaction {k}",
            PATTERNS[k % len(PATTERNS)],
            HandlerKind.TASK,
            predicate_cel=PREDICATES[k % len(PREDICATES)],
            num_shards=1 + (k % 3 == 1) * (1 + k % 5),
            debounce_ms=(k % 7 == 3) * 400,
            max_concurrency=10_000,
            **settings,
        )
        for k in range(count)
    ]


def reactions(count: int = 40) -> list[Reaction]:
    made = []
    for new in new_reactions(count):
        settings = new._asdict()
        del settings["from_global_seq"]
        made.append(Reaction(**settings, created_at_ms=0, deleted=0))
    return made


def payload(chance: random.Random, n: int) -> str:
    made: dict[str, Any] = {
        "n": n % 1_000,
        "side": chance.choice(("buy", "sell")),
        "price": chance.choice((chance.random() * 100, 50, "50")),
        "text": chance.choice((str(chance.randrange(100)), "none", " 7", "0x10", "1e2")),
        "name": chance.choice(("über", "uber", "")),
        "tags": chance.choice((["hot"], [], ["cold", 7], "hot", None)),
    }
    for key in chance.sample(sorted(made), chance.randrange(3)):
        del made[key]
    return orjson.dumps(made).decode()


def events(count: int, seed: int = SEED) -> list[NewEvent]:
    chance = random.Random(seed)
    return [
        NewEvent(chance.choice(TYPES), payload(chance, n), "desk", chance.choice(DESKS))
        for n in range(count)
    ]


def entries(count: int, seed: int = SEED) -> Iterator[Entry]:
    """Events and changes of values, some of runs, with gaps in their numbers and bursts in time."""
    chance = random.Random(seed)
    seq, ts_ms = 0, 1_700_000_000_000
    for n in range(count):
        seq += chance.choice((1, 1, 1, 2))
        ts_ms += chance.choice((0, 0, 1, 30, 500, -5))
        run_id = f"run-é{chance.randrange(50)}" if chance.random() < 0.4 else ""
        body = payload(chance, n)
        kind = "event"
        subject = build_subject(
            "event", "recorded", chance.choice(TYPES), "desk", chance.choice(DESKS)
        )
        if chance.random() < 0.1:
            kind, subject = "value", build_subject("value", "changed", "ns", chance.choice(DESKS))
            body = orjson.dumps({
                "value_json": body, "prev_value_json": chance.choice(("null", "1"))
            }).decode()  # fmt: skip
        yield Entry(
            seq, run_id, n % 9 if run_id else 0, kind, subject, body, 1, "", "", "", ts_ms,
            f"e{n}", "", "", "", "", "", ts_ms, "",
        )  # fmt: skip


def frame(spark: SparkSession, made: Sequence[Entry], partitions: int = 3) -> DataFrame:
    columns = dict(zip(Entry._fields, zip(*made, strict=True), strict=True))
    table = pa.table({name: pa.array(columns[name], ARROW_TYPES[name]) for name in Entry._fields})
    return spark.createDataFrame(table, ENTRY_SCHEMA).repartition(partitions)


class Decided(NamedTuple):
    """Tasks, and per shard of a reaction: matched, coalesced, errors, the last error."""

    tasks: set[tuple[str, int, int, int, str]]
    counts: dict[tuple[str, int], tuple[int, int, int, str]]


def by_server(made: Sequence[Entry], rules: Sequence[Reaction]) -> Decided:
    matched: Matched = ReactionRules([ReactionRule(one, []) for one in rules]).match(
        made, made[-1].global_seq, len(made) * len(rules) + 1
    )
    return Decided(
        {task[:5] for task in matched.tasks},
        {
            (step.reaction_id, step.shard): (
                step.matched, step.coalesced, step.predicate_errors, step.last_error,
            )
            for step in matched.cursors
        },
    )  # fmt: skip


def by_spark(found: DataFrame) -> Decided:
    """What a frame of matches comes to, counted in plain Python."""
    tasks = set()
    counts: dict[tuple[str, int], list[Any]] = {}
    for row in sorted(found.collect(), key=lambda row: row.global_seq):
        of_shard = counts.setdefault((row.reaction_id, row.shard), [0, 0, 0, ""])
        if row.error is not None:
            of_shard[2] += 1
            of_shard[3] = row.error
            continue
        of_shard[0] += 1
        if row.left_to is None:
            tasks.add((row.reaction_id, row.shard, row.global_seq, row.ts_ms, row.subject))
        else:
            counts.setdefault((row.reaction_id, row.left_to), [0, 0, 0, ""])[1] += 1
    return Decided(tasks, {key: tuple(of) for key, of in counts.items()})
