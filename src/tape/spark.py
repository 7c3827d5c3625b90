"""Tape in a notebook or a Spark program: a session, and the journal as a DataFrame.

spark = tape.spark.session()
df = tape.spark.journal(spark, "sqlite:tape.db")
"""

from tape.errors import SparkUnavailable

try:
    from tape.pipeline.lake.frames import history, lake
    from tape.pipeline.session import session
    from tape.pipeline.source.frames import follow, journal, with_payload
except ModuleNotFoundError as missing:
    raise SparkUnavailable(
        f"the pipeline needs {missing.name}: pip install 'tape-bus[spark]'"
    ) from missing

__all__ = ["follow", "history", "journal", "lake", "session", "with_payload"]
