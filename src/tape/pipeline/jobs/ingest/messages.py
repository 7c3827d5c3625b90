"""A message as every source hands it over, and how it is brought to one form.

`origin` and `number` say where it was: a file and its line, a stream or a partition and the place
in it. `fault` is what the source itself found wrong; then `body` is NULL and `raw` has the text.
Where that or the key is not UTF-8, `raw_bytes` and `key_bytes` have the bytes; else they are NULL.
"""

from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    LongType,
    StringType,
    StructField,
    StructType,
)

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


def normalise(messages: DataFrame) -> DataFrame:
    """Headers as a map of texts: names trimmed, in lower case and with `_` for `-`; of several of a
    name the last counts. One that is not UTF-8 is NULL there. As they came, they are `sent`."""
    return messages.select(
        *(
            _last_of_each_name(F.col("headers")).alias("headers")
            if name == "headers"
            else F.col(name)
            for name in MESSAGE.names
        ),
        F.col("headers").alias("sent"),
    )


def _last_of_each_name(headers: Column) -> Column:
    nothing = F.create_map().cast("map<string,string>")

    def put(so_far: Column, header: Column) -> Column:
        name = F.replace(F.lower(F.trim(header["name"])), F.lit("-"), F.lit("_"))
        others = F.map_filter(so_far, lambda known, _value: known != name)
        text = header["value"].cast("string")
        value = F.when(F.is_valid_utf8(text), F.trim(text))
        return F.map_concat(others, F.create_map(name, value))

    named = F.filter(
        headers, lambda header: header["name"].isNotNull() & header["value"].isNotNull()
    )
    return F.coalesce(F.aggregate(named, nothing, put), nothing)


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
