"""The journal as a DataFrame, for programs and notebooks."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tape.errors import InvalidArgument
from tape.pipeline.schema import PAYLOAD
from tape.pipeline.session import prepared
from tape.predicates.to_spark import parsed_payload


def journal(
    spark: SparkSession, url: str, *, payload: str = "text", **options: str | int
) -> DataFrame:
    """The entries of the journal at a store's URL; the options are those of the data source.

    With `payload="variant"` there is a column `payload` besides, parsed: see `with_payload`.
    """
    entries = prepared(spark).read.format("tape").options(url=url, **options).load()
    return _with(payload, entries)


def follow(
    spark: SparkSession, url: str, *, payload: str = "text", **options: str | int
) -> DataFrame:
    """Read the journal as a stream, from the oldest entry kept unless `start` says otherwise."""
    entries = prepared(spark).readStream.format("tape").options(url=url, **options).load()
    return _with(payload, entries)


def with_payload(entries: DataFrame) -> DataFrame:
    """With the payload parsed by Spark, as a VARIANT; NULL where Spark cannot hold it as one."""
    return entries.withColumn(PAYLOAD, parsed_payload(F.col("payload_json")))


def _with(payload: str, entries: DataFrame) -> DataFrame:
    if payload not in ("text", "variant"):
        raise InvalidArgument(f"{payload!r} is not one of text, variant", field="payload")
    return with_payload(entries) if payload == "variant" else entries
