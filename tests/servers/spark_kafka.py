"""Spark's connector for Kafka, for tests, where its own resolver does not find all of it."""

from functools import cache

from tests.servers.maven import Coordinates, fetched_jars

# The newest of each that can be had together; a connector is made for one release of Spark, and
# this one reads on the next.
CONNECTOR = "4.2.0"
_WANTED = (
    Coordinates("org.apache.spark", "spark-sql-kafka-0-10_2.13", CONNECTOR, alone=True),
    Coordinates("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0", alone=True),
    Coordinates("org.apache.kafka", "kafka-clients", "3.9.1", alone=True),
    Coordinates("org.apache.commons", "commons-pool2", "2.12.1", alone=True),
)


@cache
def spark_kafka_jars() -> str:
    """For `spark.jars`; JarsUnavailable says why not."""
    return ",".join(str(jar) for jar in fetched_jars(f"spark-kafka-{CONNECTOR}", _WANTED).iterdir())
