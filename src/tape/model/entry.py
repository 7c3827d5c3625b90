"""An entry: one row of the journal, and the draft it is before the store gives it its place."""

from enum import StrEnum
from typing import Any, NamedTuple

import orjson


class Kind(StrEnum):
    """The first segment of a subject."""

    RUN = "run"
    DECISION = "decision"
    EFFECT = "effect"
    OBLIGATION = "obligation"
    GATE = "gate"
    VALUE = "value"
    EVENT = "event"
    SESSION = "session"
    TASK = "task"
    TIMER = "timer"
    BUDGET = "budget"
    DRAINER = "drainer"
    SUBSCRIPTION = "subscription"
    RELAY = "relay"
    OUTBOX = "outbox"
    WALLET = "wallet"


class Trace(NamedTuple):
    """W3C trace context as hex text, empty where there is none."""

    trace_id: str = ""
    span_id: str = ""
    parent_span_id: str = ""


NO_TRACE = Trace()


class EntryDraft(NamedTuple):
    """An entry before the store gives it `global_seq` and `ts_ms`.

    None is what the store keeps as NULL; an entry read back has "" and 0 there. An
    `occurred_at_ms` of 0 becomes the time of recording.
    """

    event_id: str
    kind: str
    subject: str
    payload_json: str
    run_id: str | None = None
    seq: int | None = None
    schema_version: int = 1
    trace_id: str = ""
    span_id: str = ""
    parent_span_id: str = ""
    event_type: str = ""
    entity_type: str = ""
    entity_id: str = ""
    caused_by: str = ""
    source: str = ""
    occurred_at_ms: int = 0
    idempotency_key: str | None = None


class Entry(NamedTuple):
    """One row of the journal, in the order of its columns."""

    global_seq: int
    run_id: str
    seq: int
    kind: str
    subject: str
    payload_json: str
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

    @property
    def payload(self) -> Any:
        """The payload, parsed at each use."""
        return orjson.loads(self.payload_json)
