"""One Spark session for all tests of the pipeline: starting one takes ten seconds."""

import os
from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark", reason="the pipeline's tests need the extra spark")

from pyspark.sql import SparkSession

from tape.pipeline.session import session
from tests.pipeline.cluster import QUICK_JAVA

# A Java that lives for a minute spends half of its time on making itself faster for the next one.
# Processes that tests start inherit it: drivers the first, masters and workers the second.
for _name in ("SPARK_SUBMIT_OPTS", "SPARK_DAEMON_JAVA_OPTS"):
    os.environ.setdefault(_name, QUICK_JAVA)


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
