"""The parameters of an operation and the fields of its request, by name."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from google.protobuf.message import Message

from tape.wire.codec import Held, reader_of, writer_of


class Parameters:
    """Worked out once, from the operation's signature. A parameter has the name of its field unless
    it is renamed; `held` says of one that it is more than a plain field, as in a `Record`, and
    `sent` are fields that requests have besides.
    """

    def __init__(
        self,
        operation: Callable[..., Any],
        message: type[Message],
        *,
        renamed: Mapping[str, str],
        held: Mapping[str, Held],
        sent: Mapping[str, Any],
    ) -> None:
        _self, *parameters = inspect.signature(operation).parameters.values()
        names = [parameter.name for parameter in parameters]
        unknown = (renamed.keys() | held.keys()) - set(names)
        if unknown:
            raise TypeError(f"{operation.__name__} has no parameter {', '.join(sorted(unknown))}")
        for name in names:
            field = renamed.get(name, name)
            if name not in held and field not in message.DESCRIPTOR.fields_by_name:
                raise TypeError(f"{message.__name__} has no field {field}")
        self._signature = inspect.Signature(parameters)
        self._message = message
        self._sent = dict(sent)
        readers = {name: reader_of(renamed.get(name, name), held.get(name)) for name in names}
        keywords = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
        self._keyword_readers = {name: readers.pop(name) for name in keywords}
        self._readers = list(readers.values())
        self._writers = {name: writer_of(renamed.get(name, name), held.get(name)) for name in names}
        self._in_order = [self._writers[name] for name in readers]
        self._whole = len(names) if not keywords else -1
        """So many positional arguments leave none to a default, which need not be looked for."""
        self._plain = [renamed.get(name, name) for name in names] if not (held or sent) else None

    def from_wire(self, request: Message) -> tuple[list[Any], dict[str, Any]]:
        args = [read(request) for read in self._readers]
        return args, {name: read(request) for name, read in self._keyword_readers.items()}

    def to_wire(self, *args: Any, **kwargs: Any) -> Any:
        if self._plain is not None and not kwargs and len(args) == self._whole:
            return self._message(**dict(zip(self._plain, args, strict=True)))
        fields = dict(self._sent)
        if not kwargs and len(args) == self._whole:
            for write, value in zip(self._in_order, args, strict=True):
                write(fields, value)
        else:
            bound = self._signature.bind(*args, **kwargs)
            bound.apply_defaults()
            for name, value in bound.arguments.items():
                self._writers[name](fields, value)
        return self._message(**fields)
