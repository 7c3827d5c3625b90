"""A row of a table as JSON, with its bytes where a text in it is not UTF-8."""

from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from tape.pipeline.jobs.ingest.messages import Readable

_BYTEWISE = "ISO-8859-1"


def row_as_json(schema: StructType) -> Readable:
    """All columns as one object. Its bytes, where it has any, are that object with the texts in it
    as they are: JSON but for what is not UTF-8."""
    columns = {name: F.col(f"`{name}`") for name in schema.names}
    text = F.to_json(F.struct(*columns.values()))
    fits = reduce(
        lambda so_far, field: so_far & _is_text(columns[field.name], field.dataType),
        schema.fields,
        F.lit(True),
    )
    bytewise = F.struct(
        *(
            _bytewise(columns[field.name], field.dataType).alias(_named(field.name))
            for field in schema.fields
        )
    )
    came = F.encode(F.to_json(bytewise), _BYTEWISE)
    return Readable(F.when(fits, text), text, F.when(~fits, came))


def _is_text(column: Column, kind: DataType) -> Column:
    """Whether every text in it is UTF-8; what is NULL has none."""
    match kind:
        case StringType():
            fits = F.is_valid_utf8(column)
        case ArrayType():
            fits = F.forall(column, lambda item: _is_text(item, kind.elementType))
        case MapType():
            keys, values = F.map_keys(column), F.map_values(column)
            fits = F.forall(keys, lambda key: _is_text(key, kind.keyType)) & F.forall(
                values, lambda value: _is_text(value, kind.valueType)
            )
        case StructType():
            inner = (_is_text(column[field.name], field.dataType) for field in kind.fields)
            fits = reduce(lambda so_far, one: so_far & one, inner, F.lit(True))
        case _:
            return F.lit(True)
    return F.coalesce(fits, F.lit(True))


def _bytewise(column: Column, kind: DataType) -> Column:
    """Make a character of each byte of a column's texts."""
    match kind:
        case StringType():
            return F.decode(column.cast("binary"), _BYTEWISE)
        case ArrayType():
            return F.transform(column, lambda item: _bytewise(item, kind.elementType))
        case MapType():
            keys = F.transform(F.map_keys(column), lambda key: _bytewise(key, kind.keyType))
            values = F.transform(F.map_values(column), lambda one: _bytewise(one, kind.valueType))
            return F.map_from_arrays(keys, values)
        case StructType():
            inner = (
                _bytewise(column[field.name], field.dataType).alias(_named(field.name))
                for field in kind.fields
            )
            return F.when(column.isNotNull(), F.struct(*inner))
        case _:
            return column


def _named(name: str) -> str:
    return name.encode().decode(_BYTEWISE)
