"""The files of a lake: taken over from where Spark wrote them, looked at, and cleaned up."""

import os
import shutil
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tape.errors import StoreFailed, StoreMismatch
from tape.pipeline.lake.log import LakeLog
from tape.pipeline.lake.manifest import LakeFile
from tape.ports.durable_file import sync_folder
from tape.ports.retention import Extent

DATA: Final = "data"
STAGING: Final = "_staging"


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A Parquet file that was looked through: its entries rise without a repeat."""

    path: Path
    rows: int
    first: int
    last: int
    first_event_id: str
    last_event_id: str


def staging_folder(root: Path) -> Path:
    """A new name under which Spark may write."""
    return root / STAGING / uuid.uuid4().hex


def look_through(path: Path) -> WrittenFile | None:
    """What a file holds, None if nothing; refused where its order is not the journal's."""
    try:
        with pq.ParquetFile(path) as file:
            return _looked_through(path, file)
    except pa.ArrowInvalid as error:
        raise StoreMismatch(f"{path} is not a whole Parquet file: {error}") from None


def _looked_through(path: Path, file: pq.ParquetFile) -> WrittenFile | None:
    rows = file.metadata.num_rows
    if not rows:
        return None
    first = last = 0
    for batch in file.iter_batches(columns=["global_seq"]):
        numbers = batch.column(0)
        start = numbers[0].as_py()
        rises = len(numbers) == 1 or pc.all(pc.greater(numbers[1:], numbers[:-1])).as_py()
        if start <= last or not rises:
            raise StoreFailed(f"{path}: its entries are not in the order of the journal")
        first, last = first or start, numbers[-1].as_py()
    ids = [file.read_row_group(group, ["event_id"]) for group in (0, file.num_row_groups - 1)]
    return WrittenFile(path, rows, first, last, ids[0][0][0].as_py(), ids[1][0][-1].as_py())


def verify(found: Sequence[WrittenFile], extent: Extent) -> None:
    """Refuse files that do not have exactly what the journal has in their range."""
    rows = sum(one.rows for one in found)
    ends = (found[0].first, found[-1].last) if found else (0, 0)
    if (rows, *ends) != extent:
        raise StoreFailed(
            f"the files written have {rows} entries from {ends[0]} to {ends[1]}, the journal has "
            f"{extent.rows} from {extent.first} to {extent.last}: nothing was committed"
        )


def written_under(folder: Path) -> list[WrittenFile]:
    """What Spark wrote there, in the order of the journal."""
    found = (look_through(path) for path in folder.glob("part-*.parquet"))
    return sorted((one for one in found if one is not None), key=lambda one: one.first)


def adopt(
    root: Path,
    found: Sequence[WrittenFile],
    after: int,
    through: int,
    archived_at_ms: Sequence[int],
) -> list[LakeFile]:
    """Give files their place and name, on the disk for good; together they cover the range."""
    folder = root / DATA
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for number, one in enumerate(found):
        end = through if number == len(found) - 1 else one.last
        name = f"{after:020d}-{end:020d}-{uuid.uuid4().hex[:12]}.parquet"
        with one.path.open("rb") as file:
            os.fsync(file.fileno())
            size = os.fstat(file.fileno()).st_size
        one.path.rename(folder / name)
        files.append(
            LakeFile(
                f"{DATA}/{name}", after, end, one.rows, size, one.first, one.last,
                one.last_event_id, archived_at_ms[number],
            )
        )  # fmt: skip
        after = end
    sync_folder(folder)
    return files


def missing_file(root: Path, files: Sequence[LakeFile]) -> LakeFile | None:
    """The first file that is not there, or not as it was committed."""
    for file in files:
        try:
            size = (root / file.path).stat().st_size
        except FileNotFoundError:
            return file
        if size != file.bytes:
            return file
    return None


def delete_files(root: Path, paths: Sequence[str]) -> None:
    for path in paths:
        (root / path).unlink(missing_ok=True)


def delete_orphans(log: LakeLog, older_than_ms: int) -> int:
    """Remove what killed runs have left: files that no commit names, and staging folders.

    Only old ones: a run that is at work has files that are not committed yet.
    """
    old = [path for path in (log.path / DATA).glob("*") if _is_older(path, older_than_ms)]
    lake = log.read()  # after looking: what was committed since is known here
    known = {file.path for file in lake.files} | lake.removed.keys()
    strays = [path for path in old if f"{DATA}/{path.name}" not in known]
    for path in strays:
        path.unlink(missing_ok=True)
    left = [path for path in (log.path / STAGING).glob("*") if _is_older(path, older_than_ms)]
    for path in left:
        shutil.rmtree(path, ignore_errors=True)
    return len(strays) + len(left)


def _is_older(path: Path, older_than_ms: int) -> bool:
    try:
        return path.stat().st_mtime_ns // 1_000_000 < older_than_ms
    except FileNotFoundError:
        return False
