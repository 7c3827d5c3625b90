"""Reads a store for an audit, in the order that lets it be written to meanwhile; see `frames`."""

import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from pyspark.sql import DataFrame

from tape.pipeline.job import Work
from tape.pipeline.jobs.audit.frames import Frames, Moment
from tape.pipeline.lake.frames import history
from tape.pipeline.lake.log import LakeLog
from tape.pipeline.session import prepared
from tape.pipeline.source.frames import journal
from tape.ports.retention import Retention
from tape.ports.store import Store

AT_ONCE: Final = 4
AGAIN: Final = "_again"
STEPS: Final[Sequence[tuple[str, ...]]] = (
    (
        "runs", "decisions", "effects", "obligations", "gates", "timers", "budgets", "values",
        "sessions", "reactions", "reaction_tallies", "reaction_cursors", "matcher",
        "event_drain_state",
    ),
    ("tasks",),
    tuple(name + AGAIN for name in ("reactions", "reaction_tallies", "reaction_cursors")),
)  # fmt: skip
"""Tables, one step after another. Nothing in the journal tells when a tally or a cursor changes, so
they are read before the tasks and again after them."""


def read_frames(work: Work, lake: str = "") -> Frames:
    before, store = _look(work)
    tables: dict[str, DataFrame] = {}
    for step in STEPS:
        tables |= _read_tables(work, step)
    after, _ = _look(work)
    # A lake has what was pruned, from where it begins.
    begins_after = LakeLog(lake).require().after if lake else after.pruned_through
    spark, url = work.spark, work.store_url
    options = {"from": str(begins_after), "upto": str(after.head)}
    entries = history(spark, url, lake, **options) if lake else journal(spark, url, **options)
    moment = Moment(
        before=before.head,
        head=after.head,
        begins_after=begins_after,
        pruned_through=before.pruned_through,
        audited_at_ms=time.time_ns() // 1_000_000,
        store=store,
    )
    return Frames(entries, tables, moment)


def _look(work: Work) -> tuple[Retention, str]:
    """How far the journal goes, and the store's own name for itself: it holds no password."""

    async def look(store: Store) -> tuple[Retention, str]:
        return await store.read_retention(), (await store.info()).store

    return work.use_store(look)


def _read_tables(work: Work, names: Iterable[str]) -> dict[str, DataFrame]:
    spark = prepared(work.spark)

    def read(name: str) -> tuple[str, DataFrame]:
        table = name.removesuffix(AGAIN)
        frame = spark.read.format("tape").options(url=work.store_url, table=table).load()
        # Not persisted: what is lost of it must not be read anew, at another time.
        return name, frame.localCheckpoint(eager=True)

    with ThreadPoolExecutor(AT_ONCE) as readers:
        return dict(readers.map(read, names))
