"""Entries that were: the newest first, and one by its place.

Every look is bounded: a page that ends early says where to go on.
"""

from typing import Annotated

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


@routes.add("GET", "/api/events/recent", role=Role.READ, reply=RecentReply)
async def list_recent(door: TheDoor, params: Annotated[RecentParams, Query()]) -> Response:
    """The newest entries that pass the filters."""
    wanted = EntryFilter.of(params, door.limits)
    found: list[Entry] = []
    head = (await door.operations.info()).head_global_seq
    before, size = params.before or head + 1, 0
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
    return json_response(entry_record(await entry_at(door, global_seq)))


async def entry_at(door: Door, global_seq: int) -> Entry:
    if global_seq <= (await door.operations.info()).head_global_seq:
        query = RecentQuery(before=global_seq + 1, limit=1, scan=1)
        for entry in (await door.operations.ledger.recent(query)).entries:
            if entry.global_seq == global_seq:
                return entry
    raise NotFound(f"the journal has no entry {global_seq}, or keeps it no more")
