"""Files as messages: JSON lines, CSV, Parquet, and messages that somebody else has landed.

A file is read whole by one task, so that a record's line is known; what was taken is remembered by
the stream's checkpoint.
"""

import csv
import io
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import orjson
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from tape.errors import InvalidArgument
from tape.model.landed import LandedMessage, read_landed
from tape.pipeline.jobs.ingest.messages import MESSAGE, NO_HEADERS, NOT_UTF8, readable
from tape.pipeline.jobs.ingest.rows import row_as_json

FORMATS: Final = ("json", "csv", "parquet")
LONGEST_PATH: Final = 400
_NUMBERS: Final = ("occurred_at_ms", "schema_version")
_ARROW: Final = to_arrow_schema(MESSAGE, timezone="UTC")

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
    came = readable(F.col("value"))
    return reading.load(_pattern(path)).select(
        _origin().alias("origin"),
        F.lit(0).cast("long").alias("number"),
        F.lit(None).cast("string").alias("key"),
        F.unix_millis(F.col("_metadata.file_modification_time")).alias("timestamp_ms"),
        F.lit(None).cast(NO_HEADERS).alias("headers"),
        came.text.alias("body"),
        came.marked.alias("raw"),
        came.bytes.alias("raw_bytes"),
        F.lit(None).cast("binary").alias("key_bytes"),
        came.fault.alias("fault"),
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
    # Cutting a text loses what is not UTF-8, so such a file is cut with a character for each byte.
    torn = F.col("raw_bytes").isNotNull()
    whole = F.when(torn, F.decode("raw_bytes", "ISO-8859-1")).otherwise(F.col("value"))
    lines = files.select(
        "origin",
        "timestamp_ms",
        "key",
        "headers",
        "key_bytes",
        torn.alias("torn"),
        F.posexplode(F.split(whole, "\r?\n")).alias("place", "line"),
    ).where(F.trim("line") != "")
    line = F.when(F.col("torn"), F.encode("line", "ISO-8859-1").cast("string"))
    came = readable(line.otherwise(F.col("line")))
    made = {
        "number": F.col("place").cast("long") + 1,
        "body": came.text,
        "raw": came.marked,
        "raw_bytes": came.bytes,
        "fault": came.fault,
    }
    return lines.select(*(made.get(name, F.col(name)).alias(name) for name in MESSAGE.names))


def _parquet(spark: SparkSession, path: str, files_per_batch: int) -> DataFrame:
    schema = spark.read.parquet(path).schema
    reading = spark.readStream.schema(schema)
    if files_per_batch:
        reading = reading.option("maxFilesPerTrigger", files_per_batch)
    row = row_as_json(schema)
    return reading.parquet(_pattern(path)).select(
        _origin().alias("origin"),
        (F.col("_metadata.row_index") + 1).alias("number"),
        F.lit(None).cast("string").alias("key"),
        F.unix_millis(F.col("_metadata.file_modification_time")).alias("timestamp_ms"),
        F.lit(None).cast(NO_HEADERS).alias("headers"),
        row.text.alias("body"),
        row.marked.alias("raw"),
        row.bytes.alias("raw_bytes"),
        F.lit(None).cast("binary").alias("key_bytes"),
        row.fault.alias("fault"),
    )


def _split(messages: DataFrame, split: Split) -> DataFrame:
    def each(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = [row for message in batch.to_pylist() for row in split(message)]
            yield pa.RecordBatch.from_pylist(rows, schema=_ARROW)

    return messages.select(*MESSAGE.names).mapInArrow(each, MESSAGE)


def csv_records(file: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A message to a record, numbered by the line it ends on; the first line names the columns.

    A file that is not UTF-8 is read with a stand-in for each byte that is none, so that only the
    records that have one are refused.
    """
    came = file["raw_bytes"]
    text = file["body"] if came is None else came.decode(errors="surrogateescape")
    consumed: list[str] = []
    reader = csv.reader(_noting(io.StringIO(text), consumed), strict=True)
    names: list[str] | None = None
    while True:
        try:
            record = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield _faulty(file, reader.line_num, text, f"body: is not CSV: {error}")
            return
        raw = "".join(consumed).rstrip("\r\n")
        consumed.clear()
        if names is None:
            names = [name.strip() for name in record]
            if not _is_text(raw):
                yield file
                return
        elif record:
            yield _csv_record(file, reader.line_num, names, record, raw)


def _noting(lines: Iterable[str], consumed: list[str]) -> Iterator[str]:
    """The lines, each noted when it is taken."""
    for line in lines:
        consumed.append(line)
        yield line


def _csv_record(
    file: dict[str, Any], line: int, names: list[str], record: list[str], raw: str
) -> dict[str, Any]:
    if not _is_text(raw):
        return _faulty(file, line, raw, NOT_UTF8)
    if len(record) != len(names):
        fault = f"body: has {len(record)} fields, the first line {len(names)}"
        return _faulty(file, line, raw, fault)
    said = {
        name: int(text) if name in _NUMBERS and text.isdecimal() and len(text) < 19 else text
        for name, text in zip(names, record, strict=True)
        if text
    }
    body = orjson.dumps(said).decode()
    return file | {"number": line, "body": body, "raw": raw, "raw_bytes": None, "fault": None}


def landed_message(line: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if line["fault"]:
        yield line
        return
    try:
        yield line | _landed(read_landed(line["body"].encode()))
    except InvalidArgument as fault:
        yield _faulty(line, line["number"], line["raw"], str(fault))


def _landed(message: LandedMessage) -> dict[str, Any]:
    try:
        body = message.body.decode()
    except UnicodeDecodeError:
        raise InvalidArgument(NOT_UTF8) from None
    headers = list(message.headers)
    if message.position:
        headers.append(("idempotency_key", message.position.encode()))
    made: dict[str, Any] = {
        "headers": [{"name": name, "value": value} for name, value in headers],
        "body": body,
        "key": message.key,
    }
    if message.timestamp_ms is not None:
        made["timestamp_ms"] = message.timestamp_ms
    return made


def _faulty(message: dict[str, Any], number: int, raw: str, fault: str) -> dict[str, Any]:
    """`raw` may have stand-ins for bytes that are not UTF-8: then these are kept, too."""
    came = raw.encode(errors="surrogateescape")
    kept = {"raw": came.decode(errors="replace"), "raw_bytes": None if _is_text(raw) else came}
    return message | {"number": number, "body": None, "fault": fault} | kept


def _is_text(text: str) -> bool:
    """Whether nothing in it is a stand-in for a byte."""
    return not any("\udc80" <= character <= "\udcff" for character in text)
