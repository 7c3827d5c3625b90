"""An entry of the journal as JSON. The payload is the producer's own text, not parsed again."""

from collections.abc import Callable, Iterable
from typing import Annotated, Any, TypeVar

import orjson
from fastapi import Response
from pydantic import Field

from tape.api.http.fields import Reply
from tape.model.entry import Entry
from tape.settings import MIB

T = TypeVar("T")

ANSWER_BYTES = 8 * MIB
"""How large an answer with several entries gets, unless one alone is larger."""

_EMBEDDED = Entry._fields.index("payload_json")
_NAMES = ["payload" if name == "payload_json" else name for name in Entry._fields]


class EntryReply(Reply):
    """One entry; a text field that it does not have is empty."""

    global_seq: int
    run_id: str
    seq: int
    kind: str
    subject: str
    payload: Annotated[Any, Field(description="as the producer recorded it")]
    schema_version: int
    trace_id: str
    span_id: str
    parent_span_id: str
    ts_ms: int
    event_id: str
    event_type: str
    entity_type: str
    entity_id: str
    caused_by: str
    source: str
    occurred_at_ms: int
    idempotency_key: str


def entry_record(entry: Entry) -> dict[str, Any]:
    """For orjson: the payload goes out as it came in."""
    values: list[Any] = list(entry)
    values[_EMBEDDED] = orjson.Fragment(entry.payload_json)
    return dict(zip(_NAMES, values, strict=True))


def fitting(rows: Iterable[T], weigh: Callable[[T], int]) -> tuple[list[T], bool]:
    """As many as fit into an answer, and at least one; and whether there are more."""
    size = 0
    kept: list[T] = []
    for row in rows:
        size += weigh(row)
        if kept and size > ANSWER_BYTES:
            return kept, True
        kept.append(row)
    return kept, False


def json_response(content: Any) -> Response:
    return Response(orjson.dumps(content), media_type="application/json")
