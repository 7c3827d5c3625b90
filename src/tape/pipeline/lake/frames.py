"""A lake, and a journal with its lake, as DataFrames: read by Spark's own Parquet reader."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tape.model.subject import EVERYTHING, parse_pattern
from tape.pipeline.lake.log import LakeLog
from tape.pipeline.lake.manifest import Lake
from tape.pipeline.schema import ENTRY_WITH_PAYLOAD
from tape.pipeline.session import prepared
from tape.pipeline.source.frames import journal


def lake(spark: SparkSession, path: str) -> DataFrame:
    """All that is archived in a lake, with the payload as text and as VARIANT.

    It is the lake as it is now: files that a later compaction replaces are kept for the time that
    `tape pipeline archive --keep-removed` says.
    """
    log = LakeLog(path)
    return _files(prepared(spark), log, log.require(), 0, 2**63 - 1)


def history(
    spark: SparkSession, url: str, path: str, *, payload: str = "text", **options: str | int
) -> DataFrame:
    """Archived and live entries as one table; the options are those of a batch of the data source.

    The archived part is read by Spark itself, which prunes columns and row groups; with the option
    `where` by the data source, since the predicate is decided there.
    """
    spark = prepared(spark)
    given = {name.lower(): str(value) for name, value in options.items()}
    log = LakeLog(path)
    archived = log.require()
    live = {**given, "lake": path}
    if given.get("where"):
        return journal(spark, url, payload=payload, **live)
    after = int(given.get("from") or archived.after)
    upto = int(given.get("upto") or 2**63 - 1)
    if after <= upto:  # else the data source refuses it
        live["from"] = str(min(max(after, archived.through), upto))
    rest = journal(spark, url, payload=payload, **live)
    if after >= archived.through:
        return rest
    found = _files(spark, log, archived, after, upto).select(*rest.columns)
    pattern = parse_pattern(given.get("pattern") or EVERYTHING, field="pattern")
    if not pattern.everything:
        found = found.where(F.col("subject").rlike(f"^(?:{pattern.expression.pattern})$"))
    return found if upto <= archived.through else found.unionByName(rest)


def _files(spark: SparkSession, log: LakeLog, archived: Lake, after: int, upto: int) -> DataFrame:
    files = archived.between(after, upto)
    if not files:
        return spark.createDataFrame([], ENTRY_WITH_PAYLOAD)
    paths = [f"file://{log.path / file.path}" for file in files]
    found = spark.read.schema(ENTRY_WITH_PAYLOAD).parquet(*paths)
    if files[0].after < after:
        found = found.where(F.col("global_seq") > after)
    if files[-1].through > upto:
        found = found.where(F.col("global_seq") <= upto)
    return found
