"""Reads a store for an audit, in the order that lets it be written to meanwhile; see `frames`."""

import time
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Final

from pyspark.sql import DataFrame

from tape.pipeline.job import JobContext
from tape.pipeline.jobs.audit.catalogue import CHECKS
from tape.pipeline.jobs.audit.check import columns_read
from tape.pipeline.jobs.audit.frames import ENTRY_COLUMNS, AuditScope, Frames
from tape.pipeline.jobs.audit.small_tables import (
    AGAIN,
    JOURNAL,
    MOST_ROWS,
    SmallTables,
    Wanted,
    keep_local,
    local,
    read_small_journal,
    read_small_tables,
    schema_of,
)
from tape.pipeline.lake.frames import history
from tape.pipeline.lake.log import LakeLog
from tape.pipeline.session import prepared
from tape.pipeline.source.frames import journal
from tape.pipeline.source.history import HistoryReader
from tape.ports.bulk import BulkReader, UseStore
from tape.ports.bulk_tables import SIDE_TABLES
from tape.ports.retention import Retention
from tape.ports.store import Store

AT_ONCE: Final = 4
TWICE: Final = ("reactions", "reaction_tallies", "reaction_cursors", "writes")
LATE: Final = ("tasks", "task_queue", "listeners")
LAST: Final = ("sequences",)
STEPS: Final[Sequence[tuple[str, ...]]] = (
    tuple(name for name in SIDE_TABLES if name not in (*LATE, *LAST)),
    LATE,
    (*(name + AGAIN for name in TWICE), *LAST),
)
"""Tables, one step after another. Nothing in the journal tells when a tally or a cursor changes, so
they are read before the tasks and again after them. A listener counts what it has written down, and
is read after that. A number is given out before its row is there,
so what was given out is read last."""


def read_frames(work: JobContext, names: Collection[str] = (), lake: str = "") -> Frames:
    """Read what these checks look at, or all of them, and no other column."""
    wanted = columns_read({n: check for n, check in CHECKS.items() if not names or n in names})
    columns = tuple(dict.fromkeys([*ENTRY_COLUMNS.split(), *wanted.pop(JOURNAL, ())]))
    before, store = _look(work)
    tables = _read_tables(work, wanted)
    after, _ = _look(work)
    # A lake has what was pruned, from where it begins.
    begins_after = LakeLog(lake).require().after if lake else after.pruned_through
    moment = AuditScope(
        # What was pruned was there, even if nothing came after it.
        before=max(before.head, before.pruned_through),
        head=max(after.head, after.pruned_through),
        begins_after=begins_after,
        pruned_through=before.pruned_through,
        audited_at_ms=time.time_ns() // 1_000_000,
        store=store,
    )
    entries = _read_small_journal(work, columns, moment, lake)
    if entries is not None:
        return Frames(
            entries, tables, moment, empty=tables.empty, keep_local=keep_local(work.spark)
        )
    options = {"from": str(begins_after), "upto": str(after.head)}
    spark, url = work.spark, work.store_url
    entries = history(spark, url, lake, **options) if lake else journal(spark, url, **options)
    return Frames(entries.select(*columns), tables, moment, empty=tables.empty)


def has_few_entries(use_store: UseStore, lake: str = "") -> bool:
    """Whether the journal is one of a few entries, of which the driver will hold all."""

    async def look(store: Store) -> Retention:
        return await store.retention.read_retention()

    there = use_store(look)
    begins_after = LakeLog(lake).require().after if lake else there.pruned_through
    return there.head - begins_after <= MOST_ROWS


def _look(work: JobContext) -> tuple[Retention, str]:
    """How far the journal goes, and the store's own name for itself: it holds no password."""

    async def look(store: Store) -> tuple[Retention, str]:
        return await store.retention.read_retention(), (await store.info()).store

    return work.use_store(look)


def _read_tables(work: JobContext, wanted: Wanted) -> SmallTables:
    """The tables, one step after another."""
    tables = SmallTables(prepared(work.spark))
    for step in STEPS:
        asked = {name: wanted[name] for name in step if name in wanted}
        with closing(work.use_store.reader()) as reader:
            few = read_small_tables(reader, asked)
        tables.add(few, _read_large(work, {n: c for n, c in asked.items() if n not in few}))
    return tables


def _read_large(work: JobContext, wanted: Wanted) -> dict[str, DataFrame]:
    def read(name: str) -> tuple[str, DataFrame]:
        options = {"url": work.store_url, "table": name.removesuffix(AGAIN)}
        source = work.spark.read.format("tape").options(**options)
        frame = source.schema(schema_of(name, wanted[name])).load()
        # Not persisted: what is lost of it must not be read anew, at another time.
        return name, frame.localCheckpoint(eager=True)

    with ThreadPoolExecutor(AT_ONCE) as readers:
        return dict(readers.map(read, wanted))


def _read_small_journal(
    work: JobContext, columns: tuple[str, ...], moment: AuditScope, lake: str
) -> DataFrame | None:
    """The entries, if there are few and they are not large."""
    if moment.head - moment.begins_after > MOST_ROWS:
        return None
    with closing(work.use_store.reader()) as live:
        reader: BulkReader = live
        if lake:
            reader = HistoryReader(LakeLog(lake), live)
            reader.bounds()  # refuses a lake of another journal
        held = read_small_journal(reader, moment.begins_after, moment.head, columns)
    return None if held is None else local(work.spark, held, schema_of(JOURNAL, columns))
