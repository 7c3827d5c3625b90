"""A reaction: entries that match a pattern and a predicate become work of one of three kinds.

Every change of a reaction turns a page in the *book* (its version goes up by one). The matcher
writes only while the book is at the version it has read, so no entry is ever passed over for a
reaction that was registered meanwhile.

The number of shards may change at any time: an entry makes one task of a reaction, under whatever
shard. A task keeps the shard it was made under. Once a reaction has fewer shards, tasks of a shard
that is gone belong to the shard that has their number's remainder. New shards begin where the
others stand.
"""

import sys
from collections.abc import Iterable
from enum import IntEnum
from functools import lru_cache
from typing import Literal, NamedTuple

from tape.errors import InvalidArgument, TooLarge
from tape.model.move import Decision, Need, RowChange, State, Table, delete, save
from tape.model.names import check_name
from tape.model.subject import encode_segment, parse_pattern
from tape.settings import Limits

Engine = Literal["server", "spark"]
ENGINES: tuple[Engine, ...] = ("server", "spark")

DAY_MS = 86_400_000
TASK_SUBJECT_BYTES = 100  # of a task's subject, besides the reaction's id, which is in it twice


class HandlerKind(IntEnum):
    AGENT = 1
    TASK = 2
    PUBLISH = 3


class Reaction(NamedTuple):
    """The settings of a reaction, as they are stored."""

    reaction_id: str
    name: str
    subject_pattern: str
    predicate_cel: str
    handler_kind: int
    agent_app: str
    publish_target: str
    max_concurrency: int
    rate_limit_per_s: int
    debounce_ms: int
    retry_max: int
    retry_backoff_ms: int
    dlq_after_n: int
    num_shards: int
    engine: str
    created_at_ms: int
    deleted: int
    pool: str = ""


class NewReaction(NamedTuple):
    """A reaction as it is declared. `from_global_seq` is exclusive; None starts at the newest
    entry.

    `pool` is the pool of an agent reaction's runs; empty is the default pool.

    `retry_max` retries follow the first attempt. After `dlq_after_n` attempts, or when the retries
    are used up, a task becomes a dead letter; with 0 it ends as failed instead.
    """

    reaction_id: str
    subject_pattern: str
    handler_kind: int
    name: str = ""
    predicate_cel: str = ""
    agent_app: str = ""
    publish_target: str = ""
    max_concurrency: int = 1
    rate_limit_per_s: int = 0
    debounce_ms: int = 0
    retry_max: int = 5
    retry_backoff_ms: int = 1000
    dlq_after_n: int = 5
    num_shards: int = 1
    engine: str = "server"
    from_global_seq: int | None = None
    pool: str = ""


class ReactionCursor(NamedTuple):
    """How far one shard of a reaction has been considered, and what came of it.

    While `following`, everything up to the matcher's own position has been considered too.
    """

    reaction_id: str
    shard: int
    last_global_seq: int
    last_processed_at_ms: int
    following: int
    matched: int
    coalesced: int
    predicate_errors: int
    last_error: str
    last_error_global_seq: int


class Tally(NamedTuple):
    """How many tasks a reaction has, over all dispatchers, and when its rate allows the next.

    `queued` are pending or in hand, `in_flight` those in hand. `shards` is the most it ever had.
    """

    reaction_id: str
    queued: int
    in_flight: int
    dead_letters: int
    next_free_us: int
    shards: int


class Book(NamedTuple):
    """Entries up to `resharded_at` may have made tasks under other shards than today's."""

    name: str
    version: int
    resharded_at: int = 0


class ReactionState(NamedTuple):
    """A reaction and its state. `position` is the lowest cursor of its shards."""

    reaction: Reaction
    position: int
    following: bool
    last_processed_at_ms: int
    matched: int
    coalesced: int
    predicate_errors: int
    last_error: str
    pending: int
    claimed: int
    dead_letters: int


