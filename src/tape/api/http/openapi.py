"""What the door says of itself at `/openapi.json`: every status that an endpoint can answer."""

from http import HTTPStatus
from typing import Any

import orjson
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from tape.api.http.errors import ErrorReply
from tape.calls.role import Role
from tape.settings import VERSION
from tape.subscriptions.document_schema import document_schema

ROLE = "x-tape-role"
DOCUMENT_SCHEMA = "SubscriptionDocument"
ANYBODY = "anybody"
"""In the place of a role, for endpoints that need no token."""

BEARER = "bearer"

ABOUT = (
    "Events, runs, reactions, tasks, values, drainers and subscriptions of a Tape server. Every "
    'error is `{"error": {"reason", "message", "field"?, "position"?, "line"?, "state"?}}`. Ids '
    "are strings; a `global_seq` is the number of an entry in the journal; times are milliseconds "
    "since 1970."
)

# Each with an example of what it says.
_ERRORS: dict[int, tuple[str, dict[str, Any]]] = {
    400: (
        "The request is malformed; nothing was changed.",
        {
            "reason": "INVALID_ARGUMENT",
            "message": "event_type: must not be empty",
            "field": "event_type",
        },
    ),
    401: (
        "The server requires a token, and the request has no valid one.",
        {"reason": "UNAUTHENTICATED", "message": "A valid token is required."},
    ),
    403: (
        "The token's role does not allow this.",
        {
            "reason": "PERMISSION_DENIED",
            "message": "this needs the role admin, the token has read",
        },
    ),
    404: (
        "The object does not exist.",
        {"reason": "NOT_FOUND", "message": "no run has the id 'x'"},
    ),
    409: (
        "The state is not what the request expects; `reason` says how.",
        {
            "reason": "VERSION_MISMATCH",
            "message": "The value has changed since the version that you read.",
        },
    ),
    410: (
        "The requested entries have been pruned.",
        {
            "reason": "PRUNED",
            "message": "The requested entries have been pruned from the journal.",
        },
    ),
    413: (
        "Something in the request exceeds a limit of the server.",
        {
            "reason": "TOO_LARGE",
            "message": "payload: 2097152 bytes, the limit is 1048576",
            "field": "payload",
        },
    ),
    415: (
        "The body is not declared to be JSON, or another kind that this endpoint takes.",
        {
            "reason": "UNSUPPORTED_MEDIA_TYPE",
            "message": "send JSON, with content-type: application/json",
        },
    ),
    421: (
        "A server without tokens does not accept this Host.",
        {
            "reason": "MISDIRECTED_REQUEST",
            "message": "a server without tokens accepts only localhost or its own address as Host",
        },
    ),
    429: (
        "The write queue is full: retry after the given seconds.",
        {"reason": "OVERLOADED", "message": "The write queue is full: slow down and retry."},
    ),
    500: (
        "The server failed.",
        {"reason": "INTERNAL", "message": "the server failed; its log says why"},
    ),
    503: (
        "The store cannot be reached, or the server is stopping.",
        {
            "reason": "STORE_UNAVAILABLE",
            "message": "The store cannot be reached; nothing of this request was written.",
        },
    ),
}
_ALL = (400, 421, 500, 503)
_GUARDED = (401, 403, 413, 429)
_WRITING = {"POST": (409, 415), "PUT": (409, 415), "DELETE": (409,)}


def errors_of(
    method: str, *, role: Role | None, more: tuple[int, ...]
) -> dict[int | str, dict[str, Any]]:
    """The refusals of an endpoint, as FastAPI takes them."""
    guarded = () if role is None else _GUARDED
    statuses = sorted({*_ALL, *guarded, *_WRITING.get(method, ()), *more})
    return {status: _response(status) for status in statuses}


def _response(status: int) -> dict[str, Any]:
    description, example = _ERRORS[status]
    response: dict[str, Any] = {
        "model": ErrorReply,
        "description": description,
        "content": {"application/json": {"example": {"error": example}}},
    }
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        response["headers"] = {"Retry-After": {"schema": {"type": "string"}, "required": True}}
    if status == HTTPStatus.UNAUTHORIZED:
        response["headers"] = {"WWW-Authenticate": {"schema": {"type": "string"}, "required": True}}
    return response


def describe(app: FastAPI) -> dict[str, Any]:
    """The document, with the roles as security and without the status FastAPI would add."""
    document = get_openapi(
        title="Tape", version=VERSION, description=ABOUT, routes=app.routes, openapi_version="3.1.0"
    )
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    schemas |= _document_schemas()
    components["securitySchemes"] = {
        BEARER: {
            "type": "http",
            "scheme": "bearer",
            "description": "required if the server has tokens",
        }
    }
    for path in document["paths"].values():
        for operation in path.values():
            operation["responses"].pop("422", None)
            if operation[ROLE] != ANYBODY:
                operation["security"] = [{BEARER: []}]
    return document


def _document_schemas() -> dict[str, Any]:
    """Those of a subscription's document, which is a body that no endpoint has as a type."""
    text = orjson.dumps(document_schema()).replace(b'"#/$defs/', b'"#/components/schemas/')
    schema: dict[str, Any] = orjson.loads(text)
    schemas: dict[str, Any] = schema.pop("$defs")
    own = {name: said for name, said in schema.items() if not name.startswith("$")}
    return {**schemas, DOCUMENT_SCHEMA: own}
