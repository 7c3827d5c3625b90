"""What both stores decide alike about pruning: a step of it, and a read that it overtook."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from tape.errors import InvalidArgument, Pruned
from tape.model.entry import Entry
from tape.ports.retention import PruneStep, RetentionHold
from tape.ports.store import EntryRange, ReadEntries


def refuse_gap(step: PruneStep, pruned_through: int) -> None:
    if step.after > pruned_through:
        raise InvalidArgument(
            f"a prune goes on from {pruned_through}, not from {step.after}", field="after"
        )


def step_limit(step: PruneStep, head: int, holds: Iterable[RetentionHold]) -> int:
    """How far the step may go; the newest entry stays, since the head is read from it."""
    return min(step.upto, head - 1, *(hold.upto for hold in holds))


def count_kept(rows: Sequence[Any]) -> dict[str, int]:
    """By what needs it; an entry that several need counts for the first of them."""
    return dict(Counter(dict(reversed(rows)).values()))


def recallable(entries: Iterable[Entry], pruned_through: int) -> list[tuple[Any, ...]]:
    """Rows of `recall_entries` for those that can have been pruned."""
    return [
        (seq, run_id or None, number or None, *rest[:-1])
        for seq, run_id, number, *rest in entries
        if seq <= pruned_through
    ]


def refuse_absent(source: int | None) -> None:
    if source is not None:
        raise Pruned(
            f"entry {source} has been pruned, so no task can be made of it: name the lake it was "
            "archived to"
        )


def may_have_holes(query: ReadEntries, found: EntryRange) -> bool:
    """Whether a number of the range is missing: filtered out, never committed, or pruned."""
    return len(found.entries) < found.through - query.after


def refuse_pruned(query: ReadEntries, pruned_through: int) -> None:
    """`pruned_through` was read after the entries: it is not lower than when they were read."""
    if query.after < pruned_through:
        raise Pruned(
            f"entries up to {pruned_through} have been pruned, and {query.after} is below: read "
            "them from the lake they were archived to, or start from 0, which is the oldest kept"
        )
