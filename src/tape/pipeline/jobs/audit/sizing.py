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


_IN_ONE_PART: Final = {
    **_AS_IT_COMES,
    "spark.sql.shuffle.partitions": "1",
    # What is in one place already is joined there, with no job to send a side of it around.
    "spark.sql.autoBroadcastJoinThreshold": "-1",
}


@contextmanager
def sized_for(spark: SparkSession, entries: int, *, local: bool = False) -> Iterator[None]:
    """The session's settings for so many entries, `local` if the driver has them all.

    Afterwards they are as they were.
    """
    settings = _IN_ONE_PART if local else _AS_IT_COMES if entries < SMALL else {}
    before = {name: spark.conf.get(name) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, earlier in before.items():
            spark.conf.set(name, str(earlier))
