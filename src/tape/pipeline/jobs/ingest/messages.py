"""A message as every source hands it over, in one form.

`origin` and `number` say where it was: a file and its line, a stream or a partition and the place
in it. `fault` is what the source itself found wrong; then `body` is NULL and `raw` has the text.
Where that or the key is not UTF-8, `raw_bytes` and `key_bytes` have the bytes; else they are NULL.
Headers are as they came, by name and bytes; the rules that they are read by are those of the model.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from tape.model.message import Header

HEADER: Final = StructType([StructField("name", StringType()), StructField("value", BinaryType())])
NO_HEADERS: Final = "array<struct<name:string,value:binary>>"
NOT_UTF8: Final = "body: is not UTF-8"
MESSAGE: Final = StructType(
    [
        StructField("origin", StringType(), nullable=False),
        StructField("number", LongType(), nullable=False),
        StructField("key", StringType()),
        StructField("timestamp_ms", LongType()),
        StructField("headers", ArrayType(HEADER)),
        StructField("body", StringType()),
        StructField("raw", StringType()),
        StructField("raw_bytes", BinaryType()),
        StructField("key_bytes", BinaryType()),
        StructField("fault", StringType()),
    ]
)


def header_pairs(row: Mapping[str, Any]) -> tuple[Header, ...]:
    """The headers of a message. One without a value, which Kafka knows, has an empty one."""
    return tuple(
        (header["name"], header["value"] or b"")
        for header in row["headers"] or ()
        if header["name"] is not None
    )


class Readable(NamedTuple):
    """What may not be UTF-8: its text if it is, its text with marks for what is none, and then its
    bytes."""

    text: Column
    marked: Column
    bytes: Column

    @property
    def fault(self) -> Column:
        return F.when(self.bytes.isNotNull(), F.lit(NOT_UTF8))


def readable(came: Column) -> Readable:
    """Of bytes, or of a text that Spark has read without looking."""
    text, raw = came.cast("string"), came.cast("binary")
    fits = F.is_valid_utf8(text)
    return Readable(F.when(fits, text), F.make_valid_utf8(text), F.when(~fits, raw))
