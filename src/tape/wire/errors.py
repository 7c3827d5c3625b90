"""Our errors as gRPC statuses and back, so that a remote caller catches what an embedded one does.

A status carries google.rpc.ErrorInfo: `reason` names the class, `metadata` holds its attributes.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TypeVar

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError, Message

# googleapis-common-protos ships no types.
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]
from grpc_status import rpc_status

from tape import errors

M = TypeVar("M", bound=Message)

DOMAIN = "tape"
DETAILS_KEY = "grpc-status-details-bin"
# A status travels in HTTP/2 headers, twice and encoded; peers accept 8 KiB of them.
MESSAGE_BYTES = 1_500

_Code = grpc.StatusCode

CODES: dict[type[errors.TapeError], grpc.StatusCode] = {
    errors.TapeError: _Code.INTERNAL,
    errors.InvalidArgument: _Code.INVALID_ARGUMENT,
    errors.TooLarge: _Code.RESOURCE_EXHAUSTED,
    errors.PredicateError: _Code.INVALID_ARGUMENT,
    errors.PredicateTooCostly: _Code.RESOURCE_EXHAUSTED,
    errors.NotFound: _Code.NOT_FOUND,
    errors.VersionMismatch: _Code.ABORTED,
    errors.StaleLease: _Code.FAILED_PRECONDITION,
    errors.LeaseHeld: _Code.FAILED_PRECONDITION,
    errors.RunEnded: _Code.FAILED_PRECONDITION,
    errors.RunCancelled: _Code.FAILED_PRECONDITION,
    errors.Diverged: _Code.FAILED_PRECONDITION,
    errors.EffectFailed: _Code.FAILED_PRECONDITION,
    errors.BusinessKeyTaken: _Code.ALREADY_EXISTS,
    errors.BudgetExceeded: _Code.RESOURCE_EXHAUSTED,
    errors.AckLost: _Code.ABORTED,
    errors.NotHeld: _Code.FAILED_PRECONDITION,
    errors.NotLeading: _Code.FAILED_PRECONDITION,
    errors.NotInTransaction: _Code.FAILED_PRECONDITION,
    errors.NotHalted: _Code.FAILED_PRECONDITION,
    errors.SchemaRefused: _Code.FAILED_PRECONDITION,
    errors.Overloaded: _Code.RESOURCE_EXHAUSTED,
    errors.Unauthenticated: _Code.UNAUTHENTICATED,
    errors.PermissionDenied: _Code.PERMISSION_DENIED,
    errors.StoreUnavailable: _Code.UNAVAILABLE,
    errors.StoreFull: _Code.RESOURCE_EXHAUSTED,
    errors.StoreMismatch: _Code.FAILED_PRECONDITION,
    errors.Pruned: _Code.OUT_OF_RANGE,
    errors.SparkUnavailable: _Code.FAILED_PRECONDITION,
    errors.StoreFailed: _Code.FAILED_PRECONDITION,
    errors.Unsafe: _Code.FAILED_PRECONDITION,
    errors.BrokerError: _Code.FAILED_PRECONDITION,
    errors.BrokerUnavailable: _Code.UNAVAILABLE,
    errors.SourceUnavailable: _Code.UNAVAILABLE,
    errors.SourceRefused: _Code.FAILED_PRECONDITION,
    errors.MessageRefused: _Code.INVALID_ARGUMENT,
    errors.WrongState: _Code.FAILED_PRECONDITION,
    errors.NoCredential: _Code.FAILED_PRECONDITION,
    errors.WalletLocked: _Code.FAILED_PRECONDITION,
    errors.WalletUnavailable: _Code.UNAVAILABLE,
    errors.CredentialDamaged: _Code.DATA_LOSS,
    errors.Closed: _Code.UNAVAILABLE,
}

_TEXTS: dict[type[errors.TapeError], tuple[str, ...]] = {
    errors.MessageRefused: ("because",),
    errors.NoCredential: ("field",),
    errors.WrongState: ("state",),
}
"""Attributes that are texts."""

_GUESSES: dict[grpc.StatusCode, tuple[type[errors.TapeError], str]] = {
    _Code.UNAVAILABLE: (errors.StoreUnavailable, "the server cannot be reached"),
    _Code.CANCELLED: (errors.StoreUnavailable, "the server ended the call"),
    _Code.DEADLINE_EXCEEDED: (errors.StoreUnavailable, "the server did not answer in time"),
    _Code.UNAUTHENTICATED: (errors.Unauthenticated, "a valid token is required"),
    _Code.PERMISSION_DENIED: (errors.PermissionDenied, "this is not allowed"),
    _Code.INVALID_ARGUMENT: (errors.InvalidArgument, "the request is malformed"),
    _Code.NOT_FOUND: (errors.NotFound, "not found on the server"),
    _Code.RESOURCE_EXHAUSTED: (errors.Overloaded, "the server is overloaded"),
    _Code.UNIMPLEMENTED: (errors.TapeError, "the server does not know this call"),
}


def to_status(error: errors.TapeError) -> grpc.Status:
    code = next(CODES[kind] for kind in type(error).__mro__ if kind in CODES)
    message = _clipped(str(error))
    info = ErrorInfo(reason=error.reason, domain=DOMAIN)
    status = Status(code=code.value[0], message=message)
    if isinstance(error, errors.InvalidArgument):
        if error.field:
            info.metadata["field"] = error.field
        if error.position is not None:
            info.metadata["position"] = str(error.position)
        if error.line is not None:
            info.metadata["line"] = str(error.line)
    for name in _TEXTS.get(type(error), ()):
        info.metadata[name] = getattr(error, name)
    status.details.add().Pack(info)
    if isinstance(error, errors.Overloaded):
        delay = Duration()
        delay.FromMilliseconds(error.retry_after_ms)
        status.details.add().Pack(RetryInfo(retry_delay=delay))
    return rpc_status.to_status(status)


def from_rpc_error(failed: grpc.aio.AioRpcError) -> errors.TapeError:
    status = _status_of(failed)
    for info in _unpacked(status, ErrorInfo):
        if info.domain == DOMAIN and (kind := _BY_REASON.get(info.reason)) is not None:
            return _rebuilt(kind, status, info)
    return _guessed(failed)


def from_reason(reason: str, message: str) -> errors.TapeError:
    """An error that is part of an answer, told by its reason and text."""
    return _rebuilt(_BY_REASON.get(reason, errors.TapeError), Status(message=message), ErrorInfo())


def is_ours(failed: grpc.aio.AioRpcError) -> bool:
    """Whether a Tape server said this, not the transport on the way to it."""
    return any(info.domain == DOMAIN for info in _unpacked(_status_of(failed), ErrorInfo))


def _rebuilt(kind: type[errors.TapeError], status: Status, info: ErrorInfo) -> errors.TapeError:
    # The message is complete: the constructor would add the field's name once more.
    error = kind.__new__(kind, status.message)
    if isinstance(error, errors.InvalidArgument):
        error.field = info.metadata.get("field", "")
        position = info.metadata.get("position")
        error.position = None if position is None else int(position)
        line = info.metadata.get("line")
        error.line = None if line is None else int(line)
    for name in _TEXTS.get(kind, ()):
        setattr(error, name, info.metadata.get(name, ""))
    if isinstance(error, errors.Overloaded):
        error.retry_after_ms = next(
            (retry.retry_delay.ToMilliseconds() for retry in _unpacked(status, RetryInfo)), 1000
        )
    return error


def _guessed(failed: grpc.aio.AioRpcError) -> errors.TapeError:
    """For a status that no Tape server made: the transport's own, or a proxy's."""
    said, code = failed.details() or "", failed.code()
    if code == _Code.RESOURCE_EXHAUSTED and "larger than max" in said:
        return errors.TooLarge(f"the message is too large: {said}")
    kind, what = _GUESSES.get(code, (errors.TapeError, f"the server failed with {code.name}"))
    return kind(f"{what}: {said}")


def _status_of(failed: grpc.aio.AioRpcError) -> Status:
    for key, value in failed.trailing_metadata() or ():
        if key == DETAILS_KEY and isinstance(value, bytes):
            with suppress(DecodeError):
                return Status.FromString(value)
    return Status()


def _unpacked(status: Status, kind: Callable[[], M]) -> Iterator[M]:
    for detail in status.details:
        message = kind()
        if detail.Unpack(message):
            yield message


def _clipped(text: str) -> str:
    encoded = text.encode(errors="replace")
    if len(encoded) <= MESSAGE_BYTES:
        return encoded.decode()
    return encoded[: MESSAGE_BYTES - 3].decode(errors="ignore") + "…"


_KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type)]
_BY_REASON = {kind.reason: kind for kind in _KINDS if issubclass(kind, errors.TapeError)}
"""Of the errors that callers meet. A room's own kinds of them travel as what they are kinds of."""
