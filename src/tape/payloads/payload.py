"""The base classes: reading, writing, and where a class is checked."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from tape.errors import InvalidArgument
from tape.model.bus_subject import check_bus_pattern
from tape.model.payload_schema import MAX_VERSION, VERSION_FIELD
from tape.payloads.rules import check_class

_CONFIG = ConfigDict(
    extra="ignore",  # a field of a later version
    strict=True,  # "1" is no number: consumers in other languages would not take it for one
    frozen=True,
    allow_inf_nan=False,  # JSON has no word for them
    validate_default=True,
)


class _Declared(BaseModel):
    """Made by a program, it has the fields of its class and no others. What is read may have more:
    a later version has added them."""

    model_config = _CONFIG

    def __init__(self, /, **fields: Any) -> None:
        self._refuse_unknown(fields)
        super().__init__(**fields)

    # Else pydantic would call it for what is read too.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        self._refuse_unknown(update or {})
        return super().model_copy(update=update, deep=deep)

    @classmethod
    def _refuse_unknown(cls, fields: Iterable[str]) -> None:
        for name in fields:
            if name not in cls.model_fields:
                near = get_close_matches(name, cls.model_fields, n=1)
                hint = f"; did you mean {near[0]}?" if near else ""
                raise InvalidArgument(f"is not a field of {cls.__name__}{hint}", field=name)


class Part(_Declared):
    """A type for fields of payloads. Each of its fields has a default."""


class Payload(_Declared):
    """A payload for the subjects that `subject` selects; give it where the class is declared."""

    subject_pattern: ClassVar[str] = ""

    if TYPE_CHECKING:
        schema_version: int

    def __init_subclass__(cls, *, subject: str = "") -> None:
        super().__init_subclass__()

    @classmethod
    def __pydantic_init_subclass__(cls, *, subject: str = "", **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        pattern = subject or cls.subject_pattern
        if not pattern:
            raise InvalidArgument(
                f'is missing: class {cls.__name__}(Payload, subject="orders.placed")',
                field="subject",
            )
        cls.subject_pattern = check_bus_pattern(pattern)
        check_class(cls)

    @field_validator(VERSION_FIELD, check_fields=False)
    @classmethod
    def _version_is_in_range(cls, version: int) -> int:
        if not 1 <= version <= MAX_VERSION:
            raise ValueError(f"{version} is not in 1..{MAX_VERSION}")
        return version

    @classmethod
    def read(cls, data: str | bytes) -> Self:
        """Read a payload of this or any other version from JSON. Unknown fields are ignored."""
        try:
            made = cls.model_validate_json(data)
        except ValidationError as error:
            raise _refusal(cls.__name__, error) from None
        if VERSION_FIELD not in made.model_fields_set:
            raise InvalidArgument(
                f"is missing; every payload of type {cls.__name__} begins with it",
                field=VERSION_FIELD,
            )
        return made

    def to_json(self) -> str:
        return self.model_dump_json()


def _refusal(name: str, error: ValidationError) -> InvalidArgument:
    faults = [
        (".".join(map(str, fault["loc"])) or "payload", fault["msg"])
        for fault in error.errors(include_url=False, include_input=False, include_context=False)
    ]
    (field, message), *others = faults
    rest = "".join(f"; {path}: {said}" for path, said in others)
    return InvalidArgument(f"{message} (reading a {name}){rest}", field=field)
