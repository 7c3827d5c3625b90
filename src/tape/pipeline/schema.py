"""An entry as Spark and Arrow see it."""

from typing import Final

import pyarrow as pa
from pyspark.sql.types import (
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    VariantType,
)

from tape.model.entry import Entry

_NARROW: Final = {"schema_version"}
PAYLOAD: Final = "payload"
"""The payload parsed, a VARIANT, where it is asked for; `payload_json` is always its text."""


def _spark_type(name: str, kind: type) -> DataType:
    if kind is str:
        return StringType()
    return IntegerType() if name in _NARROW else LongType()


ENTRY_SCHEMA: Final = StructType(
    [
        StructField(name, _spark_type(name, kind), nullable=False)
        for name, kind in Entry.__annotations__.items()
    ]
)
"""The columns of the journal. A NULL of the store is "" or 0, as in `Entry`."""

ENTRY_WITH_PAYLOAD: Final = StructType(
    [*ENTRY_SCHEMA.fields, StructField(PAYLOAD, VariantType(), nullable=True)]
)

ARROW_TYPES: Final[dict[str, pa.DataType]] = {
    name: pa.string() if kind is str else pa.int32() if name in _NARROW else pa.int64()
    for name, kind in Entry.__annotations__.items()
}
