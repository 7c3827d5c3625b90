"""The JSON schema of a document, for editors and other tools: draft 2020-12.

It says what the types and the tables of keys say. What only a reader can check (that a control is
used once, that a cadence comes, that a key is CEL) is refused at registration.
"""

from typing import Any, Final

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from tape.subscriptions.document import SubscriptionDocument

SCHEMA_ID: Final = "urn:tape:subscription:v1"


class _DocumentSchema(GenerateJsonSchema):
    """Without null: a key that is left out has no value, and null is refused."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        made = super().default_schema(schema)
        if made.get("default", "") is None:
            made.pop("default")
        return made


def document_schema() -> dict[str, Any]:
    schema = SubscriptionDocument.model_json_schema(schema_generator=_DocumentSchema)
    return {"$schema": _DocumentSchema.schema_dialect, "$id": SCHEMA_ID, **schema}
