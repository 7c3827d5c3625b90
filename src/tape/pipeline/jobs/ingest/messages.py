"""A message as every source hands it over, and how it is brought to one form.

`origin` and `number` say where it was: a file and its line, a stream or a partition and the place
in it. `fault` is what the source itself found wrong; then `body` is NULL and `raw` has the text.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    LongType,
    StringType,
    StructField,
    StructType,
)

HEADER: Final = StructType([StructField("name", StringType()), StructField("value", StringType())])
MESSAGE: Final = StructType(
    [
        StructField("origin", StringType(), nullable=False),
        StructField("number", LongType(), nullable=False),
        StructField("key", StringType()),
        StructField("timestamp_ms", LongType()),
        StructField("headers", ArrayType(HEADER)),
        StructField("body", StringType()),
        StructField("raw", StringType()),
        StructField("fault", StringType()),
    ]
)


def normalise(messages: DataFrame) -> DataFrame:
    """Headers as a map: names trimmed, in lower case and with `_` for `-`; of several of a name the
    last counts."""
    return messages.select(
        *(
            _last_of_each_name(F.col("headers")).alias("headers")
            if name == "headers"
            else F.col(name)
            for name in MESSAGE.names
        )
    )


def _last_of_each_name(headers: Column) -> Column:
    nothing = F.create_map().cast("map<string,string>")

    def put(so_far: Column, header: Column) -> Column:
        name = F.replace(F.lower(F.trim(header["name"])), F.lit("-"), F.lit("_"))
        others = F.map_filter(so_far, lambda known, _value: known != name)
        return F.map_concat(others, F.create_map(name, F.trim(header["value"])))

    named = F.filter(headers, lambda header: header["name"].isNotNull())
    return F.coalesce(F.aggregate(named, nothing, put), nothing)


def readable(text: Column) -> tuple[Column, Column, Column]:
    """Body, raw and fault of a text that may not be UTF-8."""
    fits = F.is_valid_utf8(text)
    return (
        F.when(fits, text),
        F.make_valid_utf8(text),
        F.when(~fits, F.lit("body: is not UTF-8")),
    )
