"""Every error Tape raises. The docstring of a class is its message when none is given.

`reason` is the machine-readable name that travels in google.rpc.ErrorInfo, so a remote caller
catches the same class as an embedded one.
"""

from typing import ClassVar


class TapeError(Exception):
    """Tape could not do what was asked."""

    reason: ClassVar[str] = "INTERNAL"

    def __init__(self, message: str = "") -> None:
        super().__init__(message or (type(self).__doc__ or "").strip())


class InvalidArgument(TapeError):
    """The request is malformed."""

    reason = "INVALID_ARGUMENT"

    def __init__(
        self,
        message: str = "",
        *,
        field: str = "",
        position: int | None = None,
        line: int | None = None,
    ) -> None:
        """`field` names the offending input; `position` is the character offset of the fault in it,
        `line` its line in a document, from 1."""
        self.field = field
        self.position = position
        self.line = line
        where = field if position is None else f"{field or 'input'} at position {position}"
        super().__init__(f"{where}: {message}" if where and message else message)


class TooLarge(InvalidArgument):
    """The request exceeds a configured limit."""

    reason = "TOO_LARGE"


class PredicateError(TapeError):
    """The predicate has no result for this entry."""

    reason = "PREDICATE_FAILED"


class PredicateTooCostly(PredicateError):
    """The predicate does more work for this entry than one evaluation may."""

    reason = "PREDICATE_TOO_COSTLY"


class NotFound(TapeError):
    """Nothing has that id."""

    reason = "NOT_FOUND"


class VersionMismatch(TapeError):
    """The value has changed since the version that you read."""

    reason = "VERSION_MISMATCH"


class StaleLease(TapeError):
    """Another driver has taken this run over: abandon the work."""

    reason = "STALE_LEASE"


class LeaseHeld(TapeError):
    """Another driver holds this run: try again later."""

    reason = "LEASE_HELD"


class RunEnded(TapeError):
    """The run has ended; nothing more is written for it."""

    reason = "RUN_ENDED"


class RunCancelled(TapeError):
    """The run is being cancelled: it starts nothing new."""

    reason = "RUN_CANCELLED"


class BusinessKeyTaken(TapeError):
    """Another effect has this business key."""

    reason = "BUSINESS_KEY_TAKEN"


class BudgetExceeded(TapeError):
    """The run's budget does not allow this."""

    reason = "BUDGET_EXCEEDED"


class Diverged(TapeError):
    """The run takes another step than its journal records: its code has changed or is random."""

    reason = "DIVERGED"


class EffectFailed(TapeError):
    """The effect did not happen."""

    reason = "EFFECT_FAILED"


class AckLost(TapeError):
    """Raised by an effect: the counterparty may or may not have acted. It will be reconciled."""

    reason = "ACK_LOST"


class NotHeld(TapeError):
    """This owner does not hold the task: its lease ran out and another has claimed it."""

    reason = "TASK_NOT_HELD"


class NotLeading(TapeError):
    """Another relay leads and does the work."""

    reason = "NOT_LEADING"


class NotInTransaction(TapeError):
    """There is no open transaction: the event could be committed without the change it reports."""

    reason = "NOT_IN_TRANSACTION"


class NotHalted(TapeError):
    """The drainer is not halted at that event."""

    reason = "NOT_HALTED"


class SchemaRefused(TapeError):
    """The payload types have changed so that old consumers cannot read them."""

    reason = "SCHEMA_REFUSED"


class Overloaded(TapeError):
    """The write queue is full: slow down and retry."""

    reason = "OVERLOADED"

    def __init__(self, message: str = "", *, retry_after_ms: int = 1000) -> None:
        self.retry_after_ms = retry_after_ms
        super().__init__(message)


class Unauthenticated(TapeError):
    """A valid token is required."""

    reason = "UNAUTHENTICATED"


class PermissionDenied(TapeError):
    """The token's role does not allow this."""

    reason = "PERMISSION_DENIED"


class StoreUnavailable(TapeError):
    """The store cannot be reached; nothing of this request was written."""

    reason = "STORE_UNAVAILABLE"


class OutcomeUnknown(StoreUnavailable):
    """The store went away during the commit: look before you retry, or retry with the same key."""

    reason = "OUTCOME_UNKNOWN"


class StoreFull(TapeError):
    """The disk or database is full; nothing of this request was written."""

    reason = "STORE_FULL"


class StoreMismatch(TapeError):
    """This version of Tape cannot use the database."""

    reason = "STORE_MISMATCH"


class Pruned(TapeError):
    """The requested entries have been pruned from the journal."""

    reason = "PRUNED"


class SparkUnavailable(TapeError):
    """Spark cannot run here."""

    reason = "SPARK_UNAVAILABLE"


class StoreFailed(TapeError):
    """The database refused this write; nothing of it was written."""

    reason = "STORE_FAILED"


class Unsafe(TapeError):
    """This set-up would expose the journal: it needs a token and TLS."""

    reason = "UNSAFE"


class GiveUp(TapeError):
    """Raised by a handler: no retry will help, dead-letter the task at once."""

    reason = "GIVE_UP"


class BrokerError(TapeError):
    """The broker did not accept the message."""

    reason = "BROKER_FAILED"


class BrokerUnavailable(BrokerError):
    """The broker cannot be reached or did not acknowledge in time: try again."""

    reason = "BROKER_UNAVAILABLE"


class BrokerRefused(BrokerError):
    """The broker refuses this message."""

    reason = "BROKER_REFUSED"


class SourceUnavailable(TapeError):
    """The source cannot be reached: try again."""

    reason = "SOURCE_UNAVAILABLE"
    at = ""

    def __init__(self, message: str = "", *, at: str = "") -> None:
        """`at` is the address that does not answer. All that wait for it share what is logged."""
        if at:
            self.at = at
        super().__init__(message)


class SourceRefused(TapeError):
    """The source refuses the settings or the login; trying again does not help."""

    reason = "SOURCE_REFUSED"


class MessageRefused(TapeError):
    """The message cannot be accepted; it becomes a dead letter."""

    reason = "MESSAGE_REFUSED"

    def __init__(self, message: str = "", *, because: str = "") -> None:
        """`because` is a word: not_json, too_deep, too_large or number_too_large."""
        self.because = because
        super().__init__(message)


class WrongState(TapeError):
    """The subscription's state does not allow this."""

    reason = "WRONG_STATE"

    def __init__(self, message: str = "", *, state: str = "") -> None:
        self.state = state
        super().__init__(message)


class NoCredential(TapeError):
    """The wallet has no credential by that alias, or one of another form."""

    reason = "NO_CREDENTIAL"

    def __init__(self, message: str = "", *, field: str = "") -> None:
        """`field` is what named the alias."""
        self.field = field
        super().__init__(f"{field}: {message}" if field and message else message)


class WalletLocked(TapeError):
    """No key for the wallet: set TAPE_WALLET_KEY_FILE, TAPE_WALLET_KEY or TAPE_WALLET_KMS."""

    reason = "WALLET_LOCKED"


class WalletUnavailable(TapeError):
    """The key management service that has the wallet's key did not answer: try again."""

    reason = "WALLET_UNAVAILABLE"


class CredentialDamaged(TapeError):
    """The stored credential is not what was sealed under its alias and version."""

    reason = "CREDENTIAL_DAMAGED"


class Closed(TapeError):
    """This connection to Tape has been closed."""

    reason = "CLOSED"
