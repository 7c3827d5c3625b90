"""The journal and the tables beside it as Spark sees them."""

from typing import Any, Final

from pyspark.sql.types import (
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    VariantType,
)

from tape.errors import InvalidArgument
from tape.model.entry import Entry
from tape.ports.bulk_tables import SIDE_TABLES

PAYLOAD: Final = "payload"
"""The payload parsed, a VARIANT, where it is asked for; `payload_json` is always its text."""
_TYPES: Final[dict[type, DataType]] = {
    str: StringType(),
    int: LongType(),
    float: DoubleType(),
    bool: BooleanType(),
}


def _schema(row: type[tuple[Any, ...]], **narrower: DataType) -> StructType:
    return StructType(
        [
            StructField(name, narrower.get(name, _TYPES[kind]), nullable=False)
            for name, kind in row.__annotations__.items()
        ]
    )


ENTRY_SCHEMA: Final = _schema(Entry, schema_version=IntegerType())
"""The columns of the journal. A NULL of the store is "" or 0, as in `Entry`."""

ENTRY_WITH_PAYLOAD: Final = StructType(
    [*ENTRY_SCHEMA.fields, StructField(PAYLOAD, VariantType(), nullable=True)]
)

TABLE_SCHEMAS: Final = {name: _schema(row) for name, row in SIDE_TABLES.items()}


def refuse_foreign_columns(asked: StructType, known: StructType) -> None:
    """A schema given by the reader may leave columns out, and nothing else."""
    types = {field.name: field.dataType for field in known}
    for field in asked:
        if field.name not in types:
            raise InvalidArgument(f"there is no column {field.name!r}", field="schema")
        if field.dataType != types[field.name]:
            expected = types[field.name].simpleString()
            raise InvalidArgument(f"{field.name} is {expected}", field="schema")
