"""An event and what it tells of, in one transaction of the caller's.

The event is a row of the outbox, written where the caller writes its own rows, so both are there or
neither is. Publishing is the relay's, later. Called outside a transaction it could leave an event
of something that was never done, or that is undone after (a ghost event), so that is refused.

Everything is checked before anything is sent, by the rules that the journal has for events: what
the relay promotes cannot be refused then.
"""

import os
import threading
from collections.abc import Coroutine
from typing import Any, Protocol, runtime_checkable

from tape.errors import InvalidArgument
from tape.journal.ids import UlidFactory
from tape.model.bus_subject import check_bus_subject, matches_bus_pattern
from tape.model.event import NewEvent, check_statement, draft_event, stated_version
from tape.model.json_text import check_json, to_json
from tape.model.outbox import NewOutboxRow
from tape.ports.caller import CallerTransaction, settled
from tape.settings import Limits
from tape.telemetry.tracing import recording

LEST = "the event could be committed without the change that it reports (a ghost event)"
_NAMES = ("entity_type", "entity_id", "idempotency_key", "caused_by", "source")


@runtime_checkable
class VersionedPayload(Protocol):
    """A payload that knows its version and its subject: those of `tape.payloads`."""

    @property
    def schema_version(self) -> int: ...

    @property
    def subject_pattern(self) -> str: ...

    def to_json(self) -> str: ...


def publish(tx: CallerTransaction, row: NewOutboxRow) -> str | Coroutine[Any, Any, str]:
    """The event's id, once the row is written in the transaction; it is not committed yet."""
    tx.require_open(LEST)
    if tx.is_async:
        return _publish_later(tx, row)
    with recording(f"publish_within {row.subject}") as trace:
        tx.append_outbox(row._replace(**trace._asdict()))
    return row.event_id


async def _publish_later(tx: CallerTransaction, row: NewOutboxRow) -> str:
    with recording(f"publish_within {row.subject}") as trace:
        await settled(tx.append_outbox(row._replace(**trace._asdict())))
    return row.event_id


def outbox_row(
    subject: str, payload: Any, said: NewEvent, version: int | None, limits: Limits
) -> NewOutboxRow:
    """The row an event becomes; every fault in it is found here. `said` has its other fields."""
    check_bus_subject(subject)
    for name in _NAMES:
        if not isinstance(getattr(said, name), str):
            kind = type(getattr(said, name)).__name__
            raise InvalidArgument(f"must be a text, not {kind}", field=name)
    for name, number in (("occurred_at_ms", said.occurred_at_ms), ("schema_version", version)):
        if number is not None and type(number) is not int:
            raise InvalidArgument(f"must be an integer, not {type(number).__name__}", field=name)
    if isinstance(payload, VersionedPayload):
        version = _version_of(payload, subject, version)
        text = payload.to_json()
    else:
        text = to_json(payload, limits, field="payload")
    text = check_json(text, limits, field="payload")  # parts may be texts, taken as they are
    event_id = IDS.draw()
    new = said._replace(
        event_type=subject, schema_version=stated_version(text) if version is None else version
    )
    draft = draft_event(new, event_id, limits)
    check_statement(new._replace(payload_json=text))
    return NewOutboxRow(
        event_id, subject, text, draft.schema_version, draft.entity_type, draft.entity_id,
        draft.idempotency_key, draft.caused_by, draft.source, draft.occurred_at_ms,
    )  # fmt: skip


def _version_of(payload: VersionedPayload, subject: str, version: int | None) -> int:
    kind = type(payload).__name__
    if not matches_bus_pattern(payload.subject_pattern, subject):
        raise InvalidArgument(
            f"a {kind} is for {payload.subject_pattern}, not for {subject}", field="subject"
        )
    if version not in (None, payload.schema_version):
        raise InvalidArgument(
            f"the payload, a {kind}, has version {payload.schema_version}; leave this out",
            field="schema_version",
        )
    return payload.schema_version


class EventIds:
    """Ids for all threads of a process, and none that a process has in common with its forks."""

    def __init__(self) -> None:
        self._renew()
        os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self._lock = threading.Lock()
        self._factory = UlidFactory()

    def draw(self) -> str:
        with self._lock:
            return next(self._factory)


IDS = EventIds()
