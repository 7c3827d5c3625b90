"""A durable event bus and run journal for Python.

Each name is loaded when it is first used: a program that only declares what it does should not wait
for stores, predicates and clients, and importing all of them takes a fifth of a second. The block
under TYPE_CHECKING says where each name is from, to type checkers and, compiled, to the loader.
"""

import sys
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tape import consumers as consumers
    from tape import errors, reactions
    from tape import payloads as payloads
    from tape import reactors as reactors
    from tape import relaying as relaying
    from tape import sinks as sinks
    from tape import testing as testing
    from tape import worker as worker
    from tape.client import AsyncTapeClient, TapeClient, event
    from tape.errors import (
        AckLost,
        BrokerError,
        BrokerRefused,
        BrokerUnavailable,
        BudgetExceeded,
        BusinessKeyTaken,
        Closed,
        CredentialDamaged,
        Diverged,
        EffectFailed,
        GiveUp,
        InvalidArgument,
        LeaseHeld,
        MessageRefused,
        NoCredential,
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
        SourceRefused,
        SourceUnavailable,
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
        WalletLocked,
        WalletUnavailable,
        WrongState,
    )
    from tape.journal.follow import Page
    from tape.ledger.declare import on_event
    from tape.model.bus_subject import bus_subject
    from tape.model.credential import CredentialState
    from tape.model.drainer import DrainerState, DrainReport
    from tape.model.entry import Entry
    from tape.model.event import NewEvent, Recorded
    from tape.model.event_subscription import EventSubscription
    from tape.model.poll import Polled
    from tape.model.reaction import HandlerKind, NewReaction, Reaction, ReactionState
    from tape.model.run import Run, RunStatus
    from tape.model.task import Task, TaskOutcome, TaskStatus
    from tape.model.value import Deleted, Value, ValueChange
    from tape.programs.connect import connect, connect_async
    from tape.programs.outbox_relay import run_relay
    from tape.programs.publishing import (
        create_processed,
        forget_processed,
        processed_within,
        publish_within,
    )
    from tape.programs.run_control import (
        cancel_run,
        recover_once,
        resume,
        send_signal,
        start,
        watch_value,
    )
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
    from tape.settings import DEFAULT_URL, Settings
    from tape.subscriptions.operations import SubscriptionView

    spark: ModuleType  # a type checker should not have to read all of Spark
    __version__: str

__all__ = [
    "DEFAULT_URL",
    "App",
    "AsyncTapeClient",
    "Context",
    "Entry",
    "Observed",
    "RetryPolicy",
    "Settings",
    "SyncContext",
    "TapeClient",
    "TapeError",
    "app",
    "cancel_run",
    "connect",
    "connect_async",
    "delete_value",
    "effect",
    "errors",
    "event",
    "gate",
    "get_value",
    "idempotency_key",
    "now",
    "on",
    "on_event",
    "on_run",
    "on_value_change",
    "publish_within",
    "random",
    "reactions",
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
]
_FIRST_WEEK = frozenset(__all__)
"""What `dir` shows: the names of a first week. Those below are as public."""
__all__ += [
    "AckLost",
    "BrokerError",
    "BrokerRefused",
    "BrokerUnavailable",
    "Budget",
    "BudgetExceeded",
    "BusinessKeyTaken",
    "Closed",
    "CredentialDamaged",
    "CredentialState",
    "Deleted",
    "Diverged",
    "DrainReport",
    "DrainerState",
    "EffectFailed",
    "EventSubscription",
    "GiveUp",
    "HandlerKind",
    "InvalidArgument",
    "LeaseHeld",
    "MessageRefused",
    "NewEvent",
    "NewReaction",
    "NoCredential",
    "NotFound",
    "NotHalted",
    "NotHeld",
    "NotInTransaction",
    "NotLeading",
    "OutcomeUnknown",
    "Overloaded",
    "Page",
    "PermissionDenied",
    "Polled",
    "Pruned",
    "Reaction",
    "ReactionState",
    "Recorded",
    "Run",
    "RunCancelled",
    "RunEnded",
    "RunStatus",
    "SchemaRefused",
    "SourceRefused",
    "SourceUnavailable",
    "SparkUnavailable",
    "Spend",
    "StaleLease",
    "StoreFailed",
    "StoreFull",
    "StoreMismatch",
    "StoreUnavailable",
    "SubscriptionView",
    "Task",
    "TaskOutcome",
    "TaskStatus",
    "TooLarge",
    "Unauthenticated",
    "Unsafe",
    "Value",
    "ValueChange",
    "VersionMismatch",
    "WalletLocked",
    "WalletUnavailable",
    "WrongState",
    "bus_subject",
    "cancel_timer",
    "create_processed",
    "forget_processed",
    "heartbeat",
    "is_cancelled",
    "on_decision_recorded",
    "on_effect_confirmed",
    "on_effect_failed",
    "on_effect_reconciled",
    "on_effect_unknown",
    "on_gate",
    "on_value_deleted",
    "patched",
    "processed_within",
    "recover_once",
    "with_budget",
]


@cache
def _homes() -> dict[str, str]:
    """Read the block above: the module of each name, and of a module itself `tape`.

    It is read as compiled code, which is also there in a zip file and in a program that was frozen
    without its sources.
    """
    import dis  # not needed by who only imports Tape

    loader: Any = sys.modules[__name__].__loader__
    homes = {"spark": __name__}
    module = ""
    for instruction in dis.get_instructions(loader.get_code(__name__)):
        if instruction.opname == "IMPORT_NAME":
            module = instruction.argval
        elif instruction.opname == "IMPORT_FROM" and module.partition(".")[0] == __name__:
            homes[instruction.argval] = module
    return homes


def _load(name: str) -> Any:
    if name == "__version__":
        return import_module("tape.settings").VERSION
    home = None if name.startswith("_") else _homes().get(name)
    if home is None:
        raise AttributeError(f"module 'tape' has no attribute {name!r}{_meant_by(name)}")
    if home == __name__:
        return import_module(f"tape.{name}")
    value = globals()[name] = getattr(import_module(home), name)
    return value


def _meant_by(name: str) -> str:
    from difflib import get_close_matches  # rarely needed

    near = [] if name.startswith("_") else get_close_matches(name, __all__, n=1)
    return f". Did you mean {near[0]!r}?" if near else ""


if not TYPE_CHECKING:  # type checkers see the imports above, and no names besides
    __getattr__ = _load


def __dir__() -> list[str]:
    return sorted({*_FIRST_WEEK, *(name for name in globals() if name.startswith("__"))})
