"""One Spark session for all tests of the pipeline: starting one takes ten seconds."""

from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark", reason="the pipeline's tests need the extra spark")

from pyspark.sql import SparkSession

from tape.pipeline.session import session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    spark = session(
        master="local[2]",
        config={
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.memory": "1g",
            "spark.sql.streaming.stateStore.stateSchemaCheck": "true",
        },
    )
    yield spark
    spark.stop()
