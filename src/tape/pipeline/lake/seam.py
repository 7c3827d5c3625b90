"""Where a lake ends and its journal goes on: are the two of a piece?

The lake names its newest entry. As long as the journal still has that number, which a prune leaves
in place, the entry there must be the same one.
"""

from tape.errors import Pruned, StoreMismatch
from tape.pipeline.lake.manifest import Lake


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
