"""A payload class as the schema that its history keeps."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, NoDefault
from pydantic_core.core_schema import WithDefaultSchema

from tape.model.payload_schema import Fields, PayloadSchema

_WORDS = ("title", "description", "examples", "deprecated")  # for people; they may change


class _WithMadeDefaults(GenerateJsonSchema):
    """Also the defaults that a function makes, which are the same each time."""

    def get_default_value(self, schema: WithDefaultSchema) -> Any:
        if "default_factory" in schema and not schema.get("default_factory_takes_data"):
            return schema["default_factory"]()  # type: ignore[call-arg]
        return schema.get("default", NoDefault)


def schema_of(cls: type[BaseModel], subject: str, version: int) -> PayloadSchema:
    return PayloadSchema(cls.__name__, subject, version, fields_of(cls))


def fields_of(cls: type[BaseModel]) -> Fields:
    """The fields of a class, with every type written out where it is used."""
    whole = cls.model_json_schema(schema_generator=_WithMadeDefaults)
    definitions = whole.get("$defs", {})
    inlined = _inlined(whole, definitions, ())
    fields: Fields = inlined.get("properties", {})
    return fields


def _inlined(schema: Any, definitions: Mapping[str, Any], inside: tuple[str, ...]) -> Any:
    if isinstance(schema, list):
        return [_inlined(part, definitions, inside) for part in schema]
    if not isinstance(schema, dict):
        return schema
    name = schema.get("$ref", "").removeprefix("#/$defs/")
    if name in inside:  # a type within itself
        return schema
    if name:
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        return _inlined(definitions[name] | beside, definitions, (*inside, name))
    return {
        key: _properties(value, definitions, inside)
        if key == "properties"
        else value
        if key in ("default", "enum", "const")
        else _inlined(value, definitions, inside)
        for key, value in schema.items()
        if key not in (*_WORDS, "$defs")
    }


def _properties(
    fields: Mapping[str, Any], definitions: Mapping[str, Any], inside: tuple[str, ...]
) -> dict[str, Any]:
    """Here a key is a name that somebody chose, be it `title`."""
    return {name: _inlined(schema, definitions, inside) for name, schema in fields.items()}
