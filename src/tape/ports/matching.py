"""What the matcher needs of the store: `store.matching`.

One matcher works at a time, by a lease with a fencing token. Each step is one transaction that
holds only if the token, the matcher's position and the book of reactions are what the step was made
for; so work and cursors move together, once, and for every reaction there is. A step makes no entry
and needs no turn to write. One that a crash of the database undoes is made again from the journal.
A task of one entry and reaction is never made again, not even if its shard was another.

Tasks are also made beside it: of history that a reaction was not there for, and of entries that are
matched elsewhere, for reactions whose engine is not the server. `queue_tasks` makes them with the
same key, so that whoever comes second finds them made. Such a step holds only for the book that it
was decided with, and is durable.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

from tape.model.entry import Entry
from tape.model.reaction import Reaction, ReactionCursor, ReactionState


class MatcherLease(NamedTuple):
    """The right to match, from `position` on, until it is not renewed for `ttl_ms`."""

    owner: str
    fencing_token: int
    position: int


class RegisteredReactions(NamedTuple):
    """Every reaction that is not deregistered, with its cursors, at one version of the book."""

    version: int
    reactions: list[Reaction]
    cursors: list[ReactionCursor]


class NewTask(NamedTuple):
    """A task to queue. With `debounce_ms` it waits that long, and takes the place of one of the
    same reaction and subject that still waits and whose window `source_ts_ms` falls into."""

    reaction_id: str
    shard: int
    source_global_seq: int
    source_ts_ms: int
    subject: str
    debounce_ms: int


class CursorStep(NamedTuple):
    """One shard considered up to `last_global_seq`; the counts are what this step adds."""

    reaction_id: str
    shard: int
    last_global_seq: int
    following: int
    matched: int
    coalesced: int
    predicate_errors: int
    last_error: str
    last_error_global_seq: int


class MatchStep(NamedTuple):
    """From `lease.position` to `position` (the same, if only a late reaction catches up).

    The reactions `put_off` follow no longer: they are late, from where their cursors are.
    """

    lease: MatcherLease
    ttl_ms: int
    version: int
    position: int
    cursors: Sequence[CursorStep]
    tasks: Sequence[NewTask]
    put_off: Sequence[str] = ()


StepResult = Literal["made", "lost", "outdated"]
"""`lost`: the lease is another's, or the position was not what it said. `outdated`: the book has
turned since; read the reactions again. Nothing was written in either case."""


class CursorMove(NamedTuple):
    """One shard considered from `after`, where its cursor must stand, to `last_global_seq`; the
    counts are what this adds."""

    reaction_id: str
    shard: int
    after: int
    last_global_seq: int
    matched: int
    coalesced: int
    predicate_errors: int
    last_error: str
    last_error_global_seq: int


class QueueTasks(NamedTuple):
    """Tasks that were decided outside of the server, for reactions at one version of the book.

    With `moves` they are all that came of the entries that these pass, and the moves count them:
    the result is `lost` if a cursor stands elsewhere. Without, they are of history: a task that is
    new counts as matched unless its entry is still before the cursor, where it will be counted.

    A task's entry is read from the journal. Those of `entries` that have been pruned come back
    there with their tasks, without their idempotency keys, and go when nothing needs them; a task
    whose entry is then still missing raises Pruned, and nothing is made.
    """

    version: int
    tasks: Sequence[NewTask]
    moves: Sequence[CursorMove] = ()
    entries: Sequence[Entry] = ()


class Queued(NamedTuple):
    """What came of it. `made` is how many tasks are new, by reaction."""

    result: StepResult
    made: Mapping[str, int]


class MatchingStore(Protocol):
    async def acquire_matcher(self, owner: str, ttl_ms: int) -> MatcherLease | None:
        """The lease if it is free, has run out or is the owner's own; a new holder, a new token."""

    async def release_matcher(self, lease: MatcherLease) -> None:
        """Let another begin at once."""

    async def read_reactions(self) -> RegisteredReactions: ...

    async def make_step(self, step: MatchStep) -> StepResult: ...

    async def queue_tasks(self, step: QueueTasks) -> Queued:
        """Make those that are not there yet, in any shard, queued or ended.

        Of a debounced burst the last one stays, whichever was there first.
        """

    async def list_reactions(self) -> list[ReactionState]:
        """Those not deregistered, by id, with their counts."""
