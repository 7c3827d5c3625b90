"""The calls on values."""

from typing import Final

from tape.bus.values import ValueOperations
from tape.calls.call import Call, Fence, Noun, StreamCall
from tape.calls.replies import HandMapped, Listed, Names
from tape.calls.role import Role
from tape.model.value import Author, Value
from tape.settings import Limits
from tape.wire.codec import Spread, Unsent
from tape.wire.records import AUTHOR, DELETED, VALUE, VALUE_CHANGE
from tape.wire.v1 import tape_pb2 as pb


def _found_to_wire(value: Value | None) -> pb.GetValueResponse:
    """A deleted value is not found, but its tombstone is sent to whoever looks for it."""
    if value is None:
        return pb.GetValueResponse()
    return pb.GetValueResponse(found=not value.deleted, value=VALUE.to_wire(value))


def _found_from_wire(message: pb.GetValueResponse) -> Value | None:
    return VALUE.from_wire(message.value) if message.HasField("value") else None


def _fitting(values: list[Value], limits: Limits) -> list[Value]:
    """The values that surely fit, and at least one; the next call begins with the rest."""
    size = 0
    for index, value in enumerate(values):
        size += len(value.value_json)
        if index and 4 * size > limits.request_bytes:
            return values[:index]
    return values


def _is_recognised(
    namespace: str, key: str, value_json: str, if_version: int, author: Author
) -> bool:
    """Whether the server knows this call if it comes again: by its id, at the version it made."""
    del namespace, key, value_json
    return bool(author.request_id) and if_version >= 0


VALUES: Final[Noun[ValueOperations]] = Noun(
    lambda operations: operations.values,
    Call(
        "WriteValue",
        Role.WRITE,
        ValueOperations.write_value,
        VALUE,
        held={"author": Spread(AUTHOR)},
        fence=Fence.TOKEN,
        repeat_if=_is_recognised,
    ),
    Call(
        "GetValue",
        Role.READ,
        ValueOperations.get_value,
        HandMapped(_found_to_wire, _found_from_wire),
    ),
    StreamCall(
        "WatchValue",
        Role.READ,
        ValueOperations.watch_value,
        lambda message, _request: VALUE_CHANGE.from_wire(message),
        cursor=("from_version", lambda message: message.value.version),
        held={"max_bytes": Unsent(0)},  # the server bounds what it holds
    ),
    Call(
        "DeleteValue",
        Role.WRITE,
        ValueOperations.delete_value,
        DELETED,
        held={"author": Spread(AUTHOR)},
        fence=Fence.TOKEN,
    ),
    Call(
        "ListValues",
        Role.READ,
        ValueOperations.list_values,
        Listed("values", VALUE, whole=True),
        shorten=_fitting,
    ),
    Call("ListNamespaces", Role.READ, ValueOperations.list_namespaces, Names("names")),
)
