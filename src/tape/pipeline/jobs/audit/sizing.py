"""For a small journal Spark would take longer to prepare its checks than to make them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.sql import SparkSession

SMALL: Final = 100_000
_AS_IT_COMES: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}


@contextmanager
def sized_for(spark: SparkSession, entries: int) -> Iterator[None]:
    """The session's settings for so many entries; afterwards they are as they were."""
    before = {name: spark.conf.get(name) for name in _AS_IT_COMES} if entries < SMALL else {}
    try:
        for name in before:
            spark.conf.set(name, _AS_IT_COMES[name])
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, str(value))
