"""The act on Spark: the day is archived, tried again, rolled up and audited."""

import asyncio
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from tape.cli.demo import desk
from tape.cli.demo.stage import Stage
from tape.cli.demo.trading import kline_minutes
from tape.errors import SparkUnavailable
from tape.model.reaction import HandlerKind, NewReaction
from tape.stores.by_url import sqlite_path

if TYPE_CHECKING:  # Spark is loaded only if it is there
    from tape.pipeline.job import Job, Summary

TITLE = "The night shift"
STORY = (
    "Spark takes the journal as a table: it archives the day, tries a rule on it that nobody had "
    "thought of in the morning, makes bars of the prices, and audits everything."
)
HOUR_MS = 60 * desk.MINUTE_MS
HEDGE = NewReaction(
    "hedge",
    "/tape/event/recorded/order.filled/**",
    HandlerKind.TASK,
    predicate_cel=f"payload.notional > {desk.LARGE}",
    engine="spark",
)


async def play(stage: Stage, spark: Any = None) -> None:
    if find_spec("pyspark") is None:
        stage.say(escape("this act needs Spark: pip install 'tape-bus[spark]'"))
        return
    await stage.client.register_reaction(HEDGE)
    head = (await stage.client.info()).head_global_seq
    try:
        await asyncio.to_thread(_on_spark, stage, head, spark)
    except SparkUnavailable as missing:
        stage.say(escape(f"this act is left out: {missing}"))


def _on_spark(stage: Stage, head: int, given: Any) -> None:
    from tape.pipeline.java import prefer_quick_start
    from tape.pipeline.jobs.archive.job import Archive
    from tape.pipeline.jobs.audit.job import Audit
    from tape.pipeline.jobs.backfill.job import Backfill
    from tape.pipeline.jobs.rollup.job import Rollup
    from tape.pipeline.session import session, silenced_java
    from tape.spark import run

    folder = sqlite_path(stage.url).parent
    lake, report = str(folder / "lake"), str(folder / "audit.html")
    prefer_quick_start()
    with silenced_java():
        spark = given or session(config={"spark.sql.shuffle.partitions": "2"})

    def does(name: str, job: "Job") -> "Summary":
        task = stage.progress.add_task(name, total=None)
        try:
            return run(spark, stage.url, job)
        finally:
            stage.progress.remove_task(task)

    try:
        _archived(stage, does("archive", Archive(lake)), head)
        _tried(stage, does("backtest", Backfill((HEDGE.reaction_id,), lake=lake, dry_run=True)))
        bars = Rollup(str(folder / "bars"), ("bars",), lake, to=("1h", "1d"))
        _rolled_up(stage, does("bars", bars))
        _audited(stage, does("audit", Audit(lake, report=report)))
    finally:
        if given is None:
            spark.stop()


def _archived(stage: Stage, done: "Summary", head: int) -> None:
    stage.promise(
        f"{done.counts['archived']:,} entries are in the lake, each once",
        done.counts["archived"] == head and done.facts["covered"] == f"1..{head}",
    )


def _tried(stage: Stage, done: "Summary") -> None:
    seen = len(stage.followers["risk"].seen)
    stage.promise(
        f"a hedge for large fills would have fired {done.counts['would_fire']:,} times that day, "
        "for just the fills that risk saw live",
        done.counts["would_fire"] == seen,
    )


def _rolled_up(stage: Stage, done: "Summary") -> None:
    made = done.counts["bars_changed"]
    first_ms, minutes = desk.OPENS_MS, kline_minutes(stage.events)
    last_ms = first_ms + (minutes - 1) * desk.MINUTE_MS
    periods = [last_ms // ms - first_ms // ms + 1 for ms in (HOUR_MS, 24 * HOUR_MS)]
    stage.promise(
        f"{minutes * len(desk.SYMBOLS):,} prices became {made} bars, of hours and of days",
        made == sum(periods) * len(desk.SYMBOLS),
    )


def _audited(stage: Stage, done: "Summary") -> None:
    checks, entries = done.counts["checks"], done.counts["entries"]
    stage.promise(
        f"the audit made {checks} checks of {entries:,} entries and found nothing wrong",
        not done.failed and done.counts["warnings"] == 0,
    )
    for name, found in done.facts.items():
        if isinstance(found, list):
            stage.say(escape(f"{name}: {'; '.join(found)}"))
