"""Entries for tests of a store alone."""

from tape.journal.ids import UlidFactory
from tape.journal.writer import Writer
from tape.model.event import NewEvent, RecordEvents
from tape.ports.store import Store
from tape.settings import Limits, WriterSettings


async def record_numbers(store: Store, count: int) -> None:
    """Events whose payloads count from 0."""
    events = [NewEvent("numbered", f'{{"n": {number}}}') for number in range(count)]
    writer = Writer(store, WriterSettings())
    try:
        await writer.submit(RecordEvents(events, UlidFactory().take(count), Limits()))
    finally:
        await writer.close()
