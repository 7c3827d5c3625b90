"""A durable event bus and run journal for Python."""

from importlib import import_module
from types import ModuleType

from tape import errors, reactions
from tape.app import connect, connect_async
from tape.client import AsyncTapeClient, TapeClient, event
from tape.config import DEFAULT_URL, VERSION, Settings
from tape.errors import (
    AckLost,
    BrokerError,
    BrokerRefused,
    BrokerUnavailable,
    BudgetExceeded,
    BusinessKeyTaken,
    Closed,
    Diverged,
    EffectFailed,
    GiveUp,
    InvalidArgument,
    LeaseHeld,
    NotFound,
    NotHalted,
    NotHeld,
    NotInTransaction,
    NotLeading,
    OutcomeUnknown,
    Overloaded,
    PermissionDenied,
    Pruned,
    RunCancelled,
    RunEnded,
    SchemaRefused,
    SparkUnavailable,
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
from tape.ledger.declare import on_event
from tape.model.bus_subject import bus_subject
from tape.model.drainer import DrainerState, DrainReport
from tape.model.entry import Entry
from tape.model.event import NewEvent, Recorded
from tape.model.event_subscription import EventSubscription
from tape.model.reaction import HandlerKind, NewReaction, Reaction, ReactionState
from tape.model.run import Run, RunStatus
from tape.model.task import Task, TaskOutcome, TaskStatus
from tape.model.value import Deleted, Value, ValueChange
from tape.publishing import create_processed, forget_processed, processed_within, publish_within
from tape.reactions.declare import (
    on,
    on_decision_recorded,
    on_effect_confirmed,
    on_effect_failed,
    on_effect_reconciled,
    on_effect_unknown,
    on_gate,
    on_run,
    on_value_change,
    on_value_deleted,
)
from tape.relaying import run_relay
from tape.running import cancel_run, recover_once, resume, send_signal, start, watch_value
from tape.runs.ambient import idempotency_key
from tape.runs.context import Context
from tape.runs.declare import App, RetryPolicy, Spend, app, effect
from tape.runs.observed import Observed
from tape.runs.sdk import (
    Budget,
    cancel_timer,
    delete_value,
    gate,
    get_value,
    heartbeat,
    is_cancelled,
    now,
    patched,
    random,
    sample,
    set_timer,
    set_value,
    sleep,
    uuid,
    with_budget,
)
from tape.runs.sync_context import SyncContext

__version__ = VERSION

__all__ = [
    "DEFAULT_URL",
    "AckLost",
    "App",
    "AsyncTapeClient",
    "BrokerError",
    "BrokerRefused",
    "BrokerUnavailable",
    "Budget",
    "BudgetExceeded",
    "BusinessKeyTaken",
    "Closed",
    "Context",
    "Deleted",
    "Diverged",
    "DrainReport",
    "DrainerState",
    "EffectFailed",
    "Entry",
    "EventSubscription",
    "GiveUp",
    "HandlerKind",
    "InvalidArgument",
    "LeaseHeld",
    "NewEvent",
    "NewReaction",
    "NotFound",
    "NotHalted",
    "NotHeld",
    "NotInTransaction",
    "NotLeading",
    "Observed",
    "OutcomeUnknown",
    "Overloaded",
    "Page",
    "PermissionDenied",
    "Pruned",
    "Reaction",
    "ReactionState",
    "Recorded",
    "RetryPolicy",
    "Run",
    "RunCancelled",
    "RunEnded",
    "RunStatus",
    "SchemaRefused",
    "Settings",
    "SparkUnavailable",
    "Spend",
    "StaleLease",
    "StoreFailed",
    "StoreFull",
    "StoreMismatch",
    "StoreUnavailable",
    "SyncContext",
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
    "app",
    "bus_subject",
    "cancel_run",
    "cancel_timer",
    "connect",
    "connect_async",
    "create_processed",
    "delete_value",
    "effect",
    "errors",
    "event",
    "forget_processed",
    "gate",
    "get_value",
    "heartbeat",
    "idempotency_key",
    "is_cancelled",
    "now",
    "on",
    "on_decision_recorded",
    "on_effect_confirmed",
    "on_effect_failed",
    "on_effect_reconciled",
    "on_effect_unknown",
    "on_event",
    "on_gate",
    "on_run",
    "on_value_change",
    "on_value_deleted",
    "patched",
    "processed_within",
    "publish_within",
    "random",
    "reactions",
    "recover_once",
    "resume",
    "run_relay",
    "sample",
    "send_signal",
    "set_timer",
    "set_value",
    "sleep",
    "start",
    "uuid",
    "watch_value",
    "with_budget",
]


def __getattr__(name: str) -> ModuleType:
    """Loaded when they are asked for: Spark takes a second to import, pydantic a tenth."""
    if name in ("payloads", "reactors", "sinks", "spark"):
        return import_module(f"tape.{name}")
    raise AttributeError(f"module 'tape' has no attribute {name!r}")
