"""Second looks at what Spark alone cannot decide, by the code that decides in the server."""

from collections.abc import Iterator
from typing import Any

import orjson
import pyarrow as pa

from tape.errors import TapeError
from tape.model.run import RunName
from tape.model.subject import parse_subject

Batches = Iterator[pa.RecordBatch]


def not_json(batches: Batches) -> Batches:
    """Of entries whose payload Spark could not parse, those whose payload is not JSON."""
    for batch in batches:
        rows = batch.to_pydict()
        faults = [_json_fault(text) for text in rows.pop("payload_json")]
        yield _kept(rows, faults)


def _json_fault(text: str) -> str:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError as error:
        return f"{error.msg} at {error.pos}"
    return ""


def not_a_subject(batches: Batches) -> Batches:
    """Of entries whose subject is not plain, those whose subject breaks the grammar."""
    for batch in batches:
        rows = batch.to_pydict()
        yield _kept(rows, [_subject_fault(text) for text in rows["subject"]])


def _subject_fault(text: str) -> str:
    try:
        parse_subject(text)
    except TapeError as error:
        return str(error)
    return ""


def named_otherwise(batches: Batches) -> Batches:
    """Of the beginnings of runs, those whose run_id is not the one of their name."""
    for batch in batches:
        rows = batch.to_pydict()
        names = zip(*(rows.pop(name) for name in RunName._fields), strict=True)
        ids = [RunName(*name).run_id if None not in name else "" for name in names]
        faults = [
            "" if expected == found else f"the run of this name is {expected or 'unnamed'}"
            for expected, found in zip(ids, rows["run_id"], strict=True)
        ]
        yield _kept(rows, faults)


def _kept(rows: dict[str, list[Any]], faults: list[str]) -> pa.RecordBatch:
    """The rows that have a fault, with it as their last column."""
    places = [place for place, fault in enumerate(faults) if fault]
    columns = {**rows, "fault": faults}
    types = {name: pa.int64() if name == "global_seq" else pa.string() for name in columns}
    return pa.RecordBatch.from_pydict(
        {name: [values[place] for place in places] for name, values in columns.items()},
        schema=pa.schema(types),
    )
