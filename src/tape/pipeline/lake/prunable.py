"""What of a journal a lake is certain to have: the most that a prune may take away."""

from typing import NamedTuple

from tape.errors import StoreMismatch
from tape.pipeline.lake.files import missing_file
from tape.pipeline.lake.log import LakeLog, now_ms
from tape.pipeline.lake.seam import refuse_foreign
from tape.ports.store import ReadEntries, Store


class Prunable(NamedTuple):
    """The lake begins after `after`; each bound is a name and the last entry that it lets go."""

    after: int
    bounds: list[tuple[str, int]]


async def prunable(store: Store, path: str, grace_ms: int) -> Prunable:
    """Refused if the lake is not this journal's, or lacks a file that it names."""
    log = LakeLog(path)
    lake = log.require()
    there = await store.retention.read_retention()
    seam = lake.seam
    event_id = None
    if seam is not None:
        found = await store.read_entries(ReadEntries(seam.last - 1, seam.last, 1, 1))
        event_id = found.entries[0].event_id if found.entries else None
    refuse_foreign(lake, there.head, there.pruned_through, event_id)
    if seam is None or event_id is None:
        # Nothing to compare with, so nothing is certain.
        return Prunable(lake.after, [("the lake has none of the remaining entries", lake.after)])
    if gone := missing_file(log.path, lake.files):
        raise StoreMismatch(
            f"{log.path / gone.path} is missing or has changed since it was archived: nothing is "
            "pruned. Restore it from a backup"
        )
    # The newest archived entry stays: by it the lake is known to be this journal's.
    bounds = [("the end of the lake", seam.last - 1)]
    young = [file for file in lake.files if file.archived_at_ms > now_ms() - grace_ms]
    if young:
        bounds.append(("--grace since it was archived", young[0].after))
    return Prunable(lake.after, bounds)