REACTIONS = Table("reactions", Reaction, lambda row: row.reaction_id)
CURSORS = Table("reaction_cursors", ReactionCursor, lambda row: (row.reaction_id, row.shard))
TALLIES = Table("reaction_tallies", Tally, lambda row: row.reaction_id)
BOOK = Table("reaction_book", Book, lambda row: row.name)
BOOK_NAME = "reactions"

_RANGES = {
    "max_concurrency": (1, 100_000),
    "rate_limit_per_s": (0, 1_000_000),
    "debounce_ms": (0, DAY_MS),
    "retry_max": (0, 10_000),
    "retry_backoff_ms": (0, DAY_MS),
    "dlq_after_n": (0, 10_000),
}


def check_reaction(new: NewReaction, limits: Limits) -> None:
    """Refuse what could never work; the predicate and the target are judged by who knows them."""
    check_name(new.reaction_id, limits, field="reaction_id", required=True)
    if 2 * len(encode_segment(new.reaction_id)) + TASK_SUBJECT_BYTES > limits.subject_bytes:
        raise TooLarge("is too long for the subjects of its tasks", field="reaction_id")
    for field in ("name", "agent_app", "publish_target", "pool"):
        check_name(getattr(new, field), limits, field=field)
    parse_pattern(new.subject_pattern, limits=limits)
    _check_work(new)
    ranges = {**_RANGES, "num_shards": (1, limits.shards)}
    for field, (least, most) in ranges.items():
        number = getattr(new, field)
        if not least <= number <= most:
            span = f"in {least}..{most}" if most < sys.maxsize else f"{least} or more"
            raise InvalidArgument(f"{number} is not {span}", field=field)
    if new.engine not in ENGINES:
        raise InvalidArgument(f"{new.engine!r} is not one of {', '.join(ENGINES)}", field="engine")
    if new.from_global_seq is not None and not 0 <= new.from_global_seq < 2**63:
        raise InvalidArgument(f"{new.from_global_seq} is not in 0..2^63-1", field="from_global_seq")


def _check_work(new: NewReaction) -> None:
    if new.handler_kind not in tuple(HandlerKind):
        known = ", ".join(f"{kind.value} ({kind.name.lower()})" for kind in HandlerKind)
        raise InvalidArgument(f"{new.handler_kind} is not one of {known}", field="handler_kind")
    for kind, field in (
        (HandlerKind.AGENT, "agent_app"),
        (HandlerKind.PUBLISH, "publish_target"),
    ):
        given = bool(getattr(new, field))
        if given != (new.handler_kind == kind):
            rule = "is required with" if new.handler_kind == kind else "goes only with"
            raise InvalidArgument(f"{rule} the handler kind {kind.name.lower()}", field=field)
    if new.pool and new.handler_kind != HandlerKind.AGENT:
        raise InvalidArgument("goes only with the handler kind agent", field="pool")


