"""Journals and lakes for tests, and what is in them row for row."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_type

from tape.bus import Bus
from tape.model.entry import Entry
from tape.model.event import NewEvent
from tape.pipeline.job import JobContext, Summary
from tape.pipeline.jobs.archive.job import Archive
from tape.pipeline.lake.files import adopt, look_through, staging_folder
from tape.pipeline.lake.log import LakeLog, now_ms
from tape.pipeline.lake.manifest import appended
from tape.pipeline.schema import ENTRY_SCHEMA
from tape.ports.store import ReadEntries
from tape.programs.connect import open_bus
from tape.settings import Settings
from tape.stores.blocking import Stores
from tape.stores.by_url import open_store

COLUMNS = list(Entry._fields)
ARROW_TYPES = {field.name: to_arrow_type(field.dataType) for field in ENTRY_SCHEMA}
PAYLOADS = ('{"price": 1.50, "sym": "A"}', '{"a":1,"a":2}', '"ü\\u0000"', "null", "[1, 2,  3]")


def some_events(first: int, count: int) -> list[NewEvent]:
    return [
        NewEvent(
            ("order", "fill", "quote")[n % 3],
            PAYLOADS[n % len(PAYLOADS)],
            entity_type="sym",
            entity_id=f"s {n % 7}",
            idempotency_key=f"k{n}" if n % 2 else "",
            source="tests",
        )
        for n in range(first, first + count)
    ]


async def record(bus: Bus, first: int, count: int) -> None:
    for start in range(first, first + count, 500):
        await bus.record_events(some_events(start, min(500, first + count - start)))


def fill(url: str, count: int, first: int = 1) -> None:
    async def write() -> None:
        bus = await open_bus(url)
        await record(bus, first, count)
        await bus.close()

    asyncio.run(write())


def entries_of(url: str) -> list[Entry]:
    async def read() -> list[Entry]:
        store = await open_store(url, Settings())
        found = await store.read_entries(ReadEntries(0, 2**62, 10**6, 1 << 40))
        await store.close()
        return found.entries

    return asyncio.run(read())


def archive(spark: SparkSession, url: str, lake: Path, **options: Any) -> Summary:
    return Archive(str(lake), **options).run(JobContext(spark, url, Stores().store(url)))


def rows(frame: DataFrame) -> list[Entry]:
    return sorted(Entry(*row) for row in frame.select(*COLUMNS).collect())


def history(spark: SparkSession, url: str, lake: Path, **options: Any) -> DataFrame:
    return spark.read.format("tape").options(url=url, lake=str(lake), **options).load()


def plant(lake: Path, entries: Iterable[Entry], after: int, archived_at_ms: int = 0) -> None:
    """Put entries into a lake as one file, without Spark."""
    log, found = LakeLog(lake), list(entries)
    folder = staging_folder(log.path)
    folder.mkdir(parents=True)
    columns = {
        name: pa.array([getattr(entry, name) for entry in found], kind)
        for name, kind in ARROW_TYPES.items()
    }
    pq.write_table(pa.table(columns), folder / "part-0.parquet")
    written = look_through(folder / "part-0.parquet")
    assert written is not None
    files = adopt(log.path, [written], after, written.last, [archived_at_ms])
    log.commit(
        log.begin("parquet"),
        lambda now: appended(
            now, files, after=after, through=written.last,
            first_event_id=written.first_event_id, at_ms=now_ms(),
        ),
    )  # fmt: skip
