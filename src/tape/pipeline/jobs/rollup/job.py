"""The job: each of its aggregates from where it was to the journal's head."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pyspark.sql import functions as F

from tape.errors import InvalidArgument, Pruned
from tape.pipeline.job import CheckContext, JobContext, JobProgress, Summary
from tape.pipeline.jobs.rollup.bars import BARS_SCHEMA, bars_as_values
from tape.pipeline.jobs.rollup.periods import parse_period
from tape.pipeline.jobs.rollup.rolls import Bars, Counts, Latency, Roll
from tape.pipeline.jobs.rollup.tables import RollupTables, Version
from tape.pipeline.lake.frames import history
from tape.pipeline.lake.log import LakeLog
from tape.pipeline.places import refuse_no_lake, refuse_unwritable
from tape.pipeline.source.frames import journal
from tape.ports.retention import Retention
from tape.ports.store import Store

WHAT = ("counts", "latency", "bars")
_GLOBBED = frozenset("*?[]{}\\,\n")


@dataclass(frozen=True, slots=True)
class Rollup:
    """`out` is the folder of the tables; `lake` archived history to read besides the journal."""

    name: ClassVar[str] = "rollup"
    out: str
    what: tuple[str, ...] = WHAT
    lake: str = ""
    window: str = "1h"
    depth: int = 3
    base: str = "1m"
    to: tuple[str, ...] = ("5m", "15m", "1h", "1d")
    events: str = "market.klines."
    values: bool = False
    namespace: str = "bars"
    slice_entries: int = 5_000_000

    def check_options(self, before: CheckContext) -> None:
        rolls = self._rolls()
        refuse_unwritable(self.out, "out")
        refuse_no_lake(self.lake, before)
        there = before.use_store(_look)
        for roll in rolls:
            self.refuse_another(roll, RollupTables(Path(self.out, roll.name)).version(), there)

    def run(self, work: JobContext) -> Summary:
        began = time.monotonic()
        rolls = self._rolls()
        there = work.use_store(_look)
        counts: dict[str, int] = {"read": 0}
        for roll in rolls:
            done = _Rolling(self, work, roll, there).run()
            counts |= done | {"read": max(counts["read"], done["read"])}
        facts: dict[str, object] = {"through": there.head, "out": self.out}
        return Summary(self.name, counts, time.monotonic() - began, facts)

    def refuse_another(self, roll: Roll, version: Version, there: Retention) -> None:
        """Refuse tables that were made with other settings, or of another journal."""
        where = f"{self.out}/{roll.name}"
        if version.number and version.settings != roll.settings:
            raise InvalidArgument(
                f"{where} was made with {version.settings}, not with {roll.settings}: "
                "name another folder", field="out",
            )  # fmt: skip
        if version.through > there.head:
            raise InvalidArgument(
                f"{where} is at {version.through}, but the journal ends at "
                f"{there.head}: it was made from another store", field="out",
            )  # fmt: skip
        pruned = there.pruned_through
        if version.number and version.through < pruned and not self.lake:
            raise Pruned(
                f"{where} is at {version.through}, but the journal is pruned up to {pruned}: "
                "name the lake where the rest is archived"
            )

    def _rolls(self) -> list[Roll]:
        """What is asked for, with everything wrong about it said before anything is done."""
        if not self.out or "://" in self.out or _GLOBBED & set(self.out):
            raise InvalidArgument(
                f"{self.out!r} is not a folder on a local or shared file system (or has characters "
                "that Spark takes for a pattern)", field="out",
            )  # fmt: skip
        if self.depth < 1:
            raise InvalidArgument("must be at least 1", field="depth")
        if self.slice_entries < 1:
            raise InvalidArgument("must be at least 1", field="slice_entries")
        makers: dict[str, Callable[[], Roll]] = {
            "counts": lambda: Counts(parse_period(self.window, "window"), self.depth),
            "latency": lambda: Latency(parse_period(self.window, "window")),
            "bars": self._bars,
        }
        if not self.what:
            raise InvalidArgument(f"names none of {', '.join(makers)}", field="what")
        for what in self.what:
            if what not in makers:
                raise InvalidArgument(f"{what!r} is not one of {', '.join(makers)}", field="what")
        return [makers[what]() for what in dict.fromkeys(self.what)]

    def _bars(self) -> Bars:
        base = parse_period(self.base, "base")
        periods = tuple(parse_period(text, "to") for text in dict.fromkeys(self.to))
        for period in periods:
            if period.ms <= base.ms or period.ms % base.ms:
                raise InvalidArgument(f"{period.name} is not made of {base.name}", field="to")
        if not periods:
            raise InvalidArgument("names no period", field="to")
        if not self.events:
            raise InvalidArgument("is empty: say how the types of klines begin", field="events")
        return Bars(base, periods, self.events)


async def _look(store: Store) -> Retention:
    return await store.retention.read_retention()


class _Rolling:
    """One aggregate, slice by slice, each published before the next."""

    def __init__(self, job: Rollup, work: JobContext, roll: Roll, there: Retention) -> None:
        self._job = job
        self._work = work
        self._roll = roll
        self._there = there
        self._tables = RollupTables(Path(job.out, roll.name))

    def run(self) -> dict[str, int]:
        version = self._tables.version()
        self._job.refuse_another(self._roll, version, self._there)
        counts: dict[str, int] = {"read": 0}
        if version.owed:
            self._write_values(version)
        head = self._there.head
        after = version.through if version.number else self._first()
        begun = after
        while after < head:
            upto = min(after + self._job.slice_entries, head)
            for name, count in self._slice(after, upto).items():
                counts[name] = counts.get(name, 0) + count
            counts["read"] += upto - after
            after = upto
            self._work.report(
                JobProgress(self._job.name, after - begun, head - begun, "entries", self._roll.name)
            )
        return counts

    def _first(self) -> int:
        """Behind which entry there is something to read."""
        if self._job.lake:
            return LakeLog(self._job.lake).require().after
        return self._there.pruned_through

    def _slice(self, after: int, upto: int) -> dict[str, int]:
        # Each aggregate reads a frame once, so its filters may be pushed into the store.
        options = {"from": str(after), "upto": str(upto), "push_filters": "true"}
        spark, url, lake = self._work.spark, self._work.store_url, self._job.lake
        entries = history(spark, url, lake, **options) if lake else journal(spark, url, **options)
        draft = self._tables.draft(upto)
        counts = self._roll.advance(self._work.spark, entries, draft)
        draft.owed = self._job.values and counts.get("bars_changed", 0) > 0
        version = draft.version(self._roll.settings)
        self._tables.publish(version)
        if version.owed:
            self._write_values(version)
        return counts

    def _write_values(self, version: Version) -> None:
        """Set the values that are owed. Told twice they count once: write and epoch have names."""
        bars = self._tables.read(self._work.spark, "bars", BARS_SCHEMA)
        changed = bars.where(F.col("changed_at") == version.through)
        values = bars_as_values(changed, self._job.namespace)
        values.write.format("tape").mode("append").options(
            **self._work.destination,
            into="values",
            write_id=f"rollup/{version.series}",
            epoch=str(version.number),
        ).save()
        self._tables.publish(version.settled())
