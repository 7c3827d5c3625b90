"""A durable event bus and run journal for Python."""

from tape import errors
from tape.app import connect, connect_async
from tape.client import AsyncTapeClient, TapeClient, event
from tape.config import DEFAULT_URL, VERSION, Settings
from tape.errors import (
    BrokerError,
    BrokerRefused,
    BrokerUnavailable,
    Closed,
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
from tape.model.value import Deleted, Value, ValueChange

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
    "InvalidArgument",
    "NewEvent",
    "NotFound",
    "NotHeld",
    "OutcomeUnknown",
    "Overloaded",
    "Page",
    "PermissionDenied",
    "Recorded",
    "Settings",
    "StaleLease",
    "StoreFailed",
    "StoreFull",
    "StoreMismatch",
    "StoreUnavailable",
    "TapeClient",
    "TapeError",
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
]
