"""Publishing from a program's own transaction, and handling messages in one.

with psycopg.connect(url) as connection, connection.transaction():
    connection.execute("INSERT INTO orders …")
    tape.publish_within(connection, "orders.placed", {"order": 7})

Each function takes the program's own handle and is awaited where that is asynchronous.
"""

from collections.abc import Coroutine
from typing import Any, overload

from tape.model.event import NewEvent
from tape.outbox import processed_within as processed
from tape.outbox.publish_within import outbox_row, publish
from tape.ports.caller import AsyncHandle, BlockingHandle
from tape.settings import Settings
from tape.stores.caller import adapt_caller


@overload
def publish_within(
    tx: AsyncHandle,
    subject: str,
    payload: Any = None,
    *,
    entity_type: str = "",
    entity_id: str = "",
    idempotency_key: str = "",
    caused_by: str = "",
    source: str = "",
    occurred_at_ms: int = 0,
    schema_version: int | None = None,
    settings: Settings | None = None,
) -> Coroutine[Any, Any, str]: ...
@overload
def publish_within(
    tx: BlockingHandle,
    subject: str,
    payload: Any = None,
    *,
    entity_type: str = "",
    entity_id: str = "",
    idempotency_key: str = "",
    caused_by: str = "",
    source: str = "",
    occurred_at_ms: int = 0,
    schema_version: int | None = None,
    settings: Settings | None = None,
) -> str: ...
def publish_within(
    tx: Any,
    subject: str,
    payload: Any = None,
    *,
    entity_type: str = "",
    entity_id: str = "",
    idempotency_key: str = "",
    caused_by: str = "",
    source: str = "",
    occurred_at_ms: int = 0,
    schema_version: int | None = None,
    settings: Settings | None = None,
) -> str | Coroutine[Any, Any, str]:
    """Add an event to the open transaction of `tx` and return the event's id.

    The event is published if and only if that transaction commits. The payload is any JSON value or
    a `tape.payloads.Payload`, whose version the event then has. If the relay's limits are not the
    defaults, pass its `settings`.
    """
    said = NewEvent(
        "",
        entity_type=entity_type,
        entity_id=entity_id,
        idempotency_key=idempotency_key,
        caused_by=caused_by,
        source=source,
        occurred_at_ms=occurred_at_ms,
    )
    row = outbox_row(subject, payload, said, schema_version, (settings or Settings()).limits)
    return publish(adapt_caller(tx), row)


@overload
def processed_within(
    tx: AsyncHandle, consumer: str, message_id: str, *, settings: Settings | None = None
) -> Coroutine[Any, Any, bool]: ...
@overload
def processed_within(
    tx: BlockingHandle, consumer: str, message_id: str, *, settings: Settings | None = None
) -> bool: ...
def processed_within(
    tx: Any, consumer: str, message_id: str, *, settings: Settings | None = None
) -> Any:
    """Record in this transaction that a consumer handles a message.

    Returns True the first time, and False if the message was handled before.
    """
    return processed.note_processed(
        adapt_caller(tx), consumer, message_id, (settings or Settings()).limits
    )


@overload
def create_processed(
    tx: AsyncHandle,
) -> Coroutine[Any, Any, None]: ...
@overload
def create_processed(tx: BlockingHandle) -> None: ...
def create_processed(tx: Any) -> Any:
    """Create the table of `processed_within` in a database that is not Tape's, if it is missing."""
    return processed.create_processed(adapt_caller(tx))


@overload
def forget_processed(tx: AsyncHandle, *, older_than_s: float) -> Coroutine[Any, Any, int]: ...
@overload
def forget_processed(tx: BlockingHandle, *, older_than_s: float) -> int: ...
def forget_processed(tx: Any, *, older_than_s: float) -> Any:
    """Remove messages that were handled longer ago than `older_than_s`. Returns how many.

    Keep messages for longer than the broker may deliver them again.
    """
    return processed.forget_processed(adapt_caller(tx), older_than_s)
