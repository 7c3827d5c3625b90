"""Values: versioned, compare-and-set."""

from typing import Annotated, Any
from uuid import uuid4

from fastapi import Query
from pydantic import Field

from tape.api.http.entry import fitting
from tape.api.http.fields import (
    MOST_POSITION,
    PAGE,
    Body,
    BodyNumber,
    PageSize,
    Params,
    PathText,
    Reply,
)
from tape.api.http.routes import Routes, TheDoor
from tape.calls.role import Role
from tape.errors import NotFound
from tape.model.json_text import to_json
from tape.model.value import ANY_VERSION, Author, Value

routes = Routes("values")


class ValueBody(Body):
    """`if_version` is the version that the value must have: -1 is any, 0 means that it must not
    exist.

    A repeat with the same `request_id` gets the first answer.
    """

    value: Annotated[Any, Field(examples=[{"limit": 5}])]
    if_version: Annotated[BodyNumber, Field(ge=-1, le=MOST_POSITION)] = ANY_VERSION
    writer: str = ""
    request_id: str = ""


class ValueReply(Reply):
    namespace: str
    key: str
    value: Any
    version: int
    ts_ms: int
    writer: str
    deleted: bool


class ValuesReply(Reply):
    """`after` is the key to continue after; null at the end."""

    values: list[ValueReply]
    after: str | None


class NamespacesReply(Reply):
    """`after` is the namespace to go on after; null at the end."""

    namespaces: list[str]
    after: str | None


class DeletedReply(Reply):
    """`deleted` is false if there was nothing to delete."""

    deleted: bool
    version: int


class ValuesParams(Params):
    limit: PageSize = PAGE
    after: str = ""


@routes.add("GET", "/api/values", role=Role.READ, reply=NamespacesReply)
async def list_namespaces(
    door: TheDoor, params: Annotated[ValuesParams, Query()]
) -> NamespacesReply:
    """The namespaces that hold a value, by name."""
    names = await door.operations.values.list_namespaces(params.after, params.limit)
    is_full = len(names) == params.limit
    return NamespacesReply(namespaces=names, after=names[-1] if is_full else None)


@routes.add("GET", "/api/values/{namespace}", role=Role.READ, reply=ValuesReply)
async def list_values(
    door: TheDoor, namespace: PathText, params: Annotated[ValuesParams, Query()]
) -> ValuesReply:
    """List the values of a namespace, by key."""
    found = await door.operations.values.list_values(namespace, params.after, params.limit)
    kept, more = fitting(found, lambda value: len(value.value_json))
    more = more or len(found) == params.limit
    return ValuesReply(
        values=[_reply(value) for value in kept], after=kept[-1].key if more and kept else None
    )


@routes.add(
    "GET", "/api/values/{namespace}/{key}", role=Role.READ, reply=ValueReply, refusals=(404,)
)
async def get_value(door: TheDoor, namespace: PathText, key: PathText) -> ValueReply:
    """Get one value."""
    found = await door.operations.values.get_value(namespace, key)
    if found is None or found.deleted:
        raise NotFound(f"{namespace!r} has no value {key!r}")
    return _reply(found)


@routes.add("PUT", "/api/values/{namespace}/{key}", role=Role.WRITE, reply=ValueReply)
async def write_value(
    door: TheDoor, namespace: PathText, key: PathText, body: ValueBody
) -> ValueReply:
    """Set a value if it has the expected version."""
    text = to_json(body.value, door.limits, field="value")
    author = Author(body.writer, request_id=body.request_id or uuid4().hex)
    return _reply(
        await door.operations.values.write_value(namespace, key, text, body.if_version, author)
    )


@routes.add("DELETE", "/api/values/{namespace}/{key}", role=Role.WRITE, reply=DeletedReply)
async def delete_value(door: TheDoor, namespace: PathText, key: PathText) -> DeletedReply:
    """Delete a value; its history stays."""
    deleted = await door.operations.values.delete_value(namespace, key, Author())
    return DeletedReply(**deleted._asdict())


def _reply(value: Value) -> ValueReply:
    fields = value._asdict()
    fields["value"] = value.value
    del fields["value_json"]
    return ValueReply(**fields)
