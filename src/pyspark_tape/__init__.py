"""What Spark finds by itself: `format("tape")`. It puts the data source and the stores together.

A module on the path whose name starts with `pyspark_` and that has a `DefaultSource` is a data
source without being registered.
"""

from pathlib import Path

from tape.pipeline.source import TapeSource
from tape.settings import Settings
from tape.settings.yaml_file import read_yaml
from tape.stores.blocking import Stores


class DefaultSource(TapeSource):
    def open_stores(self, config: str) -> Stores:
        return Stores(read_yaml(Path(config), Settings()) if config else Settings())
