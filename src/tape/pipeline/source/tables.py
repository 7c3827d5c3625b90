"""The tables beside the journal as Spark sees them."""

from typing import Any, Final

from pyspark.sql.types import (
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from tape.errors import InvalidArgument
from tape.ports.bulk_tables import SIDE_TABLES

_TYPES: Final[dict[type, DataType]] = {
    str: StringType(),
    int: LongType(),
    float: DoubleType(),
    bool: BooleanType(),
}


def _schema(row: type[tuple[Any, ...]]) -> StructType:
    return StructType(
        [
            StructField(name, _TYPES[kind], nullable=False)
            for name, kind in row.__annotations__.items()
        ]
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
