"""Entries that were: the newest first, and one by its place.

Every look is bounded: a page that ends early says where to go on.
"""

import time
from collections import deque
from collections.abc import Iterator
from typing import Annotated

from fastapi import Query, Request, Response

from tape.api.auth import Role
from tape.api.http.door import Door
from tape.api.http.entry import ANSWER_BYTES, EntryReply, entry_record, json_response
from tape.api.http.fields import PAGE, PageSize, PathPosition, Position, Reply
from tape.api.http.filters import EntryFilter, FilterParams
from tape.api.http.routes import Routes, TheDoor
from tape.errors import NotFound
from tape.journal.follow import Deciding
from tape.journal.pacer import Turns
from tape.model.entry import Entry
from tape.ports.ledger import RecentEntries, RecentQuery

routes = Routes("events")

LOOKS = 5
"""How many pages one request looks through for entries that pass its filters."""

LOOK_ENTRIES = 1_000
SCAN = 20_000
LOOK_UP_S = 0.05
"""How often one that takes long looks whether it may go on."""

WAITED = 10
"""How many times longer than its own work a request waits for that of others."""


class RecentParams(FilterParams):
    limit: PageSize = PAGE
    before: Position = 0


class RecentReply(Reply):
    """Newest first. `before` is where to go on, null if nothing older is kept; a page can be short
    or empty and still have more behind it. Whoever streams after `head_global_seq` gets what has
    come since, and nothing twice. `skipped` entries could not be decided by `where`, `error` is
    the last reason, or that the page ends early because `where` takes too long.
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
    """The newest entries that pass the filters."""
    search = await door.while_wanted(request.receive, _searched(door, params))
    return json_response(
        {
            "events": [entry_record(entry) for entry in search.found],
            "before": search.before or None,
            "head_global_seq": search.head,
            "skipped": search.skipped,
            "error": search.error,
        }
    )


async def _searched(door: Door, params: RecentParams) -> "_Search":
    turns = door.pacer.turns()
    wanted = await EntryFilter.of(params, door.limits, door.checker)
    search = _Search(door, wanted, turns, params.limit)
    search.head = (await door.operations.info()).head_global_seq
    search.before = params.before or search.head + 1
    for _ in range(LOOKS):
        await search.look()
        if search.is_over:
            break
    return search


class _Search:
    """Looks backwards for entries, for as long as one request may."""

    def __init__(self, door: Door, wanted: EntryFilter, turns: Turns, limit: int) -> None:
        self._door = door
        self._wanted = wanted
        self._turns = turns
        self._limit = limit
        self._size = 0
        self._until = time.monotonic() + WAITED * door.pacer.settings.request_s
        self.found: list[Entry] = []
        self.head = 0
        self.before = 0
        self.skipped = 0
        self.error = ""
        self.is_over = False

    async def look(self) -> None:
        """One page further back."""
        wanted, left = self._wanted, self._limit - len(self.found)
        query = RecentQuery(
            before=self.before,
            limit=LOOK_ENTRIES if wanted.narrows else left,
            prefix=wanted.pattern.prefix,
            scan=SCAN,
            max_bytes=max(1, ANSWER_BYTES - self._size),
            **wanted.exact,
        )
        page = await self._read(query)
        deciding = Deciding(wanted.predicate, left)
        is_early = not await self._decide(deciding.over(wanted.passing(page.entries)))
        self.found += deciding.chosen
        self._size += sum(len(entry.payload_json) for entry in deciding.chosen)
        self.skipped += deciding.skipped
        self.error = deciding.error or self.error
        is_cut = is_early or len(deciding.chosen) == left
        self.before = deciding.last if is_cut else page.before
        if is_early:
            seconds = self._door.pacer.settings.request_s
            self.error = (
                f"the page ends early, `where` took more than the {seconds:g} s that it may: go on "
                f"with before={self.before}, narrow the search, or ask for less; {self.error}"
            )
        self.is_over = is_cut or not self.before or self._size >= ANSWER_BYTES

    async def _read(self, query: RecentQuery) -> RecentEntries:
        """A page. One that a predicate is to decide about is paid for."""
        recent = self._door.operations.ledger.recent
        if self._wanted.predicate.always_true:
            return await recent(query)
        async with self._door.searching:
            await self._turns.until_paid()
            page = await recent(query)
        size = sum(len(entry.payload_json) for entry in page.entries)
        await self._turns.pay_for_reading(len(page.entries), size)
        return page

    async def _decide(self, work: Iterator[int]) -> bool:
        """Whether it came to its end within what a request may take."""
        if self._wanted.predicate.always_true:  # no predicate's turn has to be waited for
            deque(work, maxlen=0)
            return True
        allowed_s = self._door.pacer.settings.request_s
        while not await self._turns.run(work, LOOK_UP_S, is_light=self._wanted.predicate.is_light):
            if self._turns.used_s > allowed_s or time.monotonic() > self._until:
                return False
        return True


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