class RegisterReaction:
    """Add a reaction, or change the settings of one that is there; never its cursors."""

    __slots__ = ("_new", "weight")

    def __init__(self, new: NewReaction, limits: Limits) -> None:
        check_reaction(new, limits)
        self._new = new
        self.weight = 1024

    def needs(self) -> Iterable[Need]:
        # The book first: whoever has it keeps the matcher out until the end of the turn.
        yield Need(BOOK, BOOK_NAME)
        yield Need(REACTIONS, self._new.reaction_id)
        yield Need(CURSORS, (self._new.reaction_id, 0))
        yield Need(TALLIES, self._new.reaction_id)

    def decide(self, state: State) -> Decision[Reaction]:
        new = self._new
        before = state.get(REACTIONS, new.reaction_id)
        known = before is not None and not before.deleted
        created = before.created_at_ms if before is not None and known else state.now_ms
        settings = new._asdict()
        del settings["from_global_seq"]
        reaction = Reaction(**settings, created_at_ms=created, deleted=0)
        changes: list[RowChange] = []
        if before is not None and known:
            if reaction == before:
                return Decision(lambda _place: reaction)
            if new.engine != before.engine:
                raise InvalidArgument(
                    f"is {before.engine!r}, and another engine does not know its position: "
                    "deregister the reaction, then register it with from_global_seq",
                    field="engine",
                )
            changes += self._other_shards(state, before)
        else:
            changes += self._first_cursors(state)
        tally = state.get(TALLIES, new.reaction_id) or Tally(new.reaction_id, 0, 0, 0, 0, 0)
        if tally.shards < new.num_shards:
            changes.append(save(TALLIES, tally._replace(shards=new.num_shards)))
        resharded = before is not None and before.num_shards != new.num_shards
        changes += [save(REACTIONS, reaction), _turned(state, resharded=resharded)]
        return Decision(lambda _place: reaction, changes=changes)

    def _first_cursors(self, state: State) -> list[RowChange]:
        new, head = self._new, state.next_global_seq - 1
        # Whom the server does not match the matcher's position says nothing about.
        start, following = head, int(new.engine == "server")
        if new.from_global_seq is not None:
            start, following = new.from_global_seq, 0
            if start > head:
                raise InvalidArgument(
                    f"{start} is beyond the end of this journal, {head}", field="from_global_seq"
                )
        return [
            save(
                CURSORS,
                ReactionCursor(new.reaction_id, shard, start, 0, following, 0, 0, 0, "", 0),
            )
            for shard in range(new.num_shards)
        ]

    def _other_shards(self, state: State, before: Reaction) -> list[RowChange]:
        """Shards added later stand where the others stand."""
        had, has = before.num_shards, self._new.num_shards
        first = state.get(CURSORS, (before.reaction_id, 0))
        if first is None:
            return []
        fresh = first._replace(
            matched=0, coalesced=0, predicate_errors=0, last_error="", last_error_global_seq=0
        )
        return [
            *(save(CURSORS, fresh._replace(shard=shard)) for shard in range(had, has)),
            *(delete(CURSORS, (before.reaction_id, shard)) for shard in range(has, had)),
        ]


class DeregisterReaction:
    """Stop a reaction. Its tasks stay, unclaimed; registered again it starts anew."""

    __slots__ = ("_reaction_id", "weight")

    def __init__(self, reaction_id: str, limits: Limits) -> None:
        self._reaction_id = check_name(reaction_id, limits, field="reaction_id", required=True)
        self.weight = 512

    def needs(self) -> Iterable[Need]:
        yield Need(BOOK, BOOK_NAME)
        yield Need(REACTIONS, self._reaction_id)

    def decide(self, state: State) -> Decision[bool]:
        before = state.get(REACTIONS, self._reaction_id)
        if before is None or before.deleted:
            return Decision(lambda _place: False)
        changes = [save(REACTIONS, before._replace(deleted=1)), _turned(state)]
        changes += [
            delete(CURSORS, (self._reaction_id, shard)) for shard in range(before.num_shards)
        ]
        return Decision(lambda _place: True, changes=changes)


def _turned(state: State, *, resharded: bool = False) -> RowChange:
    book = state.get(BOOK, BOOK_NAME) or Book(BOOK_NAME, 0)
    upto = state.next_global_seq - 1 if resharded else book.resharded_at
    return save(BOOK, book._replace(version=book.version + 1, resharded_at=upto))


FNV_OFFSET = 0xCBF29CE484222325
FNV_PRIME = 0x100000001B3


@lru_cache(65_536)
def fnv1a(text: str) -> int:
    """64-bit FNV-1a of the text in UTF-8."""
    number = FNV_OFFSET
    for byte in text.encode():
        number = (number ^ byte) * FNV_PRIME & 0xFFFFFFFFFFFFFFFF
    return number


def shard_of(run_id: str, subject: str, num_shards: int) -> int:
    """A run's entries stay together; others go by their subject."""
    return fnv1a(run_id or subject) % num_shards if num_shards > 1 else 0
