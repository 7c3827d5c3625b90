"""A durable event bus and run journal for Python.

Each name is loaded when it is first used: a program that only declares what it does should not wait
for stores, predicates and clients, and importing all of them takes a fifth of a second.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tape import errors, reactions
    from tape import payloads as payloads
    from tape import reactors as reactors
    from tape import sinks as sinks
    from tape import testing as testing
    from tape.app import connect, connect_async
    from tape.client import AsyncTapeClient, TapeClient, event
    from tape.config import DEFAULT_URL, Settings
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
    from tape.runs.declare import App, Observed, RetryPolicy, Spend, app, effect
    from tape.runs.driving.context import Context
    from tape.runs.driving.sync_context import SyncContext
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

    spark: ModuleType  # a type checker should not have to read all of Spark
    __version__: str

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

_MODULES = frozenset(
    {
        "consumers",
        "errors",
        "payloads",
        "reactions",
        "reactors",
        "relaying",
        "sinks",
        "spark",
        "testing",
        "worker",
    }
)
_NAMES = {
    "tape.app": "connect connect_async",
    "tape.client": "AsyncTapeClient TapeClient event",
    "tape.config": "DEFAULT_URL Settings",
    "tape.errors": """
        AckLost BrokerError BrokerRefused BrokerUnavailable BudgetExceeded BusinessKeyTaken
        Closed Diverged EffectFailed GiveUp InvalidArgument LeaseHeld NotFound NotHalted
        NotHeld NotInTransaction NotLeading OutcomeUnknown Overloaded PermissionDenied
        Pruned RunCancelled RunEnded SchemaRefused SparkUnavailable StaleLease StoreFailed
        StoreFull StoreMismatch StoreUnavailable TapeError TooLarge Unauthenticated Unsafe
        VersionMismatch
    """,
    "tape.journal.follow": "Page",
    "tape.ledger.declare": "on_event",
    "tape.model.bus_subject": "bus_subject",
    "tape.model.drainer": "DrainerState DrainReport",
    "tape.model.entry": "Entry",
    "tape.model.event": "NewEvent Recorded",
    "tape.model.event_subscription": "EventSubscription",
    "tape.model.reaction": "HandlerKind NewReaction Reaction ReactionState",
    "tape.model.run": "Run RunStatus",
    "tape.model.task": "Task TaskOutcome TaskStatus",
    "tape.model.value": "Deleted Value ValueChange",
    "tape.publishing": "create_processed forget_processed processed_within publish_within",
    "tape.reactions.declare": """
        on on_decision_recorded on_effect_confirmed on_effect_failed on_effect_reconciled
        on_effect_unknown on_gate on_run on_value_change on_value_deleted
    """,
    "tape.relaying": "run_relay",
    "tape.running": "cancel_run recover_once resume send_signal start watch_value",
    "tape.runs.ambient": "idempotency_key",
    "tape.runs.driving.context": "Context",
    "tape.runs.declare": "App Observed RetryPolicy Spend app effect",
    "tape.runs.sdk": """
        Budget cancel_timer delete_value gate get_value heartbeat is_cancelled now patched
        random sample set_timer set_value sleep uuid with_budget
    """,
    "tape.runs.driving.sync_context": "SyncContext",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}


def _load(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"tape.{name}")
    if name == "__version__":
        return import_module("tape.config").VERSION
    if name not in _HOMES:
        raise AttributeError(f"module 'tape' has no attribute {name!r}{_meant_by(name)}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def _meant_by(name: str) -> str:
    from difflib import get_close_matches  # rarely needed

    near = [] if name.startswith("_") else get_close_matches(name, __all__, n=1)
    return f". Did you mean {near[0]!r}?" if near else ""


if not TYPE_CHECKING:  # type checkers see the imports above, and no names besides
    __getattr__ = _load


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})


class _Package(ModuleType):
    """`tape.app` is the decorator. There is a module of that name, and whoever imports a module
    sets it as an attribute of its package; that one must not take the decorator's place."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "app" or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
