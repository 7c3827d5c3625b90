"""What Spark finds by itself: `format("tape")`. It puts the data source and the stores together.

A module on the path whose name starts with `pyspark_` and that has a `DefaultSource` is a data
source without being registered.
"""

from tape.pipeline.source import TapeSource
from tape.stores.blocking import Stores


class DefaultSource(TapeSource):
    stores = Stores()
