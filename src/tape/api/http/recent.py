"""Entries that were: the newest first, one by its place, and what led to what.

Every look is bounded: a page that ends early says where to go on, and a chain says so when it may
not be whole.
"""

import re
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import Query, Response

from tape.api.auth import Role
from tape.api.http.door import Door
from tape.api.http.entry import ANSWER_BYTES, EntryReply, entry_record, json_response
from tape.api.http.fields import PAGE, PageSize, PathPosition, Position, Reply
from tape.api.http.filters import EntryFilter, FilterParams
from tape.api.http.routes import Routes, TheDoor
from tape.errors import NotFound
from tape.model.entry import Entry
from tape.ports.ledger import RecentQuery

routes = Routes("events")

LOOKS = 5
"""How many pages one request looks through for entries that pass its filters."""

LOOK_ENTRIES = 1_000
SCAN = 20_000
CAUSES = 20
RELATED = 200
CHAIN_SCAN = 50_000
_ULID = re.compile(r"(?:^|[:/])([0-9A-HJKMNP-TV-Z]{26})$")


class RecentParams(FilterParams):
    limit: PageSize = PAGE
    before: Position = 0


class RecentReply(Reply):
    """Newest first. `before` is where to go on, null if nothing older is kept; a page can be short
    or empty and still have more behind it. Whoever streams after `head_global_seq` gets what has
    come since, and nothing twice. `skipped` entries could not be decided by `where`, `error` is
    the last reason.
    """

    events: list[EntryReply]
    before: int | None
    head_global_seq: int
    skipped: int
    error: str


class ChainReply(Reply):
    """`causes` from the nearest to the first; `effects` and `trace` in the order of the journal.
    `complete` is false if there may be more than was looked through.
    """

    event: EntryReply
    causes: list[EntryReply]
    effects: list[EntryReply]
    trace: list[EntryReply]
    complete: bool


@routes.add("GET", "/api/events/recent", role=Role.READ, reply=RecentReply)
async def list_recent(door: TheDoor, params: Annotated[RecentParams, Query()]) -> Response:
    """The newest entries that pass the filters."""
    wanted = EntryFilter.of(params, door.limits)
    found: list[Entry] = []
    head = (await door.operations.info()).head_global_seq
    before, size = min(params.before or head + 1, head + 1), 0
    for _ in range(LOOKS):
        left = params.limit - len(found)
        page = await door.operations.ledger.recent(
            RecentQuery(
                before=before,
                limit=LOOK_ENTRIES if wanted.narrows else left,
                prefix=wanted.pattern.prefix,
                scan=SCAN,
                max_bytes=max(1, ANSWER_BYTES - size),
                **wanted.exact,
            )
        )
        chosen = wanted.chosen(page.entries)
        found += chosen[:left]
        size += sum(len(entry.payload_json) for entry in chosen[:left])
        before = found[-1].global_seq if len(chosen) > left else page.before
        if len(found) == params.limit or not before or size >= ANSWER_BYTES:
            break
    return json_response(
        {
            "events": [entry_record(entry) for entry in found],
            "before": before or None,
            "head_global_seq": head,
            "skipped": wanted.skipped,
            "error": wanted.error,
        }
    )


@routes.add(
    "GET", "/api/events/{global_seq:int}", role=Role.READ, reply=EntryReply, refusals=(404,)
)
async def get_event(door: TheDoor, global_seq: PathPosition) -> Response:
    """One entry by its place in the journal."""
    return json_response(entry_record(await _entry(door, global_seq)))


@routes.add(
    "GET", "/api/events/{global_seq:int}/chain", role=Role.READ, reply=ChainReply, refusals=(404,)
)
async def get_chain(door: TheDoor, global_seq: PathPosition) -> Response:
    """What led to an entry, what it led to, and what else is in its trace."""
    entry = await _entry(door, global_seq)
    causes, complete = await _causes(door, entry)
    effects: Sequence[Entry] = ()
    trace: Sequence[Entry] = ()
    if entry.event_id:
        after = RecentQuery(entry.global_seq + CHAIN_SCAN, RELATED, caused_by=entry.event_id)
        effects = await _related(door, after)
    if entry.trace_id:
        around = RecentQuery(entry.global_seq + CHAIN_SCAN // 2, RELATED, trace_id=entry.trace_id)
        trace = await _related(door, around)
    head = (await door.operations.info()).head_global_seq
    near = head < entry.global_seq + CHAIN_SCAN // 2
    return json_response(
        {
            "event": entry_record(entry),
            "causes": _records(causes),
            "effects": _records(effects),
            "trace": _records(trace),
            "complete": complete and near and max(len(effects), len(trace)) < RELATED,
        }
    )


async def _entry(door: Door, global_seq: int) -> Entry:
    query = RecentQuery(before=global_seq + 1, limit=1, scan=1)
    for entry in (await door.operations.ledger.recent(query)).entries:
        if entry.global_seq == global_seq:
            return entry
    raise NotFound(f"the journal has no entry {global_seq}, or keeps it no more")


async def _causes(door: Door, entry: Entry) -> tuple[list[Entry], bool]:
    """From the nearest to the first, and whether the first is among them."""
    causes: list[Entry] = []
    while found := _ULID.search(entry.caused_by):
        if len(causes) == CAUSES:
            return causes, False
        query = RecentQuery(entry.global_seq, 1, event_id=found[1], scan=CHAIN_SCAN)
        page = await door.operations.ledger.recent(query)
        if not page.entries:
            return causes, not page.before
        entry = page.entries[0]
        causes.append(entry)
    return causes, True


async def _related(door: Door, query: RecentQuery) -> list[Entry]:
    page = await door.operations.ledger.recent(query._replace(scan=CHAIN_SCAN))
    return page.entries[::-1]


def _records(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    return [entry_record(entry) for entry in entries]
