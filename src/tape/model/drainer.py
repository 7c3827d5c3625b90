"""A drainer: a named consumer of events with a strict-order cursor that halts at a failure.

One instance of a drainer works at a time, by a lease with a fencing token on its row (`hold`),
which every write of a pass is checked against. The cursor moves only past events that were
dispatched to every subscription they match, so the event that failed is tried again by the next
pass, and nothing after it is dispatched before.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import orjson

from tape.model.hold import check_held, check_ttl, granted, is_held, let_go, renewed
from tape.model.move import Decision, Need, Reading, State, Table, save
from tape.model.names import check_name
from tape.model.subject import check_length
from tape.model.subjects import drainer_resumed
from tape.settings import Limits

DISPATCH_FAILED = "workflow.dispatch_failed"
"""The type of the event that tells of a failed dispatch."""


class Drainer(NamedTuple):
    """How far it has come. While `halted_on_event_id` is set it is halted: since `halted_at_ms`,
    when that event failed first, and until it is tried again at `next_try_at_ms`."""

    drainer_id: str
    last_global_seq: int = 0
    last_event_id: str = ""
    last_drained_at_ms: int = 0
    events_processed_total: int = 0
    dispatched_total: int = 0
    failed_total: int = 0
    skipped_total: int = 0
    halted_on_event_id: str = ""
    halted_on_global_seq: int = 0
    halted_at_ms: int = 0
    last_error: str = ""
    attempts_json: str = ""
    lease_owner: str = ""
    lease_expires_at_ms: int = 0
    fencing_token: int = 0
    next_try_at_ms: int = 0
    waiting_on_run_id: str = ""
    waiting_on_event_id: str = ""
    waiting_on_global_seq: int = 0
    waiting_since_ms: int = 0

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for the end of a run, of a retry while it is halted. A version that does
        not know of this may have gone on without clearing it."""
        return (
            bool(self.waiting_on_run_id)
            and self.halted_on_event_id in ("", self.waiting_on_event_id)
            and self.waiting_on_global_seq > self.last_global_seq
        )

    @property
    def attempts(self) -> "Attempts":
        return Attempts(**orjson.loads(self.attempts_json)) if self.attempts_json else NO_ATTEMPTS

    def is_leased(self, now_ms: int) -> bool:
        return is_held(self, now_ms)

    def unleased(self) -> "Drainer":
        return let_go(self)

    def unhalted(self) -> "Drainer":
        """Ready to go on; what was tried for the event that failed, and since when, stays known
        until it passes."""
        return self._replace(halted_on_event_id="", halted_on_global_seq=0, next_try_at_ms=0)

    def past(self, global_seq: int) -> "Drainer":
        """Without what is known of events up to there: attempts, and waiting for a run."""
        drainer = self
        if drainer.attempts_json and global_seq >= drainer.attempts.global_seq:
            drainer = drainer._replace(attempts_json="", halted_at_ms=0)
        if drainer.waiting_on_run_id and global_seq >= drainer.waiting_on_global_seq:
            drainer = drainer.not_waiting()
        return drainer

    def not_waiting(self) -> "Drainer":
        return self._replace(
            waiting_on_run_id="", waiting_on_event_id="", waiting_on_global_seq=0,
            waiting_since_ms=0,
        )  # fmt: skip


class Attempts(NamedTuple):
    """How often dispatching one event has failed, by subscription."""

    event_id: str = ""
    global_seq: int = 0
    failed: Mapping[str, int] = {}

    @property
    def total(self) -> int:
        return sum(self.failed.values())

    def next_for(self, event_id: str, subscription_id: str) -> int:
        """The number of the next attempt. One that did not fail is made again under its number,
        and finds what it made before."""
        return self.failed.get(subscription_id, 0) + 1 if event_id == self.event_id else 1

    def counted(
        self, event_id: str, global_seq: int, subscription_id: str, attempt: int = 0
    ) -> "Attempts":
        """With the attempt of this number, or the next one, as failed. One that was looked at again
        counts once."""
        failed = dict(self.failed) if event_id == self.event_id else {}
        failed[subscription_id] = attempt or failed.get(subscription_id, 0) + 1
        return Attempts(event_id, global_seq, failed)

    def to_json(self) -> str:
        return orjson.dumps(self._asdict()).decode()


NO_ATTEMPTS = Attempts()


class Triggered(NamedTuple):
    """A run that an event was dispatched to."""

    event_id: str
    global_seq: int
    subscription_id: str
    run_id: str


