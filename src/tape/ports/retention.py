"""Removing old entries from the journal: `store.retention`.

A step removes a short range at the low end in one transaction of its own, in which it looks again
at everything that could still need those entries, so a prune needs no lock that outlives a step:

* No step goes beyond a cursor of a reaction, nor beyond the matcher where reactions follow it, nor
  up to the newest entry: the head of the journal can always be read from the journal.
* Entries of runs that have not ended, and entries that made a task which is queued or
  dead-lettered, stay where they are. A later step removes them when nothing needs them any more.
* `pruned_through` moves with the entries. Up to there the journal has holes; beyond it, none.
"""

from typing import NamedTuple, Protocol


class RetentionHold(NamedTuple):
    """A cursor in the store: nothing beyond `upto` may go as long as it stands there."""

    name: str
    upto: int


class Retention(NamedTuple):
    """What is there, and what of it has to stay. `first` and `head` are 0 in an empty journal."""

    pruned_through: int
    first: int
    head: int
    holds: list[RetentionHold]


class PruneStep(NamedTuple):
    """Look at no more than `most` entries after `after`, up to `upto`.

    `after` is below `pruned_through` where a step looks for what an earlier one left behind, and
    never beyond it: the range that is pruned has no holes of what was not.
    """

    after: int
    upto: int
    most: int


class StepDone(NamedTuple):
    """`through` is how far the step came, the same as `after` if it was held up.

    `kept` says how many entries of the range stayed for runs, for queued tasks, for dead letters.
    """

    through: int
    removed: int
    pruned_through: int
    kept: dict[str, int]


class Extent(NamedTuple):
    """How many entries a range of the journal has, its lowest and its highest, 0 if none."""

    rows: int
    first: int
    last: int


class RetentionStore(Protocol):
    async def read_pruned_through(self) -> int: ...

    async def read_retention(self) -> Retention: ...

    async def prune(self, step: PruneStep) -> StepDone:
        """Make one step, or none where something holds it up."""

    async def measure(self, after: int, upto: int) -> Extent: ...
