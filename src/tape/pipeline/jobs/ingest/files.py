"""Files as messages: JSON lines, CSV, Parquet, and messages that somebody else has landed.

A file is read whole by one task, so that a record's line is known; what was taken is remembered by
the stream's checkpoint.
"""

import csv
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import orjson
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from tape.errors import InvalidArgument
from tape.pipeline.jobs.ingest.messages import MESSAGE, readable

FORMATS: Final = ("json", "csv", "parquet")
LONGEST_PATH: Final = 400
_NUMBERS: Final = ("occurred_at_ms", "schema_version")
_ARROW: Final = to_arrow_schema(MESSAGE, timezone="UTC")
_LANDED: Final = ("headers", "key", "timestamp_ms", "position", "body")

Split = Callable[[dict[str, Any]], Iterator[dict[str, Any]]]


def file_messages(spark: SparkSession, path: str, form: str, files_per_batch: int) -> DataFrame:
    match form:
        case "json":
            return _lines(_whole(spark, path, files_per_batch))
        case "csv":
            return _split(_whole(spark, path, files_per_batch), csv_records)
        case "parquet":
            return _parquet(spark, path, files_per_batch)
        case _:
            raise InvalidArgument(f"{form!r} is not one of {', '.join(FORMATS)}", field="format")


def landed_messages(spark: SparkSession, path: str, files_per_batch: int) -> DataFrame:
    """One JSON message to a line, with its headers and its position at the source."""
    return _split(_lines(_whole(spark, path, files_per_batch)), landed_message)


def _whole(spark: SparkSession, path: str, files_per_batch: int) -> DataFrame:
    reading = spark.readStream.format("text").option("wholetext", "true")
    if files_per_batch:
        reading = reading.option("maxFilesPerTrigger", files_per_batch)
    body, raw, fault = readable(F.col("value"))
    return reading.load(_pattern(path)).select(
        _origin().alias("origin"),
        F.lit(0).cast("long").alias("number"),
        F.lit(None).cast("string").alias("key"),
        F.unix_millis(F.col("_metadata.file_modification_time")).alias("timestamp_ms"),
        F.lit(None).cast("array<struct<name:string,value:string>>").alias("headers"),
        body.alias("body"),
        raw.alias("raw"),
        fault.alias("fault"),
        "value",
    )


def _pattern(path: str) -> str:
    """Spark follows folders and globs; so one file is a glob that only its name matches."""
    return f"{path[:-1]}[{path[-1]}]" if Path(path).is_file() else path


def _origin() -> Column:
    """The whole path: two folders may have files of one name."""
    path = F.url_decode(F.regexp_replace(F.col("_metadata.file_path"), "^file:/*", "/"))
    short = F.when(F.octet_length(path) <= LONGEST_PATH, path).otherwise(
        F.concat(F.lit("/"), F.sha2(path, 256))
    )
    return F.concat(F.lit("file"), short)


def _lines(files: DataFrame) -> DataFrame:
    """A message to a line that is not blank, numbered from 1."""
    lines = files.select(
        "origin",
        "timestamp_ms",
        "key",
        "headers",
        "fault",
        F.posexplode(F.split("value", "\r?\n")).alias("place", "line"),
    ).where(F.trim("line") != "")
    # Cutting a text puts this in the place of what is not UTF-8.
    torn = F.col("fault").isNotNull() & F.contains("line", F.lit("\ufffd"))
    made = {
        "number": F.col("place").cast("long") + 1,
        "body": F.when(~torn, F.col("line")),
        "raw": F.col("line"),
        "fault": F.when(torn, F.col("fault")),
    }
    return lines.select(*(made.get(name, F.col(name)).alias(name) for name in MESSAGE.names))


def _parquet(spark: SparkSession, path: str, files_per_batch: int) -> DataFrame:
    schema = spark.read.parquet(path).schema
    reading = spark.readStream.schema(schema)
    if files_per_batch:
        reading = reading.option("maxFilesPerTrigger", files_per_batch)
    body = F.to_json(F.struct(*(F.col(f"`{name}`") for name in schema.names)))
    return reading.parquet(_pattern(path)).select(
        _origin().alias("origin"),
        (F.col("_metadata.row_index") + 1).alias("number"),
        F.lit(None).cast("string").alias("key"),
        F.unix_millis(F.col("_metadata.file_modification_time")).alias("timestamp_ms"),
        F.lit(None).cast("array<struct<name:string,value:string>>").alias("headers"),
        body.alias("body"),
        body.alias("raw"),
        F.lit(None).cast("string").alias("fault"),
    )


def _split(messages: DataFrame, split: Split) -> DataFrame:
    def each(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = [row for message in batch.to_pylist() for row in split(message)]
            yield pa.RecordBatch.from_pylist(rows, schema=_ARROW)

    return messages.select(*MESSAGE.names).mapInArrow(each, MESSAGE)


def csv_records(file: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A message to a record, numbered by the line it ends on; the first line names the columns."""
    if file["fault"]:
        yield file
        return
    reader = csv.reader(io.StringIO(file["body"]), strict=True)
    names: list[str] | None = None
    while True:
        try:
            record = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield _faulty(file, reader.line_num, file["body"], f"body: is not CSV: {error}")
            return
        if names is None:
            names = [name.strip() for name in record]
        elif record:
            yield _csv_record(file, reader.line_num, names, record)


def _csv_record(
    file: dict[str, Any], line: int, names: list[str], record: list[str]
) -> dict[str, Any]:
    raw = ",".join(record)
    if len(record) != len(names):
        fault = f"body: has {len(record)} fields, the first line {len(names)}"
        return _faulty(file, line, raw, fault)
    said = {
        name: int(text) if name in _NUMBERS and text.isdecimal() and len(text) < 19 else text
        for name, text in zip(names, record, strict=True)
        if text
    }
    return file | {"number": line, "body": orjson.dumps(said).decode(), "raw": raw}


def landed_message(line: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if line["fault"]:
        yield line
        return
    try:
        yield line | _landed(orjson.loads(line["body"]))
    except orjson.JSONDecodeError as fault:
        yield _faulty(line, line["number"], line["raw"], f"message: not valid JSON: {fault.msg}")
    except InvalidArgument as fault:
        yield _faulty(line, line["number"], line["raw"], str(fault))


def _landed(said: Any) -> dict[str, Any]:
    if not isinstance(said, dict):
        raise InvalidArgument("is not an object", field="message")
    for name in said:
        if name not in _LANDED:
            raise InvalidArgument(f"is no part of it; there are {', '.join(_LANDED)}", field=name)
    if "body" not in said:
        raise InvalidArgument("is missing", field="body")
    body, headers = said["body"], said.get("headers") or {}
    if not isinstance(headers, dict) or not isinstance(said.get("timestamp_ms", 0), int):
        raise InvalidArgument("headers is an object, timestamp_ms a number", field="message")
    made: dict[str, Any] = {
        "headers": [{"name": name, "value": str(value)} for name, value in headers.items()],
        "body": body if isinstance(body, str) else orjson.dumps(body).decode(),
        "key": None if said.get("key") is None else str(said["key"]),
    }
    if said.get("position"):
        made["headers"].append({"name": "idempotency_key", "value": str(said["position"])})
    if "timestamp_ms" in said:
        made["timestamp_ms"] = said["timestamp_ms"]
    return made


def _faulty(message: dict[str, Any], number: int, raw: str, fault: str) -> dict[str, Any]:
    return message | {"number": number, "body": None, "raw": raw, "fault": fault}
