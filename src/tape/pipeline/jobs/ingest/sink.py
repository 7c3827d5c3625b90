"""What becomes of a batch: bad messages to the quarantine, events to the journal, each once.

The quarantine has a folder to a stream and epoch, which a repeated epoch writes anew; the journal
takes an epoch once. So whoever is killed in between leaves nothing that the next does not put
right.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tape.pipeline.jobs.ingest.messages import HEADER
from tape.pipeline.jobs.ingest.validate import COLUMNS

QUARANTINE: Final = StructType(
    [
        StructField("reason", StringType()),
        StructField("position", StringType()),
        StructField("key", StringType()),
        StructField("raw", StringType()),
        StructField("quarantined_at", TimestampType()),
        StructField("raw_bytes", BinaryType()),
        StructField("key_bytes", BinaryType()),
        StructField("headers", ArrayType(HEADER)),
    ]
)
START_S: Final = 120.0
Tell = Callable[[int], None]


class IngestSink:
    """`stream_id` comes once the query has started, which may be after its first batch."""

    def __init__(self, journal: Mapping[str, str], quarantine: str, tell: Tell) -> None:
        self._journal = journal
        self._quarantine = quarantine.rstrip("/")
        self._tell = tell
        self.stream_id: Future[str] = Future()
        self.read = 0
        self.quarantined = 0

    def __call__(self, batch: DataFrame, epoch: int) -> None:
        stream = self.stream_id.result(START_S)
        batch = batch.persist()
        try:
            counted = batch.select(F.count("*"), F.count("reason")).first()
            read, bad = counted if counted is not None else (0, 0)
            if bad:
                where = f"{self._quarantine}/stream={stream}/epoch={epoch}"
                quarantined(batch).write.mode("overwrite").parquet(where)
            good = batch.where("reason IS NULL").select(*COLUMNS)
            target = {**self._journal, "write_id": write_id(stream), "epoch": str(epoch)}
            good.write.format("tape").mode("append").options(**target).save()
        finally:
            batch.unpersist()
        self.read += read
        self.quarantined += bad
        self._tell(self.read)


def write_id(stream: str) -> str:
    return f"ingest/{stream}"


def quarantined(batch: DataFrame) -> DataFrame:
    """What could not be recorded: why, where it was, and what it was as it came."""
    made = {
        "position": F.concat_ws("/", "origin", "number"),
        "headers": F.col("sent"),
        "quarantined_at": F.current_timestamp(),
    }
    columns = (made.get(name, F.col(name)).alias(name) for name in QUARANTINE.names)
    return batch.where("reason IS NOT NULL").select(*columns)


def quarantine(spark: SparkSession, folder: str) -> DataFrame:
    """What is in a quarantine; columns that an older version did not write are NULL there."""
    return spark.read.schema(QUARANTINE).parquet(folder)
