"""Where a lake ends and its journal goes on: are the two of a piece?

The lake names its newest entry. As long as the journal still has that number, which a prune leaves
in place, the entry there must be the same one.
"""

from typing import NamedTuple

from tape.errors import Pruned, StoreMismatch
from tape.pipeline.lake.files import missing_file
from tape.pipeline.lake.log import LakeLog, now_ms
from tape.pipeline.lake.manifest import Lake
from tape.ports.store import ReadEntries, Store


def refuse_foreign(lake: Lake, head: int, pruned_through: int, event_id: str | None) -> None:
    """`event_id` is that of the journal's entry at the seam, None if there is no such entry."""
    seam = lake.seam
    if seam is not None and head < seam.last:
        raise StoreMismatch(
            f"the lake goes up to {seam.last} and the journal only to {head}: the lake is another "
            "journal's, or this one was restored from a backup"
        )
    if seam is not None and event_id is not None and event_id != seam.last_event_id:
        raise StoreMismatch(
            f"entry {seam.last} is {event_id} in the journal and {seam.last_event_id} in the lake: "
            "the lake is another journal's"
        )
    if lake.number and lake.through < pruned_through:
        raise Pruned(
            f"entries {lake.through + 1} to {pruned_through} have been pruned and are not in this "
            "lake: name the lake that the prune was made with"
        )
    if seam is not None and event_id is None and seam.last > pruned_through:
        raise StoreMismatch(
            f"the journal has no entry {seam.last}, the newest of the lake: the lake is another "
            "journal's"
        )


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
