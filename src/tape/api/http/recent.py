"""Entries that were: the newest first, and one by its place.

Every look is bounded: a page that ends early says where to go on.

A search whose predicate takes long has to wait for its turns, and many can wait at once. So none of
them holds a page of the journal meanwhile: it decides as much of it as it may, lets it go, waits,
and reads on from there, not much more than it decided before.
"""

import asyncio
import time
from collections import deque
from contextlib import suppress
from typing import Annotated

from fastapi import Query, Request, Response

from tape.api.http.door import Door
from tape.api.http.entry import ANSWER_BYTES, EntryReply, entry_record, json_response
from tape.api.http.fields import PAGE, PageSize, PathPosition, Position, Reply
from tape.api.http.filters import EntryFilter, FilterParams
from tape.api.http.routes import Routes, TheDoor
from tape.calls.role import Role
from tape.chains import read_entry
from tape.journal.follow import PredicateScan
from tape.journal.pacer import PacedTurns
from tape.model.entry import Entry
from tape.ports.ledger import RecentQuery
from tape.settings import KIB

routes = Routes("events")

LOOKS = 5
"""How many pages one request looks through for entries that pass its filters."""

LOOK_ENTRIES = 1_000
SCAN = 20_000
WAITED = 10
"""How many times longer than its own work a request waits for that of others."""

KEPT_BYTES = 256 * KIB
"""So much of what was found is kept while a request waits; with more its page ends."""


class RecentParams(FilterParams):
    limit: PageSize = PAGE
    before: Position = 0


class RecentReply(Reply):
    """The newest entry comes first.

    `before` is where to continue, null if no older entry is kept; a page can be short or empty and
    still have more behind it. A stream after `head_global_seq` gets the newer entries, and none
    twice. `skipped` counts entries for which `where` has no result; `error` is the last reason, or
    says that the page ends early because `where` takes too long.
    """

    events: list[EntryReply]
    before: int | None
    head_global_seq: int
    skipped: int
    error: str


@routes.add("GET", "/api/events/recent", role=Role.READ, reply=RecentReply)
async def list_recent(
    door: TheDoor, request: Request, params: Annotated[RecentParams, Query()]
) -> Response:
    """List the newest entries that match the filters."""
    turns = door.pacer.turns(door.client_of(request))
    search = await door.while_wanted(request.receive, _searched(door, params, turns))
    return json_response(
        {
            "events": [entry_record(entry) for entry in search.found],
            "before": search.before or None,
            "head_global_seq": search.head,
            "skipped": search.skipped,
            "error": search.error,
        }
    )


async def _searched(door: Door, params: RecentParams, turns: PacedTurns) -> "_Search":
    wanted = await EntryFilter.of(params, door.limits, door.checker)
    search = _Search(door, wanted, turns, params.limit)
    search.head = (await door.operations.info()).head_global_seq
    search.before = params.before or search.head + 1
    while not search.is_over:
        await search.look()
    return search


class _Search:
    """Looks backwards for entries, for as long as one request may."""

    def __init__(self, door: Door, wanted: EntryFilter, turns: PacedTurns, limit: int) -> None:
        self._door = door
        self._wanted = wanted
        self._turns = turns
        self._limit = limit
        self._size = 0
        self._until = time.monotonic() + WAITED * door.pacer.settings.request_s
        self._looks = 0
        self._width = LOOK_ENTRIES
        self.found: list[Entry] = []
        self.head = 0
        self.before = 0
        self.skipped = 0
        self.error = ""
        self.is_over = False

    async def look(self) -> None:
        """A page further back, or as much of it as may be decided now."""
        left = self._limit - len(self.found)
        deciding = PredicateScan(self._wanted.predicate, left)
        before: int | None = None
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, self._until - time.monotonic())):
                before = await self._decide(deciding, left)
        self.found += deciding.chosen
        self._size += sum(len(entry.payload_json) for entry in deciding.chosen)
        self.skipped += deciding.skipped
        self.error = deciding.error or self.error
        is_full = len(deciding.chosen) == left
        if is_full or before is None:
            self.before = deciding.last or self.before
        else:
            self.before = before
            self._looks += 1
        is_much = self._looks == LOOKS or self._size >= ANSWER_BYTES
        self.is_over = is_full or is_much or not self.before
        if before is None and not self.is_over:
            self._end_if_too_long()

    async def _decide(self, deciding: PredicateScan, left: int) -> int | None:
        """Where the page begins that was decided; None if it is not paid for to its end."""
        wanted, turns = self._wanted, self._turns
        recent = self._door.operations.ledger.recent
        query = RecentQuery(
            before=self.before,
            limit=self._width if wanted.narrows else left,
            prefix=wanted.pattern.prefix,
            scan=SCAN,
            max_bytes=max(1, ANSWER_BYTES - self._size),
            **wanted.exact,
        )
        if wanted.predicate.always_true:  # no predicate's turn has to be waited for
            page = await recent(query)
            deque(deciding.over(wanted.passing(page.entries)), maxlen=0)
            return page.before
        is_light = wanted.predicate.is_light
        await turns.until_paid(is_light=is_light)
        async with self._door.searching:
            page = await recent(query)
            size = sum(len(entry.payload_json) for entry in page.entries)
            turns.pay_for_reading(len(page.entries), size)
            work = deciding.over(wanted.passing(page.entries))
            if await turns.run_while_paid(work, is_light=is_light):
                self._width = min(LOOK_ENTRIES, 2 * self._width)
                return page.before
            decided = sum(entry.global_seq >= deciding.last for entry in page.entries)
            self._width = min(LOOK_ENTRIES, 2 * decided)
            return None

    def _end_if_too_long(self) -> None:
        allowed_s = self._door.pacer.settings.request_s
        has_waited = time.monotonic() >= self._until
        if has_waited or self._turns.used_s > allowed_s or self._size > KEPT_BYTES:
            self.is_over = True
            self.error = (
                f"the page ends early, because a request may take {allowed_s:g} s for `where`: "
                f"continue with before={self.before}, narrow the search, or use a simpler "
                f"`where`; {self.error}"
            )


@routes.add(
    "GET", "/api/events/{global_seq:int}", role=Role.READ, reply=EntryReply, refusals=(404,)
)
async def get_event(door: TheDoor, global_seq: PathPosition) -> Response:
    """Get one entry by its `global_seq`."""
    return json_response(entry_record(await read_entry(door.operations, global_seq)))
