"""The data source `tape`: the journal as a table that Spark reads, follows and appends to."""

from typing import ClassVar

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from tape.pipeline.schema import ENTRY_SCHEMA
from tape.ports.bulk import OpenStores


class TapeSource(DataSource):
    """Its subclass in `pyspark_tape` says how stores are opened."""

    stores: ClassVar[OpenStores]

    @classmethod
    def name(cls) -> str:
        return "tape"

    def schema(self) -> StructType:
        return ENTRY_SCHEMA
