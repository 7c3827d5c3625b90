"""History as one table: what the lake has from the lake, what comes after it from the journal.

The lake is always looked at first. It covers its range without a gap and only grows, and a prune
drops only what is in it; so whatever the journal no longer has when it is asked, the lake has by
then. A scan goes on from one number, whichever of the two it comes from next, so at the seam
nothing is missing and nothing comes twice, whatever archive, compaction and prune do meanwhile.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Final

import pyarrow as pa

from tape.errors import Pruned, StoreMismatch
from tape.pipeline.lake.log import LakeLog
from tape.pipeline.lake.manifest import Lake
from tape.pipeline.lake.reading import read_file
from tape.pipeline.lake.seam import refuse_foreign
from tape.ports.bulk import Bounds, BulkReader, OpenStores, Scan, Staging, UseStore
from tape.settings import Settings

TRIES: Final = 20
"""How often the lake and the journal are looked at again when both have moved meanwhile."""


class WithLake:
    """Stores whose readers see archived and live entries as one; see `ports.bulk.OpenStores`."""

    def __init__(self, stores: OpenStores, path: str) -> None:
        self._stores = stores
        self._path = path

    @property
    def settings(self) -> Settings:
        return self._stores.settings

    def located(self, url: str) -> str:
        return self._stores.located(url)

    def reader(self, url: str) -> BulkReader:
        return HistoryReader(LakeLog(self._path), self._stores.reader(url))

    def staging(self, url: str) -> Staging:
        return self._stores.staging(url)

    def store(self, url: str, *, creating: bool = False) -> UseStore:
        return self._stores.store(url, creating=creating)


class HistoryReader:
    """See `ports.bulk.BulkReader`."""

    def __init__(self, log: LakeLog, journal: BulkReader) -> None:
        self._log = log
        self._journal = journal
        self._lake = log.require()

    def bounds(self) -> Bounds:
        """Refused if the lake is not this journal's, or lacks what was pruned."""
        for _try in range(TRIES):
            live = self._journal.bounds()
            try:
                event_id = self._at_seam()
                refuse_foreign(self._lake, live.head, live.pruned_through, event_id)
            except Pruned as error:
                # A prune that was made since the lake was looked at has gone by a newer lake.
                before, self._lake = self._lake, self._log.require()
                if self._lake.number == before.number:
                    raise error from None
            else:
                lake = self._lake
                return Bounds(lake.after + 1, max(live.head, lake.through), lake.after)
        raise StoreMismatch("lake and journal change faster than they can be compared")

    def cut(self, after: int, upto: int, rows: int) -> list[int]:
        """The lake file by file, then ranges of the journal."""
        lake = self._lake
        ends = [min(file.through, upto) for file in lake.between(after, upto)]
        live = max(after, lake.through)
        return [*ends, *self._journal.cut(live, upto, rows)]

    def reach(self, after: int, entries: int) -> int | None:
        return self._journal.reach(after, entries)

    def scan(self, scan: Scan, batch_rows: int) -> Iterator[pa.RecordBatch]:
        lake = self._lake
        for _try in range(TRIES):
            for file in lake.between(scan.after, scan.upto):
                try:
                    yield from read_file(self._log.path, file, scan, batch_rows)
                except FileNotFoundError:
                    break  # compacted away since, so a newer lake has its entries elsewhere
                scan = scan._replace(after=file.through)
            else:
                scan = scan._replace(after=max(scan.after, min(lake.through, scan.upto)))
                if scan.after >= scan.upto:
                    return
                try:
                    yield from self._journal.scan(scan, batch_rows)
                except Pruned:  # said before the first batch: nothing was given out yet
                    if not self._has_grown(lake):
                        raise
                else:
                    return
            before, lake = lake, self._log.require()
            self._refuse_missing(before, lake, scan)
        raise StoreMismatch("the lake changes faster than it can be read")

    def read_table(
        self, name: str, batch_rows: int, columns: Sequence[str] = ()
    ) -> Iterator[pa.RecordBatch]:
        return self._journal.read_table(name, batch_rows, columns)

    def close(self) -> None:
        self._journal.close()

    def _at_seam(self) -> str | None:
        """The journal's entry where the lake ends, None where it is gone."""
        seam = self._lake.seam
        if seam is None:
            return None
        asked = Scan(seam.last - 1, seam.last, ("event_id",))
        try:
            with closing(self._journal.scan(asked, 1)) as batches:  # type: ignore[type-var]  # a generator
                for batch in batches:
                    found: str = batch.column(0)[0].as_py()
                    return found
        except Pruned:
            return None
        return None

    def _has_grown(self, lake: Lake) -> bool:
        return self._log.require().through > lake.through

    def _refuse_missing(self, before: Lake, now: Lake, scan: Scan) -> None:
        if now.number == before.number and (files := now.between(scan.after, scan.upto)):
            raise StoreMismatch(
                f"{self._log.path / files[0].path} is missing from the lake: restore it from a "
                "backup"
            )
