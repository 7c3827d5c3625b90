"""Values, their changes, and who makes them."""

from collections.abc import Iterable
from operator import attrgetter
from typing import Protocol

from tape.model.entry import Trace
from tape.model.value import Author, Deleted, Value, ValueChange
from tape.wire.v1 import tape_pb2 as pb

_value_fields = attrgetter(*Value._fields)


def value_to_wire(value: Value) -> pb.ValueRecord:
    return pb.ValueRecord(**value._asdict())


def value_from_wire(message: pb.ValueRecord) -> Value:
    return Value._make(_value_fields(message))


def change_to_wire(change: ValueChange) -> pb.ValueEvent:
    return pb.ValueEvent(
        value=value_to_wire(change.value),
        prev_version=change.prev_version,
        prev_value_json=change.prev_value_json,
    )


def change_from_wire(message: pb.ValueEvent) -> ValueChange:
    return ValueChange(
        value_from_wire(message.value), message.prev_version, message.prev_value_json
    )


def found_to_wire(value: Value | None) -> pb.GetValueResponse:
    """A deleted value is not found, yet its tombstone is there for who looks."""
    if value is None:
        return pb.GetValueResponse()
    return pb.GetValueResponse(found=not value.deleted, value=value_to_wire(value))


def found_from_wire(message: pb.GetValueResponse) -> Value | None:
    return value_from_wire(message.value) if message.HasField("value") else None


def values_to_wire(values: Iterable[Value]) -> pb.ListValuesResponse:
    return pb.ListValuesResponse(values=map(value_to_wire, values))


def values_from_wire(message: pb.ListValuesResponse) -> list[Value]:
    return [value_from_wire(value) for value in message.values]


def write_to_wire(
    namespace: str, key: str, value_json: str, if_version: int, author: Author
) -> pb.WriteValueRequest:
    return pb.WriteValueRequest(
        namespace=namespace,
        key=key,
        value_json=value_json,
        if_version=if_version,
        writer=author.writer,
        run_id=author.run_id,
        fencing_token=author.fencing_token,
        request_id=author.request_id,
        **author.trace._asdict(),
    )


def delete_to_wire(namespace: str, key: str, author: Author) -> pb.DeleteValueRequest:
    return pb.DeleteValueRequest(
        namespace=namespace,
        key=key,
        writer=author.writer,
        run_id=author.run_id,
        fencing_token=author.fencing_token,
        request_id=author.request_id,
        **author.trace._asdict(),
    )


def author_from_wire(request: pb.WriteValueRequest | pb.DeleteValueRequest) -> Author:
    return Author(
        request.writer,
        request.run_id,
        request.fencing_token,
        trace_from_wire(request),
        request.request_id,
    )


class Traced(Protocol):
    """A request that names the trace it belongs to."""

    @property
    def trace_id(self) -> str: ...
    @property
    def span_id(self) -> str: ...
    @property
    def parent_span_id(self) -> str: ...


def trace_from_wire(request: Traced) -> Trace:
    return Trace(request.trace_id, request.span_id, request.parent_span_id)


def deleted_to_wire(deleted: Deleted) -> pb.DeleteValueResponse:
    return pb.DeleteValueResponse(deleted=deleted.deleted, version=deleted.version)


def deleted_from_wire(message: pb.DeleteValueResponse) -> Deleted:
    return Deleted(message.deleted, message.version)
