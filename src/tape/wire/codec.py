"""Maps NamedTuples and messages by the names of their fields.

A `Record` pairs a NamedTuple with a message. A field has the same name on both sides unless it is
renamed; enums cross as their numbers. What is more than a plain field says so: `Each` is a repeated
message, `One` and `Maybe` are messages within the message, `Spread` lies flat among the message's
own fields, `Several` is a repeated scalar, `Absent` and `Empty` say what an optional or an empty
field means, `Unsent` stays on its own side, and `Computed` is read and written by functions. Both
directions are worked out once, when the record is declared, so that a row costs about what it would
cost to map by hand.
"""

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter, methodcaller
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from google.protobuf.message import Message

Row = TypeVar("Row", bound=tuple[Any, ...])
M = TypeVar("M", bound=Message)

Read = Callable[[Any], Any]
Write = Callable[[dict[str, Any], Any], None]

_NONE: Mapping[str, Any] = MappingProxyType({})


class Held(Protocol):
    """A field that is more than a plain one: how a message gives it, and how it is given to one."""

    def reader(self, name: str) -> Read: ...

    def writer(self, name: str) -> Write: ...


class Record(Generic[Row, M]):
    def __init__(
        self,
        row: type[Row],
        message: type[M],
        *,
        renamed: Mapping[str, str] = _NONE,
        held: Mapping[str, Held] = _NONE,
    ) -> None:
        of_row: Any = row  # a NamedTuple, which no type variable can say
        fields: tuple[str, ...] = of_row._fields
        unknown = (renamed.keys() | held.keys()) - set(fields)
        if unknown:
            raise TypeError(f"{row.__name__} has no field {', '.join(sorted(unknown))}")
        self._make: Callable[[Iterable[Any]], Row] = of_row._make
        self.message = message
        self._names = tuple(renamed.get(name, name) for name in fields)
        self._plain = _getter(self._names) if not held else None
        self._readers: list[Read] = []
        self._writers: list[Write] = []
        for field, name in zip(fields, self._names, strict=True):
            kind = held.get(field)
            if kind is None and name not in message.DESCRIPTOR.fields_by_name:
                raise TypeError(f"{message.__name__} has no field {name}")
            self._readers.append(reader_of(name, kind))
            self._writers.append(writer_of(name, kind))

    def from_wire(self, message: M) -> Row:
        if self._plain is not None:
            return self._make(self._plain(message))
        return self._make([read(message) for read in self._readers])

    def to_wire(self, row: Row, **beside: Any) -> M:
        """A message with the fields of the row, and those that stand beside them."""
        return self.message(**self.fields(row), **beside)

    def fields(self, row: Row) -> dict[str, Any]:
        if self._plain is not None:
            return dict(zip(self._names, row, strict=True))
        fields: dict[str, Any] = {}
        for write, value in zip(self._writers, row, strict=True):
            write(fields, value)
        return fields

    def all_from_wire(self, messages: Iterable[M]) -> list[Row]:
        return [self.from_wire(message) for message in messages]


class Each(NamedTuple):
    record: Record[Any, Any]
    collect: Callable[[Iterable[Any]], Any] = list

    def reader(self, name: str) -> Read:
        get, read, collect = attrgetter(name), self.record.from_wire, self.collect
        return lambda message: collect(map(read, get(message)))

    def writer(self, name: str) -> Write:
        to_wire = self.record.to_wire

        def write(fields: dict[str, Any], rows: Iterable[Any]) -> None:
            fields[name] = map(to_wire, rows)

        return write


class One(NamedTuple):
    record: Record[Any, Any]

    def reader(self, name: str) -> Read:
        get, read = attrgetter(name), self.record.from_wire
        return lambda message: read(get(message))

    def writer(self, name: str) -> Write:
        to_wire = self.record.to_wire

        def write(fields: dict[str, Any], row: Any) -> None:
            fields[name] = to_wire(row)

        return write


class Maybe(NamedTuple):
    record: Record[Any, Any]

    def reader(self, name: str) -> Read:
        get, read = attrgetter(name), self.record.from_wire
        return lambda message: read(get(message)) if message.HasField(name) else None

    def writer(self, name: str) -> Write:
        to_wire = self.record.to_wire

        def write(fields: dict[str, Any], row: Any) -> None:
            fields[name] = None if row is None else to_wire(row)

        return write


class Spread(NamedTuple):
    """A NamedTuple whose fields are fields of the message itself, by name or as a record says."""

    row: type[tuple[Any, ...]] | Record[Any, Any]

    def reader(self, name: str) -> Read:
        del name
        if isinstance(self.row, Record):
            return self.row.from_wire
        of_row: Any = self.row
        get, make = _getter(of_row._fields), of_row._make
        return lambda message: make(get(message))

    def writer(self, name: str) -> Write:
        del name
        fields_of: Callable[[Any], dict[str, Any]]
        fields_of = self.row.fields if isinstance(self.row, Record) else methodcaller("_asdict")

        def write(fields: dict[str, Any], row: Any) -> None:
            fields.update(fields_of(row))

        return write


class Several(NamedTuple):
    def reader(self, name: str) -> Read:
        get = attrgetter(name)
        return lambda message: tuple(get(message))

    def writer(self, name: str) -> Write:
        return _plainly(name)


class Absent(NamedTuple):
    """An optional field: what it means if it is absent, and whether that is left out again."""

    means: Any
    left_out: bool = False

    def reader(self, name: str) -> Read:
        get, means = attrgetter(name), self.means
        return lambda message: get(message) if message.HasField(name) else means

    def writer(self, name: str) -> Write:
        if not self.left_out:
            return _plainly(name)
        means = self.means

        def write(fields: dict[str, Any], value: Any) -> None:
            if value != means:
                fields[name] = value

        return write


class Empty(NamedTuple):
    means: Any

    def reader(self, name: str) -> Read:
        get, means = attrgetter(name), self.means
        return lambda message: get(message) or means

    def writer(self, name: str) -> Write:
        return _plainly(name)


class Unsent(NamedTuple):
    means: Any

    def reader(self, name: str) -> Read:
        del name
        means = self.means
        return lambda _message: means

    def writer(self, name: str) -> Write:
        del name
        return lambda _fields, _value: None


class Computed(NamedTuple):
    """Read from the whole message by one function, made into its fields by another."""

    read: Read
    fields: Callable[[Any], Mapping[str, Any]]

    def reader(self, name: str) -> Read:
        del name
        return self.read

    def writer(self, name: str) -> Write:
        del name
        fields_of = self.fields
        return lambda fields, value: fields.update(fields_of(value))


def reader_of(name: str, held: Held | None) -> Read:
    return attrgetter(name) if held is None else held.reader(name)


def writer_of(name: str, held: Held | None) -> Write:
    return _plainly(name) if held is None else held.writer(name)


def _plainly(name: str) -> Write:
    def write(fields: dict[str, Any], value: Any) -> None:
        fields[name] = value

    return write


def _getter(names: tuple[str, ...]) -> Callable[[Any], Iterable[Any]]:
    """All of them at once; `attrgetter` gives a tuple for two or more."""
    if len(names) > 1:
        return attrgetter(*names)
    get = attrgetter(*names)
    return lambda message: (get(message),)
