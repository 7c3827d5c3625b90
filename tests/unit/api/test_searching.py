"""Searches that have to wait: they hold no page of the journal meanwhile, and do not wait long."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from weakref import finalize

import pytest

from tape.api.auth import Tokens
from tape.api.http import recent
from tape.api.http.door import SEARCHING, Door
from tape.api.http.recent import KEPT_BYTES, RecentParams, _Search, _searched
from tape.journal.pacer import Pacer
from tape.ports.ledger import RecentEntries, RecentQuery
from tape.settings import PredicateSettings
from tests.crash.predicate_attacks import ATTACKS
from tests.unit.reactions.test_rules import an_entry

HEAD = 500
COSTLY = ATTACKS[0].where


class Entries(list[Any]):
    """So that it is seen when nobody holds it any more."""


class Journal:
    """Tells how many pages of it were held at once, and how many entries were read."""

    def __init__(self, payload_json: str = "{}") -> None:
        self.payload_json = payload_json
        self.held = self.most_held = 0
        self.read: list[int] = []

    async def recent(self, query: RecentQuery) -> RecentEntries:
        last = max(0, query.before - 1 - query.limit)
        found = Entries(
            an_entry(n, payload_json=self.payload_json) for n in range(query.before - 1, last, -1)
        )
        finalize(found, self._let_go)
        self.held += 1
        self.most_held = max(self.most_held, self.held)
        self.read.append(len(found))
        await asyncio.sleep(0)
        return RecentEntries(found, last + 1 if last else 0)

    def _let_go(self) -> None:
        self.held -= 1

    async def refresh(self) -> None: ...

    async def info(self) -> Any:
        return SimpleNamespace(head_global_seq=HEAD)


QUICK = PredicateSettings(share=0.000_1, request_s=0.1)


async def searched(
    journal: Journal, where: str, count: int, limit: int = 5, settings: PredicateSettings = QUICK
) -> list[_Search]:
    pacer = Pacer(settings)
    operations = SimpleNamespace(info=journal.info, ledger=journal)
    door = Door(cast("Any", operations), Tokens(), journal.refresh, pacer=pacer)
    params = RecentParams(where=where, limit=limit)
    async with asyncio.timeout(60):
        searches = [_searched(door, params, pacer.turns("reader")) for _ in range(count)]
        found = await asyncio.gather(*searches)
    pacer.close()
    return found


async def test_searches_that_wait_hold_no_pages_and_end() -> None:
    journal = Journal()
    found = await searched(journal, COSTLY, count=20)
    assert journal.most_held <= SEARCHING + 1  # a thread may be just about to let go of one
    assert all("the page ends early" in search.error for search in found)
    assert all(search.before > 1 for search in found)


async def test_what_is_read_again_is_not_much_more_than_was_decided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recent, "WAITED", 1_000)  # busy cores give a search its turns late
    journal = Journal()
    settings = PredicateSettings(share=0.3, request_s=0.2)
    await searched(journal, COSTLY, count=1, settings=settings)
    assert journal.read[0] == HEAD
    assert len(journal.read) > 2
    assert max(journal.read[1:]) < HEAD / 10


async def test_a_search_that_has_found_much_ends_its_page_instead_of_waiting() -> None:
    where = "payload.n == 1 || payload.s.contains('y')"
    large = Journal(f'{{"n":1,"s":"{"x" * KEPT_BYTES}"}}')
    settings = PredicateSettings(share=0.000_1, slice_s=0.0)  # one entry at a time
    (search,) = await searched(large, where, count=1, limit=400, settings=settings)
    assert 0 < len(search.found) < 400
    assert search.before == search.found[-1].global_seq
    assert "the page ends early" in search.error


async def test_a_quick_search_goes_through_whole_pages() -> None:
    journal = Journal()
    (search,) = await searched(journal, "global_seq < 3", count=1)
    assert [entry.global_seq for entry in search.found] == [2, 1]
    assert (journal.read, search.error, search.before) == ([HEAD], "", 0)
