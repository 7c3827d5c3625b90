"""The tables beside the journal as a bulk reader names them, with the columns of their rows."""

from typing import Any, Final, NamedTuple

from tape.model.budget import Budget
from tape.model.decision import DecisionPlace
from tape.model.drainer import Drainer
from tape.model.effect import Effect
from tape.model.gate import Gate
from tape.model.obligation import Obligation
from tape.model.reaction import Reaction, ReactionCursor, Tally
from tape.model.run import Run
from tape.model.session import Session
from tape.model.timer import Timer
from tape.model.value import Value


class TaskRow(NamedTuple):
    """A task, queued or ended; what is of its entry is blank where that is gone."""

    task_id: str
    reaction_id: str
    shard: int
    source_run_id: str
    source_global_seq: int
    subject: str
    status: int
    attempts: int
    next_attempt_at_ms: int
    lease_owner: str
    lease_expires_at_ms: int
    last_error: str
    created_at_ms: int
    completed_at_ms: int
    trace_id: str
    span_id: str


class MatcherRow(NamedTuple):
    """Whose the right to match is, and how far the journal has been considered."""

    name: str
    owner: str
    fencing_token: int
    expires_at_ms: int
    position: int


SIDE_TABLES: Final[dict[str, type[tuple[Any, ...]]]] = {
    "runs": Run,
    "effects": Effect,
    "obligations": Obligation,
    "gates": Gate,
    "timers": Timer,
    "budgets": Budget,
    "values": Value,
    "decisions": DecisionPlace,
    "reactions": Reaction,
    "reaction_cursors": ReactionCursor,
    "reaction_tallies": Tally,
    "tasks": TaskRow,
    "sessions": Session,
    "matcher": MatcherRow,
    "event_drain_state": Drainer,
}
