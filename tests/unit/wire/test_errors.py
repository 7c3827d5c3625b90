"""Every error class is the same on both sides of the wire."""

from collections.abc import Iterator

import grpc
import pytest
from grpc.aio import AioRpcError, Metadata

from tape import errors
from tape.wire.errors import CODES, from_rpc_error, is_ours, to_status


def classes(kind: type[errors.TapeError] = errors.TapeError) -> Iterator[type[errors.TapeError]]:
    yield kind
    for child in kind.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from classes(child)


def over_the_wire(error: errors.TapeError) -> AioRpcError:
    status = to_status(error)
    trailing = Metadata(*(status.trailing_metadata or ()))
    return AioRpcError(status.code, Metadata(), trailing, status.details)


def failed(code: grpc.StatusCode, details: str = "") -> AioRpcError:
    return AioRpcError(code, Metadata(), Metadata(), details)


@pytest.mark.parametrize("kind", list(classes()))
@pytest.mark.parametrize("message", ["", "a text with ünïcode and \x00"])
def test_comes_back_equal(kind: type[errors.TapeError], message: str) -> None:
    error = kind(message)
    back = from_rpc_error(over_the_wire(error))
    assert type(back) is kind
    assert back.args == error.args
    assert vars(back) == vars(error)


@pytest.mark.parametrize(
    "error",
    [
        errors.InvalidArgument("no", field="subject_pattern", position=7),
        errors.InvalidArgument("no", field="a"),
        errors.TooLarge("no", position=0),
        errors.Overloaded(retry_after_ms=2500),
    ],
)
def test_attributes_come_back(error: errors.TapeError) -> None:
    back = from_rpc_error(over_the_wire(error))
    assert (str(back), vars(back)) == (str(error), vars(error))


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.InvalidArgument, "INVALID_ARGUMENT"),
        (errors.TooLarge, "RESOURCE_EXHAUSTED"),
        (errors.NotFound, "NOT_FOUND"),
        (errors.VersionMismatch, "ABORTED"),
        (errors.StaleLease, "FAILED_PRECONDITION"),
        (errors.LeaseHeld, "FAILED_PRECONDITION"),
        (errors.RunEnded, "FAILED_PRECONDITION"),
        (errors.RunCancelled, "FAILED_PRECONDITION"),
        (errors.Diverged, "FAILED_PRECONDITION"),
        (errors.EffectFailed, "FAILED_PRECONDITION"),
        (errors.BusinessKeyTaken, "ALREADY_EXISTS"),
        (errors.BudgetExceeded, "RESOURCE_EXHAUSTED"),
        (errors.AckLost, "ABORTED"),
        (errors.Overloaded, "RESOURCE_EXHAUSTED"),
        (errors.Unauthenticated, "UNAUTHENTICATED"),
        (errors.PermissionDenied, "PERMISSION_DENIED"),
        (errors.StoreUnavailable, "UNAVAILABLE"),
        (errors.OutcomeUnknown, "UNAVAILABLE"),
        (errors.Closed, "UNAVAILABLE"),
        (errors.StoreFull, "RESOURCE_EXHAUSTED"),
        (errors.StoreMismatch, "FAILED_PRECONDITION"),
        (errors.Pruned, "OUT_OF_RANGE"),
        (errors.SparkUnavailable, "FAILED_PRECONDITION"),
        (errors.StoreFailed, "FAILED_PRECONDITION"),
    ],
)
def test_codes(kind: type[errors.TapeError], code: str) -> None:
    assert to_status(kind()).code.name == code


def test_only_an_overload_is_worth_another_try() -> None:
    """A budget that is spent stays spent: no retry info."""
    told = {
        kind
        for kind in classes()
        for _, details in to_status(kind()).trailing_metadata or ()
        if b"google.rpc.RetryInfo" in details
    }
    assert told == {errors.Overloaded}


def test_every_reason_is_one_class() -> None:
    reasons = [kind.reason for kind in classes()]
    assert len(reasons) == len(set(reasons))


def test_only_our_own_fault_is_internal() -> None:
    assert [kind for kind, code in CODES.items() if code.name in ("INTERNAL", "UNKNOWN")] == [
        errors.TapeError
    ]


def test_a_long_message_fits_into_headers() -> None:
    status = to_status(errors.InvalidArgument("ü" * 10_000, field="f" * 500))
    assert len(status.details.encode()) <= 1_500
    ((_, details),) = status.trailing_metadata or ()
    assert 3 * len(status.details.encode()) + 4 * len(details) // 3 < 8 * 1024
    assert is_ours(over_the_wire(errors.InvalidArgument("ü" * 10_000)))


@pytest.mark.parametrize(
    ("code", "details", "kind"),
    [
        (grpc.StatusCode.UNAVAILABLE, "Socket closed", errors.StoreUnavailable),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "Sent message larger than max", errors.TooLarge),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "Too many requests", errors.Overloaded),
        (grpc.StatusCode.UNAUTHENTICATED, "", errors.Unauthenticated),
        (grpc.StatusCode.UNIMPLEMENTED, "", errors.TapeError),
        (grpc.StatusCode.INTERNAL, "", errors.TapeError),
    ],
)
def test_what_the_transport_says(
    code: grpc.StatusCode, details: str, kind: type[errors.TapeError]
) -> None:
    error = failed(code, details)
    assert type(from_rpc_error(error)) is kind
    assert not is_ours(error)


def test_a_reason_from_a_newer_server_is_read_by_its_code() -> None:
    class Newer(errors.NotFound):
        """A class this version lacks."""

        reason = "NEWER"

    back = from_rpc_error(over_the_wire(Newer()))
    assert type(back) is errors.NotFound
