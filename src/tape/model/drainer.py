"""A drainer: a named consumer of events with a strict-order cursor that halts at a failure.

One instance of a drainer works at a time, by a lease with a fencing token on its row. The cursor
moves only past events that were dispatched to every subscription they match, so the event that
failed is tried again by the next pass, and nothing after it is dispatched before.
"""

from typing import NamedTuple

from tape.model.move import Table

DISPATCH_FAILED = "workflow.dispatch_failed"
"""The type of the event that tells of a failed dispatch."""


class Drainer(NamedTuple):
    """How far it has come. Halted while `halted_on_event_id` is set."""

    drainer_id: str
    last_global_seq: int
    last_event_id: str
    last_drained_at_ms: int
    events_processed_total: int
    dispatched_total: int
    failed_total: int
    skipped_total: int
    halted_on_event_id: str
    halted_on_global_seq: int
    halted_at_ms: int
    last_error: str
    attempts_json: str
    lease_owner: str
    lease_expires_at_ms: int
    fencing_token: int


class Triggered(NamedTuple):
    """A run that an event has made, or had made before."""

    event_id: str
    global_seq: int
    subscription_id: str
    run_id: str


class DrainReport(NamedTuple):
    """What one pass has done.

    `processed` events were passed, `triggered` are the newest of the runs they were dispatched to.
    `halted_on_event_id` failed with `error`; `waiting_on_run_id` is a run that has not ended within
    the time given, which is no failure. `more` if there is more to drain at once.
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


class DrainerState(NamedTuple):
    """A drainer and how it is doing. `lag` is how many entries the journal is ahead of it."""

    drainer: Drainer
    subscriptions: int
    lag: int
    is_held: bool


DRAINERS = Table("event_drain_state", Drainer, lambda row: row.drainer_id)
