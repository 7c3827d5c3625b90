"""What has to be true of a payload class by itself."""

from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from pydantic import BaseModel, ValidationError

from tape.errors import InvalidArgument
from tape.model.payload_schema import MAX_VERSION, VERSION_FIELD
from tape.payloads.shape import fields_of


def check_class(cls: type[BaseModel]) -> None:
    """Refuses a class that a consumer of another version could not read, with the reason."""
    if not cls.__pydantic_complete__:
        cls.model_rebuild(raise_errors=False)
    if not cls.__pydantic_complete__:
        _refuse(cls, "", "has a field of a type that is not defined yet; define it before")
    _check_version_field(cls)
    for name, field in cls.model_fields.items():
        if field.is_required():
            _refuse(cls, name, _NO_DEFAULT)
        if field.alias or field.validation_alias or field.serialization_alias:
            _refuse(cls, name, "has an alias; the name of the field must be its name in JSON")
        if field.default_factory_takes_validated_data:
            _refuse(cls, name, "has a default that depends on other fields; give it one of its own")
    _check_defaults(cls)
    for name, schema in fields_of(cls).items():
        for path, fault in _faults(schema, name):
            _refuse(cls, path, fault)


_NO_DEFAULT = "has no default, so a payload of a version without it could not be read; give it one"


def _check_version_field(cls: type[BaseModel]) -> None:
    first, field = next(iter(cls.model_fields.items()), ("", None))
    if first != VERSION_FIELD or field is None:
        _refuse(cls, first, f"comes first; the first field must be `{VERSION_FIELD}: int = 1`")
    if field.annotation is not int:
        _refuse(cls, first, "must be an integer, not text: `schema_version: int = 1`")
    if field.is_required() or type(field.default) is not int:
        _refuse(
            cls,
            first,
            "must have the version of the class as its default: `schema_version: int = 1`",
        )
    if not 1 <= field.default <= MAX_VERSION:
        _refuse(cls, first, f"{field.default} is not in 1..{MAX_VERSION}")


def _check_defaults(cls: type[BaseModel]) -> None:
    try:
        made, again = cls(), cls()
        text = made.model_dump_json()
        read = cls.model_validate_json(text)
    except ValidationError as error:
        fault = error.errors()[0]
        path = ".".join(map(str, fault["loc"]))
        _refuse(cls, path, f"has a default that is not valid for its own type: {fault['msg']}")
    if made != again:
        names = [n for n in cls.model_fields if getattr(made, n) != getattr(again, n)]
        _refuse(cls, names[0], "has a default that varies; a default must be constant")
    if read != made:
        _refuse(cls, "", f"reads {text} back as another payload than the one that was written")


def _faults(schema: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    """In the types of a field, whatever they are made with."""
    for name in schema.get("required", ()):
        yield f"{path}.{name}", _NO_DEFAULT
    if schema.get("additionalProperties") is False:
        yield path, "must not refuse unknown fields; a later version may add some"
    for name, inner in schema.get("properties", {}).items():
        yield from _faults(inner, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from _faults(schema[key], f"{path}[]")
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        for inner in schema.get(key, ()):
            yield from _faults(inner, path)


def _refuse(cls: type[BaseModel], path: str, why: str) -> NoReturn:
    raise InvalidArgument(why, field=f"{cls.__name__}.{path}" if path else cls.__name__)