class DrainReport(NamedTuple):
    """What one pass of a drainer has done.

    It moved past `processed` events. `triggered` are the newest runs that they were dispatched to;
    only the pass that moved past an event reports its run. `halted_on_event_id` failed with `error`
    and is retried at `next_try_at_ms`. `waiting_on_run_id` has not ended in time, which is not a
    failure. `skipped_due_to_lock`: another instance is working, or has taken over. `more`: there is
    more to drain at once.
    """

    drainer_id: str
    processed: int = 0
    dispatched: int = 0
    triggered: tuple[Triggered, ...] = ()
    last_global_seq: int = 0
    last_event_id: str = ""
    halted_on_event_id: str = ""
    error: str = ""
    waiting_on_run_id: str = ""
    skipped_due_to_lock: bool = False
    more: bool = False
    next_try_at_ms: int = 0


class DrainerState(NamedTuple):
    """A drainer and its state.

    `subscriptions` counts the enabled ones. `lag` is how many entries the journal is ahead.
    `is_held` is True while an instance is working. `waiting_on_app` and `waiting_on_pool` belong to
    the run that it waits for.
    """

    drainer: Drainer
    subscriptions: int
    lag: int
    is_held: bool
    waiting_on_app: str = ""
    waiting_on_pool: str = ""

    @property
    def failed_attempts(self) -> int:
        """How often the event that it is halted at has failed."""
        return self.drainer.attempts.total if self.drainer.halted_on_event_id else 0


DRAINERS = Table("event_drain_state", Drainer, lambda row: row.drainer_id)


class DrainerLease(NamedTuple):
    """The lease that the writes of a pass are made under, renewed by each of them."""

    drainer_id: str
    fencing_token: int
    ttl_ms: int


class Grant(NamedTuple):
    """The drainer as it is, whether the lease was granted, and the newest entry there was."""

    drainer: Drainer
    is_granted: bool
    head: int


def held_drainer(state: Reading, hold: DrainerLease) -> Drainer:
    """The drainer with its lease renewed, if the token is the one it was last granted with."""
    drainer = state.get(DRAINERS, hold.drainer_id)
    what = f"drainer {hold.drainer_id!r}"
    held = check_held(drainer, hold.fencing_token, what=what, who="pass")
    return renewed(held, hold.ttl_ms, state.now_ms)


def check_drainer_id(drainer_id: str, limits: Limits) -> str:
    check_name(drainer_id, limits, field="drainer_id", required=True)
    check_length(drainer_resumed(drainer_id), limits)
    return drainer_id


class AcquireDrainer:
    """Take the lease if nobody else's is alive. `owner` names one pass."""

    __slots__ = ("_drainer_id", "_owner", "_ttl_ms", "weight")

    def __init__(self, drainer_id: str, owner: str, ttl_ms: int, limits: Limits) -> None:
        self._drainer_id = check_drainer_id(drainer_id, limits)
        self._owner = check_name(owner, limits, field="lease_owner", required=True)
        self._ttl_ms = check_ttl(ttl_ms)
        self.weight = 512

    def needs(self) -> Iterable[Need]:
        yield Need(DRAINERS, self._drainer_id)

    def decide(self, state: State) -> Decision[Grant]:
        drainer = state.get(DRAINERS, self._drainer_id) or Drainer(self._drainer_id)
        head = state.next_global_seq + len(state.entries) - 1
        if drainer.is_leased(state.now_ms):
            refused = Grant(drainer, False, head)
            return Decision(lambda _place: refused)
        drainer = granted(drainer, self._owner, self._ttl_ms, state.now_ms)
        grant = Grant(drainer, True, head)
        return Decision(lambda _place: grant, changes=[save(DRAINERS, drainer)])


class RenewDrainer:
    """Go on holding the lease, or let go of it."""

    __slots__ = ("_hold", "_letting_go", "weight")

    def __init__(self, hold: DrainerLease, *, letting_go: bool = False) -> None:
        self._hold = hold
        self._letting_go = letting_go
        self.weight = 512

    def needs(self) -> Iterable[Need]:
        yield Need(DRAINERS, self._hold.drainer_id)

    def decide(self, state: State) -> Decision[Drainer]:
        drainer = held_drainer(state, self._hold)
        if self._letting_go:
            drainer = drainer.unleased()
        return Decision(lambda _place: drainer, changes=[save(DRAINERS, drainer)])
