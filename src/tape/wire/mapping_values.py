"""Values, where more than names is mapped."""

from collections.abc import Iterable

from tape.model.value import Author, Value
from tape.wire.records import AUTHOR, VALUE
from tape.wire.v1 import tape_pb2 as pb


def found_to_wire(value: Value | None) -> pb.GetValueResponse:
    """A deleted value is not found, yet its tombstone is there for who looks."""
    if value is None:
        return pb.GetValueResponse()
    return pb.GetValueResponse(found=not value.deleted, value=VALUE.to_wire(value))


def found_from_wire(message: pb.GetValueResponse) -> Value | None:
    return VALUE.from_wire(message.value) if message.HasField("value") else None


def values_to_wire(values: Iterable[Value]) -> pb.ListValuesResponse:
    return pb.ListValuesResponse(values=map(VALUE.to_wire, values))


def values_from_wire(message: pb.ListValuesResponse) -> list[Value]:
    return VALUE.all_from_wire(message.values)


def write_to_wire(
    namespace: str, key: str, value_json: str, if_version: int, author: Author
) -> pb.WriteValueRequest:
    return pb.WriteValueRequest(
        namespace=namespace,
        key=key,
        value_json=value_json,
        if_version=if_version,
        **AUTHOR.fields(author),
    )


def delete_to_wire(namespace: str, key: str, author: Author) -> pb.DeleteValueRequest:
    return pb.DeleteValueRequest(
        namespace=namespace,
        key=key,
        **AUTHOR.fields(author),
    )
