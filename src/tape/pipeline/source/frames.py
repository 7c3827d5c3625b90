"""The journal as a DataFrame, for programs and notebooks."""

from pyspark.sql import DataFrame, SparkSession

from tape.pipeline.session import prepared


def journal(spark: SparkSession, url: str, **options: str) -> DataFrame:
    """The entries of the journal at a store's URL; the options are those of the data source."""
    return prepared(spark).read.format("tape").options(url=url, **options).load()
