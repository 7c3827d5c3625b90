"""Pruning: old entries leave the journal, as far as everything allows that may still need them.

Each *bound* is a reason to stop, with its name and the last entry that it lets go. Those that the
store itself has (reactions, the matcher) are looked at again in every step (`ports.retention`); the
others only move forward, or are somebody's word. The lowest is where the prune ends, and says what
held it back.

A prune is polite: between two short steps it rests longer than the step took, so those who
write find the store free most of the time.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from tape.errors import InvalidArgument
from tape.ports.retention import PruneStep, RetentionHold
from tape.ports.store import ReadEntries, Store

STEP_ENTRIES: Final = 1_000
REST: Final = 2.0
"""How many times as long as a step took the prune rests after it."""
_AGE: Final = re.compile(r"([0-9]{1,9})(ms|s|m|h|d|w)?", re.ASCII)
_UNITS_MS: Final = {
    "ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000,
}  # fmt: skip


class Bound(NamedTuple):
    """Nothing beyond `upto` may go, because of what `name` says."""

    name: str
    upto: int


class PrunePlan(NamedTuple):
    """Entries with `after < global_seq <= upto` may go; of them, those up to `pruned_through` were
    looked at before, and a few were left. `bounds` are all that stop it, the nearest first."""

    after: int
    upto: int
    pruned_through: int
    head: int
    bounds: tuple[Bound, ...]

    @property
    def held_by(self) -> tuple[Bound, ...]:
        """What stops it where it stops."""
        return tuple(bound for bound in self.bounds if bound.upto <= self.upto)


class PruneResult(NamedTuple):
    """`kept` counts entries below `pruned_through` that stayed, by what needs them."""

    removed: int
    pruned_through: int
    kept: dict[str, int]
    held_by: tuple[Bound, ...]


Report = Callable[[int, int], None]
"""Told how far it has come, and how far it will go."""


def parse_age(text: str, *, field: str) -> int:
    """`7d`, `12h`, `30m`, `90s`, `250ms` in milliseconds; a bare 0 is none."""
    found = _AGE.fullmatch(text.strip())
    if found is None or (found[2] is None and int(found[1])):
        raise InvalidArgument(
            f"{text!r} is not a length of time such as 7d, 12h or 30m", field=field
        )
    return int(found[1]) * _UNITS_MS[found[2] or "ms"]


async def find_recorded_before(store: Store, ts_ms: int, upto: int) -> int:
    """The last entry up to `upto` that was recorded before that time, 0 if there is none.

    A search by halves: times rise with the order, except where a clock was set back.
    """
    before, low = 0, 0
    while low < upto:
        middle = (low + upto) // 2
        found = (await store.read_entries(ReadEntries(middle, upto, 1, 1))).entries
        if found and found[0].ts_ms < ts_ms:
            before = low = found[0].global_seq
        else:
            upto = middle
    return before


async def plan_prune(store: Store, after: int, bounds: Sequence[Bound]) -> PrunePlan:
    """What these bounds and the store's own leave to a prune of what comes after `after`."""
    there = await store.retention.read_retention()
    if after > there.pruned_through:
        bounds = [*bounds, Bound(f"the lake begins only at {after + 1}", there.pruned_through)]
    last = max(there.head - 1, 0)
    known = [*bounds, Bound("the newest entry", last), *map(_bound, there.holds)]
    stops = sorted((bound for bound in known if bound.upto <= last), key=lambda bound: bound.upto)
    upto = min((bound.upto for bound in stops), default=last)
    return PrunePlan(min(after, there.pruned_through), upto, there.pruned_through, there.head,
                tuple(stops))  # fmt: skip


async def prune(
    store: Store,
    plan: PrunePlan,
    *,
    on_progress: Report = lambda _at, _upto: None,
    step_entries: int = STEP_ENTRIES,
) -> PruneResult:
    """Make the steps of a plan. What stopped it may be nearer than it was when it was planned."""
    kept: Counter[str] = Counter()
    removed, at, pruned = 0, plan.after, plan.pruned_through
    loop = asyncio.get_running_loop()
    while at < plan.upto:
        started = loop.time()
        done = await store.retention.prune(PruneStep(at, plan.upto, step_entries))
        removed += done.removed
        kept.update(done.kept)
        pruned = done.pruned_through
        if done.through == at:  # a reaction has been registered since
            held = [_bound(hold) for hold in (await store.retention.read_retention()).holds]
            by = tuple(bound for bound in held if bound.upto <= at)
            return PruneResult(removed, pruned, dict(kept), by)
        at = done.through
        on_progress(at, plan.upto)
        if at < plan.upto:
            await asyncio.sleep(REST * (loop.time() - started))
    return PruneResult(removed, pruned, dict(kept), plan.held_by)


def _bound(hold: RetentionHold) -> Bound:
    return Bound(*hold)
