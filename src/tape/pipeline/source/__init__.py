"""The data source `tape`: the journal as a table that Spark reads, follows and appends to."""

from abc import abstractmethod

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from tape.pipeline.lake.log import LakeLog
from tape.pipeline.schema import ENTRY_SCHEMA, TABLE_SCHEMAS, refuse_foreign_columns
from tape.pipeline.source.history import WithLake
from tape.pipeline.source.options import JOURNAL, read_options, refuse_unknown
from tape.pipeline.source.read import JournalReader, PushedReader, TableReader
from tape.pipeline.source.stream import JournalStream
from tape.pipeline.source.write import batch_writer, stream_writer
from tape.ports.bulk import OpenStores


class TapeSource(DataSource):
    """Its subclass in `pyspark_tape` says how stores are opened."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        refuse_unknown(options)
        self.stores = self.open_stores(options.get("config", ""))
        if url := options.get("url"):
            # Here it is the driver's working directory that counts; executors have their own.
            options["url"] = self.stores.located(url)
        if lake := options.get("lake"):
            options["lake"] = str(LakeLog(lake).path)

    @abstractmethod
    def open_stores(self, config: str) -> OpenStores:
        """By the settings of a file, or by the defaults."""

    @classmethod
    def name(cls) -> str:
        return "tape"

    def schema(self) -> StructType:
        return TABLE_SCHEMAS.get(self.options.get("table", JOURNAL), ENTRY_SCHEMA)

    def reader(self, schema: StructType) -> DataSourceReader:
        what = read_options(self.options, streaming=False)
        refuse_foreign_columns(schema, self.schema())
        if what.table != JOURNAL:
            return TableReader(self.stores, what, schema)
        stores = WithLake(self.stores, what.lake) if what.lake else self.stores
        kind = PushedReader if what.push_filters else JournalReader
        return kind(stores, what, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        what = read_options(self.options, streaming=True)
        refuse_foreign_columns(schema, ENTRY_SCHEMA)
        return JournalStream(self.stores, what, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return batch_writer(self.stores, self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's
        return stream_writer(self.stores, self.options, schema, overwrite=overwrite)
