"""Arguments and results through the rows of the table of calls, and through bytes."""

from collections.abc import Callable
from typing import Any

from google.protobuf.message import Message

from tape.calls.call import Call
from tape.calls.table import NOUNS


def sent(message: Message) -> Any:
    """Through bytes, as the network has it."""
    return type(message).FromString(message.SerializeToString())


def row_of(operation: Callable[..., Any]) -> Any:
    (row,) = (
        row
        for noun in NOUNS
        for row in noun.rows
        if isinstance(row, Call) and row.method == operation.__name__
    )
    return row


def asked(operation: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The request of these arguments."""
    return sent(row_of(operation).request.to_wire(*args, **kwargs))


def heard(operation: Callable[..., Any], request: Message) -> list[Any]:
    """The arguments that the server makes of a request, those by keyword last."""
    args, kwargs = row_of(operation).request.from_wire(request)
    return [*args, *kwargs.values()]


def answered(operation: Callable[..., Any], result: Any) -> Any:
    """The reply of this result."""
    return sent(row_of(operation).reply.to_wire(result))


def told(operation: Callable[..., Any], reply: Message) -> Any:
    """The result that a client makes of a reply."""
    return row_of(operation).reply.from_wire(reply)
