"""A durable event bus and run journal for Python."""

from tape import errors, reactions
from tape.app import connect, connect_async
from tape.client import AsyncTapeClient, TapeClient, event
from tape.config import DEFAULT_URL, VERSION, Settings
from tape.errors import (
    BrokerError,
    BrokerRefused,
    BrokerUnavailable,
    Closed,
    GiveUp,
    InvalidArgument,
    NotFound,
    NotHeld,
    OutcomeUnknown,
    Overloaded,
    PermissionDenied,
    StaleLease,
    StoreFailed,
    StoreFull,
    StoreMismatch,
    StoreUnavailable,
    TapeError,
    TooLarge,
    Unauthenticated,
    Unsafe,
    VersionMismatch,
)
from tape.journal.follow import Page
from tape.model.entry import Entry
from tape.model.event import NewEvent, Recorded
from tape.model.reaction import HandlerKind, NewReaction, Reaction, ReactionState
from tape.model.task import Task, TaskOutcome, TaskStatus
from tape.model.value import Deleted, Value, ValueChange
from tape.reactions.declare import (
    on,
    on_decision_recorded,
    on_effect_confirmed,
    on_effect_failed,
    on_effect_unknown,
    on_gate,
    on_run,
    on_value_change,
    on_value_deleted,
)

__version__ = VERSION

__all__ = [
    "DEFAULT_URL",
    "AsyncTapeClient",
    "BrokerError",
    "BrokerRefused",
    "BrokerUnavailable",
    "Closed",
    "Deleted",
    "Entry",
    "GiveUp",
    "HandlerKind",
    "InvalidArgument",
    "NewEvent",
    "NewReaction",
    "NotFound",
    "NotHeld",
    "OutcomeUnknown",
    "Overloaded",
    "Page",
    "PermissionDenied",
    "Reaction",
    "ReactionState",
    "Recorded",
    "Settings",
    "StaleLease",
    "StoreFailed",
    "StoreFull",
    "StoreMismatch",
    "StoreUnavailable",
    "TapeClient",
    "TapeError",
    "Task",
    "TaskOutcome",
    "TaskStatus",
    "TooLarge",
    "Unauthenticated",
    "Unsafe",
    "Value",
    "ValueChange",
    "VersionMismatch",
    "connect",
    "connect_async",
    "errors",
    "event",
    "on",
    "on_decision_recorded",
    "on_effect_confirmed",
    "on_effect_failed",
    "on_effect_unknown",
    "on_gate",
    "on_run",
    "on_value_change",
    "on_value_deleted",
    "reactions",
]
