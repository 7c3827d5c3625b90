"""Second looks at what Spark alone cannot decide, by the code that decides in the server."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import orjson
import pyarrow as pa

from tape.errors import TapeError
from tape.model.event_glob import parse_glob
from tape.model.input_mapper import parse_mapper
from tape.model.message import bounded_key
from tape.model.run import RunName
from tape.model.subject import parse_pattern, parse_subject
from tape.model.subscription_spec import Control
from tape.predicates import STORED_LIMITS, check
from tape.settings import Limits
from tape.subscriptions.operations import new_subscription
from tape.subscriptions.spec import spec_of_json

Batches = Iterator[pa.RecordBatch]
_check_stored: Final = partial(check, limits=STORED_LIMITS)
_STORED: Final = Limits(payload_bytes=sys.maxsize, json_depth=sys.maxsize, name_bytes=sys.maxsize)
"""For what was taken before: whoever took it knew how large it may be."""


def not_json(batches: Batches) -> Batches:
    """Of rows whose `payload_json` Spark could not parse, those in which it is not JSON."""
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


def reactions_not_compiling(batches: Batches) -> Batches:
    """Reactions whose pattern or predicate cannot be understood."""
    for batch in batches:
        rows = batch.to_pydict()
        patterns, predicates = rows.pop("subject_pattern"), rows.pop("predicate_cel")
        faults = [
            _fault_of(parse_pattern, pattern) or (cel and _fault_of(_check_stored, cel)) or ""
            for pattern, cel in zip(patterns, predicates, strict=True)
        ]
        yield _kept(rows, faults)


def subscriptions_not_compiling(batches: Batches) -> Batches:
    """Event subscriptions whose glob, filter or mapper cannot be understood."""
    for batch in batches:
        rows = batch.to_pydict()
        columns = [rows.pop(name) for name in ("event_type_glob", "filter_expr", "input_mapper")]
        faults = [
            _fault_of(partial(parse_glob, limits=_STORED), glob)
            or (cel and _fault_of(_check_stored, cel))
            or _fault_of(partial(parse_mapper, limits=_STORED), mapper)
            for glob, cel, mapper in zip(*columns, strict=True)
        ]
        yield _kept(rows, faults)


def documents_unlike_rows(batches: Batches) -> Batches:
    """Declared subscriptions whose row does not say what their document says."""
    for batch in batches:
        rows = batch.to_pylist()
        faults = [_document_fault(row, row.pop("document_json")) for row in rows]
        yield _kept({"name": [row["name"] for row in rows]}, faults)


def _document_fault(row: Mapping[str, Any], document_json: str) -> str:
    try:
        said = new_subscription(spec_of_json(document_json), document_json)
    except TapeError as error:
        return f"its document cannot be understood: {error}"
    return ", ".join(
        f"{column} is {kept!r}, its document says {getattr(said, column)!r}"
        for column, kept in row.items()
        if kept != getattr(said, column)
    )


def permitted_values(batches: Batches) -> Batches:
    """What each header of a document may set, a row for each value; `value` is null where any will
    do. Where a document cannot be understood, all is: another check tells."""
    for batch in batches:
        found = [
            (row["name"], *permitted)
            for row in batch.to_pylist()
            for permitted in _permitted(row["document_json"])
        ]
        columns = list(zip(*found, strict=True)) or [()] * 4
        names = ["name", "header", "controls", "value"]
        yield pa.RecordBatch.from_arrays(
            [pa.array(column, pa.string()) for column in columns], names=names
        )


def _permitted(document_json: str) -> Iterator[tuple[str | None, str | None, str | None]]:
    try:
        headers = spec_of_json(document_json).headers
    except TapeError:
        yield None, None, None
        return
    for directive in headers.directives if headers else ():
        values: Sequence[str | None] = [pool for _value, pool in directive.pools]
        for value in values or directive.allowed or [None]:
            is_key = value and directive.controls is Control.IDEMPOTENCY_KEY
            effective = bounded_key(value) if value and is_key else value
            yield directive.header, directive.controls.value, effective


def _fault_of(read: Callable[[str], object], text: str) -> str:
    try:
        read(text)
    except TapeError as error:
        return f"{text!r} cannot be understood: {error}"
    return ""


def _kept(rows: dict[str, list[Any]], faults: list[str]) -> pa.RecordBatch:
    """The rows that have a fault, with it as their last column."""
    places = [place for place, fault in enumerate(faults) if fault]
    columns = {**rows, "fault": faults}
    types = {name: pa.int64() if name == "global_seq" else pa.string() for name in columns}
    return pa.RecordBatch.from_pydict(
        {name: [values[place] for place in places] for name, values in columns.items()},
        schema=pa.schema(types),
    )
