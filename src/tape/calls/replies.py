"""How results become replies and back, where a `Record` alone does not say it.

Which message a reply is, `tape.proto` says: the row of its RPC sets it.
"""

from collections.abc import Callable, Iterable
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from google.protobuf.message import Message

from tape.calls.fitting import fitting
from tape.wire.codec import Record

R = TypeVar("R")
Row = TypeVar("Row", bound=tuple[Any, ...])
NAMES_MOST = 1_000


class ReplyCodec(Protocol[R]):
    def to_wire(self, result: R, /) -> Message: ...

    def from_wire(self, message: Any, /) -> R: ...


class HandMapped(NamedTuple, Generic[R]):
    """Two functions, for what has a form of its own."""

    to_wire: Callable[[R], Message]
    from_wire: Callable[[Any], R]


class _OneField:
    """A reply with one field that holds the result."""

    message: type[Message]

    def __init__(self, field: str) -> None:
        self._field = field

    def set_message(self, message: type[Message]) -> None:
        if self._field not in message.DESCRIPTOR.fields_by_name:
            raise TypeError(f"{message.__name__} has no field {self._field}")
        self.message = message


def set_message(reply: ReplyCodec[Any], name: str, message: type[Message]) -> None:
    """Tell a reply which message the RPC of that name answers with; refuse one that cannot be."""
    if isinstance(reply, _OneField):
        reply.set_message(message)
    elif isinstance(reply, Record) and reply.message is not message:
        raise TypeError(f"{name} is answered with {message.__name__}, not {reply.message.__name__}")


class Field(_OneField, Generic[R]):
    """A plain value; `kind` is its type."""

    def __init__(self, field: str, kind: type[R]) -> None:
        super().__init__(field)
        del kind

    def to_wire(self, result: R, /) -> Message:
        return self.message(**{self._field: result})

    def from_wire(self, message: Any, /) -> R:
        result: R = getattr(message, self._field)
        return result


class OptionalField(_OneField, Generic[R]):
    """A plain value, absent for None."""

    def __init__(self, field: str, kind: type[R]) -> None:
        super().__init__(field)
        del kind

    def to_wire(self, result: R | None, /) -> Message:
        return self.message(**{self._field: result})

    def from_wire(self, message: Any, /) -> R | None:
        return getattr(message, self._field) if message.HasField(self._field) else None


class Inside(_OneField, Generic[Row]):
    """A row, as a message within the reply."""

    def __init__(self, field: str, record: Record[Row, Any]) -> None:
        super().__init__(field)
        self._record = record

    def to_wire(self, row: Row, /) -> Message:
        return self.message(**{self._field: self._record.to_wire(row)})

    def from_wire(self, message: Any, /) -> Row:
        return self._record.from_wire(getattr(message, self._field))


class Found(_OneField, Generic[Row]):
    """A row, or None: `found` says which."""

    def __init__(self, field: str, record: Record[Row, Any]) -> None:
        super().__init__(field)
        self._record = record

    def to_wire(self, row: Row | None, /) -> Message:
        if row is None:
            return self.message()
        return self.message(**{"found": True, self._field: self._record.to_wire(row)})

    def from_wire(self, message: Any, /) -> Row | None:
        return self._record.from_wire(getattr(message, self._field)) if message.found else None


class Listed(_OneField, Generic[Row]):
    """Rows: as many as any client can receive, and at least one. Where the reply has a field
    `more`, it says whether some were left out.

    With `whole` none is left out; then the row of the call says what happens if they are too large.
    """

    def __init__(self, field: str, record: Record[Row, Any], *, whole: bool = False) -> None:
        super().__init__(field)
        self._record = record
        self._whole = whole
        self._tells_more = False

    def set_message(self, message: type[Message]) -> None:
        super().set_message(message)
        self._tells_more = "more" in message.DESCRIPTOR.fields_by_name

    def to_wire(self, rows: Iterable[Row], /) -> Message:
        messages = map(self._record.to_wire, rows)
        if self._whole:
            return self.message(**{self._field: messages})
        kept, more = fitting(messages)
        beside = {"more": more} if self._tells_more else {}
        return self.message(**{self._field: kept}, **beside)

    def from_wire(self, message: Any, /) -> list[Row]:
        return self._record.all_from_wire(getattr(message, self._field))


class Names(_OneField):
    """Texts: as many as fit into a reply, whatever their length."""

    def to_wire(self, names: list[str], /) -> Message:
        return self.message(**{self._field: names[:NAMES_MOST]})

    def from_wire(self, message: Any, /) -> list[str]:
        return list(getattr(message, self._field))
