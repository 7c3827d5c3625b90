"""Kafka as messages, through Spark's own connector."""

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tape.pipeline.jobs.ingest.messages import readable
from tape.pipeline.session import KAFKA_PACKAGE


def kafka_packages() -> tuple[str, ...]:
    """What a session needs to have been started with."""
    return (KAFKA_PACKAGE.format(version=pyspark.__version__),)


def kafka_messages(
    spark: SparkSession, server: str, topic: str, messages_per_batch: int
) -> DataFrame:
    # What a producer has taken back was never sent.
    reading = (
        spark.readStream.format("kafka")
        .option("kafka.isolation.level", "read_committed")
        .option("kafka.bootstrap.servers", server)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
    )
    if messages_per_batch:
        reading = reading.option("maxOffsetsPerTrigger", messages_per_batch)
    body, key = readable(F.col("value")), readable(F.col("key"))
    return reading.load().select(
        F.concat_ws("/", F.lit("kafka"), "topic", "partition").alias("origin"),
        F.col("offset").alias("number"),
        key.marked.alias("key"),
        F.unix_millis("timestamp").alias("timestamp_ms"),
        F.transform(
            "headers",
            lambda header: F.struct(
                header["key"].alias("name"),
                header["value"].alias("value"),
            ),
        ).alias("headers"),
        body.text.alias("body"),
        body.marked.alias("raw"),
        body.bytes.alias("raw_bytes"),
        key.bytes.alias("key_bytes"),
        body.fault.alias("fault"),
    )
