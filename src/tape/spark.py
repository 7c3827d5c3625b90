"""Tape in a notebook or a Spark program: a session, the journal as a DataFrame, and the jobs.

spark = tape.spark.session()
df = tape.spark.journal(spark, "sqlite:tape.db")
"""

from pathlib import Path

from tape.errors import SparkUnavailable
from tape.settings import Settings

try:
    from pyspark.sql import SparkSession

    from tape.pipeline.job import Job, JobContext, Report, Summary, say_nothing
    from tape.pipeline.jobs.ingest.sink import quarantine
    from tape.pipeline.jobs.rollup.rolls import rollup
    from tape.pipeline.lake.frames import history, lake
    from tape.pipeline.session import session
    from tape.pipeline.source.frames import follow, journal, with_payload
except ModuleNotFoundError as missing:
    raise SparkUnavailable(
        f"the pipeline needs {missing.name}: pip install 'tape-bus[spark]'"
    ) from missing

from tape.settings.yaml_file import read_yaml
from tape.stores.blocking import Stores

__all__ = [
    "follow",
    "history",
    "journal",
    "lake",
    "quarantine",
    "rollup",
    "run",
    "session",
    "with_payload",
]


def run(
    spark: SparkSession, url: str, job: Job, report: Report = say_nothing, *, config: str = ""
) -> Summary:
    """Run a job on the store at this URL and return its summary. The session stays open.

    `config` is a settings file; without it the defaults hold.
    """
    settings = read_yaml(Path(config), Settings()) if config else Settings()
    return job.run(JobContext(spark, url, Stores(settings).store(url), report, settings, config))
