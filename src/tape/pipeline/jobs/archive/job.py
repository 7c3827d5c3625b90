"""The job `archive`: what the journal has and the lake has not yet, in steps.

Each step is a range of the journal that is written, looked through, compared with the journal and
committed by itself. A run that is killed goes on from the last commit; one that finds nothing new
does nothing. Two at once cannot both commit the same range.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

from tape.errors import InvalidArgument
from tape.journal.retention import find_recorded_before, parse_age
from tape.model.entry import Entry
from tape.pipeline.job import CheckContext, JobContext, JobProgress, Summary
from tape.pipeline.jobs.archive.writing import journal_range, merged, small_groups, written
from tape.pipeline.lake import delta
from tape.pipeline.lake.files import adopt, delete_files, delete_orphans, verify
from tape.pipeline.lake.log import LakeLog, now_ms
from tape.pipeline.lake.manifest import (
    LAYOUTS,
    Lake,
    LakeFile,
    Layout,
    appended,
    compacted,
    forgotten,
)
from tape.pipeline.lake.seam import refuse_foreign
from tape.pipeline.places import refuse_unwritable
from tape.ports.bulk import UseStore
from tape.ports.retention import Extent
from tape.ports.store import ReadEntries, Store

FILES_PER_STEP: Final = 4
ROWS_PER_FILE: Final = 500_000
GROUPS_PER_STEP: Final = 4


class JournalEnds(NamedTuple):
    """How far the journal goes, and what it has where the lake ends."""

    pruned_through: int
    head: int
    wanted: int
    at_seam: Entry | None


@dataclass(frozen=True, slots=True)
class Archive:
    """`upto` and `older_than` (as 7d, 12h, 30m) leave the newest entries for a later run.

    `keep_removed` is how long files that compaction replaced are kept for those who read them,
    `keep_orphans` how old what killed runs have left must be to be deleted.
    """

    name: ClassVar[str] = "archive"

    lake: str
    format: str = "parquet"
    upto: int | None = None
    older_than: str = ""
    rows_per_file: int = ROWS_PER_FILE
    compact: bool = False
    keep_removed: str = "1h"
    keep_orphans: str = "1d"

    def run(self, work: JobContext) -> Summary:
        started = time.monotonic()
        spans = self._spans()
        log, lake = self._begun()
        if lake.layout == "delta":
            delta.mirror(log, lake)  # what a killed run has committed and not told of
        counts = {"archived": 0, "files": 0}
        lake = self._archive(work, log, lake, counts)
        if self.compact:
            lake = self._compact(work, log, lake, counts)
        lake, counts["deleted"] = _clean(log, lake, *spans)
        facts: dict[str, object] = {
            "lake": str(log.path), "covered": f"{lake.after + 1}..{lake.through}",
            "files_in_lake": len(lake.files), "bytes_in_lake": sum(f.bytes for f in lake.files),
        }  # fmt: skip
        return Summary(self.name, counts, time.monotonic() - started, facts)

    def check_options(self, before: CheckContext) -> None:
        self._spans()
        log, lake = self._begun()
        refuse_unwritable(log.path, "lake")
        self._ends(before.use_store, lake)
        before.lakes.add(log.path)

    def _begun(self) -> tuple[LakeLog, Lake]:
        """The lake as it is; it has the format that was asked for."""
        log, layout = LakeLog(self.lake), self._layout()
        lake = log.begin(layout)
        if lake.layout != layout:
            raise InvalidArgument(f"{log.path} has the format {lake.layout}", field="format")
        if layout == "delta":
            delta.require()
        return log, lake

    def _spans(self) -> list[int]:
        named = {"keep_removed": self.keep_removed, "keep_orphans": self.keep_orphans}
        return [parse_age(text, field=name) for name, text in named.items()]

    def _layout(self) -> Layout:
        if self.format not in LAYOUTS:
            raise InvalidArgument(
                f"{self.format!r} is not one of {', '.join(LAYOUTS)}", field="format"
            )
        if self.rows_per_file < 1:
            raise InvalidArgument(f"{self.rows_per_file} is not 1 or more", field="rows_per_file")
        return self.format

    def _archive(self, work: JobContext, log: LakeLog, lake: Lake, counts: dict[str, int]) -> Lake:
        ends = self._ends(work.use_store, lake)
        after = lake.through if lake.number else ends.pruned_through
        begun = after
        while after < ends.wanted:
            through = min(ends.wanted, after + FILES_PER_STEP * self.rows_per_file)
            lake, rows = self._step(work, log, lake, after, through)
            counts["archived"] += rows[0]
            counts["files"] += rows[1]
            after = through
            work.report(JobProgress(self.name, after - begun, ends.wanted - begun, "entries"))
        return lake

    def _ends(self, use_store: UseStore, lake: Lake) -> JournalEnds:
        """Refused if the lake is another journal's."""
        seam = lake.seam
        before = parse_age(self.older_than, field="older_than") if self.older_than else None

        async def look(store: Store) -> JournalEnds:
            there = await store.retention.read_retention()
            wanted = there.head if self.upto is None else min(self.upto, there.head)
            if before is not None:
                wanted = await find_recorded_before(store, now_ms() - before, wanted)
            at_seam = []
            if seam is not None:
                query = ReadEntries(seam.last - 1, seam.last, 1, 1)
                at_seam = (await store.read_entries(query)).entries
            return JournalEnds(
                there.pruned_through, there.head, wanted, at_seam[0] if at_seam else None
            )

        ends = use_store(look)
        event_id = ends.at_seam.event_id if ends.at_seam else None
        refuse_foreign(lake, ends.head, ends.pruned_through, event_id)
        return ends

    def _step(
        self, work: JobContext, log: LakeLog, lake: Lake, after: int, through: int
    ) -> tuple[Lake, tuple[int, int]]:
        entries = journal_range(work.spark, work.store_url, after, through, self.rows_per_file)
        with written(entries, log.path) as found:
            verify(found, _measured(work, after, through))
            at = now_ms()
            files = adopt(log.path, found, after, through, [at] * len(found))
        first = found[0].first_event_id if found else ""
        lake = log.commit(
            lake,
            lambda now: appended(
                now, files, after=after, through=through, first_event_id=first, at_ms=at
            ),
        )
        _mirror_to_delta(log, lake)
        return lake, (sum(file.rows for file in files), len(files))

    def _compact(self, work: JobContext, log: LakeLog, lake: Lake, counts: dict[str, int]) -> Lake:
        groups = small_groups(lake.files, self.rows_per_file)
        counts["compacted"] = sum(map(len, groups))
        for start in range(0, len(groups), GROUPS_PER_STEP):
            some = groups[start : start + GROUPS_PER_STEP]
            lake = self._merge(work, log, lake, some)
            work.report(JobProgress("compact", start + len(some), len(groups), "files"))
        return lake

    def _merge(
        self, work: JobContext, log: LakeLog, lake: Lake, groups: Sequence[Sequence[LakeFile]]
    ) -> Lake:
        old = [file for group in groups for file in group]
        new: list[LakeFile] = []
        with written(merged(work.spark, log.path, groups), log.path) as found:
            for one, group in zip(found, groups, strict=True):
                extent = Extent(sum(f.rows for f in group), group[0].first, group[-1].last)
                verify([one], extent)
                youngest = max(file.archived_at_ms for file in group)
                new += adopt(log.path, [one], group[0].after, group[-1].through, [youngest])
        lake = log.commit(lake, lambda now: compacted(now, old, new, now_ms()))
        _mirror_to_delta(log, lake)
        return lake


def _measured(work: JobContext, after: int, through: int) -> Extent:
    async def measure(store: Store) -> Extent:
        return await store.retention.measure(after, through)

    return work.use_store(measure)


def _clean(log: LakeLog, lake: Lake, removed_ms: int, orphans_ms: int) -> tuple[Lake, int]:
    """Delete what was replaced long enough ago, and what killed runs have left."""
    due = [path for path, at in lake.removed.items() if at <= now_ms() - removed_ms]
    if due:
        # First they are forgotten: a file that is named must be there.
        lake = log.commit(lake, lambda now: forgotten(now, due, now_ms()))
        delete_files(log.path, due)
        _mirror_to_delta(log, lake)
    log.tidy()
    return lake, len(due) + delete_orphans(log, now_ms() - orphans_ms)


def _mirror_to_delta(log: LakeLog, lake: Lake) -> None:
    if lake.layout == "delta":
        delta.mirror(log, lake)
