"""A store by the column, for Spark's executors: what a URL names."""

from tape.ports.bulk import BulkReader, Staging


def open_reader(url: str) -> BulkReader:
    raise NotImplementedError(url)


def open_staging(url: str) -> Staging:
    raise NotImplementedError(url)
