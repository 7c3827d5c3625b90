"""Every error as `{"error": {"reason", "message", "field"?, "position"?}}`, and its status.

A refusal is answered in our own words. Of a store that fails only the kind is told, because its
words name hosts and tables. Anything else is a fault of ours: logged, and answered with INTERNAL.
"""

import math
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import orjson
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match

from tape import errors

STATUSES: dict[type[errors.TapeError], HTTPStatus] = {
    errors.TapeError: HTTPStatus.INTERNAL_SERVER_ERROR,
    errors.InvalidArgument: HTTPStatus.BAD_REQUEST,
    errors.TooLarge: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    errors.PredicateError: HTTPStatus.BAD_REQUEST,
    errors.PredicateTooCostly: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    errors.NotFound: HTTPStatus.NOT_FOUND,
    errors.VersionMismatch: HTTPStatus.CONFLICT,
    errors.StaleLease: HTTPStatus.CONFLICT,
    errors.LeaseHeld: HTTPStatus.CONFLICT,
    errors.RunEnded: HTTPStatus.CONFLICT,
    errors.RunCancelled: HTTPStatus.CONFLICT,
    errors.Diverged: HTTPStatus.CONFLICT,
    errors.EffectFailed: HTTPStatus.CONFLICT,
    errors.BusinessKeyTaken: HTTPStatus.CONFLICT,
    errors.BudgetExceeded: HTTPStatus.CONFLICT,
    errors.AckLost: HTTPStatus.CONFLICT,
    errors.NotHeld: HTTPStatus.CONFLICT,
    errors.NotLeading: HTTPStatus.CONFLICT,
    errors.NotInTransaction: HTTPStatus.CONFLICT,
    errors.NotHalted: HTTPStatus.CONFLICT,
    errors.SchemaRefused: HTTPStatus.CONFLICT,
    errors.Overloaded: HTTPStatus.TOO_MANY_REQUESTS,
    errors.Unauthenticated: HTTPStatus.UNAUTHORIZED,
    errors.PermissionDenied: HTTPStatus.FORBIDDEN,
    errors.StoreUnavailable: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.StoreFull: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.StoreMismatch: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.StoreFailed: HTTPStatus.CONFLICT,
    errors.Pruned: HTTPStatus.GONE,
    errors.SparkUnavailable: HTTPStatus.CONFLICT,
    errors.Unsafe: HTTPStatus.CONFLICT,
    errors.GiveUp: HTTPStatus.CONFLICT,
    errors.BrokerError: HTTPStatus.CONFLICT,
    errors.BrokerUnavailable: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.SourceUnavailable: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.SourceRefused: HTTPStatus.CONFLICT,
    errors.MessageRefused: HTTPStatus.BAD_REQUEST,
    errors.WrongState: HTTPStatus.CONFLICT,
    errors.NoCredential: HTTPStatus.CONFLICT,
    errors.WalletLocked: HTTPStatus.CONFLICT,
    errors.WalletUnavailable: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.CredentialDamaged: HTTPStatus.CONFLICT,
    errors.Closed: HTTPStatus.SERVICE_UNAVAILABLE,
}

_TELLING = (errors.StoreUnavailable, errors.StoreFull, errors.StoreMismatch, errors.StoreFailed)
"""Errors whose words are the store's."""

# Where a value came from is no part of its name.
_PLACES = frozenset({"body", "query", "path", "header", "one", "many"})


class ErrorDetail(BaseModel):
    """`field` names the offending input, `position` the character and `line` the line of the fault.
    `state` is that of a subscription which does not allow what was asked.
    """

    reason: str
    message: str
    field: str | None = None
    position: int | None = None
    line: int | None = None
    state: str | None = None


class ErrorReply(BaseModel):
    error: ErrorDetail


def status_of(error: errors.TapeError) -> HTTPStatus:
    return next(STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)


def detail_of(error: errors.TapeError) -> dict[str, Any]:
    """What a caller is told of a refusal."""
    words = (type(error).__doc__ or "").strip() if isinstance(error, _TELLING) else str(error)
    detail: dict[str, Any] = {"reason": error.reason, "message": words}
    if isinstance(error, errors.InvalidArgument):
        if error.field:
            detail["field"] = error.field
        if error.position is not None:
            detail["position"] = error.position
        if error.line is not None:
            detail["line"] = error.line
    if isinstance(error, errors.NoCredential) and error.field:
        detail["field"] = error.field
    if isinstance(error, errors.WrongState) and error.state:
        detail["state"] = error.state
    return detail


def refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, errors.TapeError)  # noqa: S101 - registered for that type
    status = status_of(error)
    headers = {}
    if status == HTTPStatus.UNAUTHORIZED:
        headers["www-authenticate"] = "Bearer"
    if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        headers["connection"] = "close"  # what is left of its body is not waited for
    if isinstance(error, errors.Overloaded):
        headers["retry-after"] = str(max(1, math.ceil(error.retry_after_ms / 1000)))
    return error_response(status, detail_of(error), headers)


def malformed(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for that type
    return error_response(HTTPStatus.BAD_REQUEST, malformed_detail(error.errors()[0]))


def malformed_detail(fault: Mapping[str, Any]) -> dict[str, Any]:
    """The first thing wrong with a request, in the shape of every error."""
    field = ""
    for part in fault["loc"]:
        if isinstance(part, int):
            field += f"[{part}]"
        elif field or part not in _PLACES:
            field += f".{part}" if field else part
    message = str(fault["msg"])
    detail: dict[str, Any] = {"reason": "INVALID_ARGUMENT"}
    detail["message"] = f"{field}: {message}" if field else message
    if field:
        detail["field"] = field
    return detail


def unroutable(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for that type
    status = HTTPStatus(error.status_code)
    headers = dict(error.headers or {})
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = ", ".join(_allowed(request))
    return error_response(status, {"reason": status.name, "message": error.detail}, headers)


def _allowed(request: Request) -> list[str]:
    """The methods of every route that has this path: of those that say it to the letter, if any."""
    found = [r for r in request.app.routes if r.matches(request.scope)[0] is not Match.NONE]
    literal = [route for route in found if "{" not in getattr(route, "path", "{")]
    methods: set[str] = set()
    for route in literal or found:
        methods |= getattr(route, "methods", None) or set()
    if "GET" in methods:
        methods.add("HEAD")
    return sorted(methods)


def failed(_request: Request, _fault: Exception) -> Response:
    detail = {"reason": "INTERNAL", "message": "the server failed; its log says why"}
    return error_response(HTTPStatus.INTERNAL_SERVER_ERROR, detail)


def error_response(
    status: HTTPStatus, detail: Mapping[str, Any], headers: Mapping[str, str] | None = None
) -> Response:
    text = orjson.dumps({"error": detail})
    return Response(text, status, headers, media_type="application/json")


def from_middleware(error: errors.TapeError | HTTPException, request: Request) -> Response:
    """For what is refused before there is a route."""
    if isinstance(error, HTTPException):
        return unroutable(request, error)
    return refused(request, error)
