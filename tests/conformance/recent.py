"""The newest entries: backwards, filtered, in pages that meet, however much was removed."""

import pytest

from tape.model.event import NewEvent
from tape.ports.ledger import RecentQuery
from tape.ports.retention import PruneStep
from tape.ports.store import Store
from tests.conformance.playing import OpenStore, a_run, record, save_run

TRACE = "ab" * 16


async def numbers(store: Store, query: RecentQuery) -> list[list[int]]:
    """The pages of a query, each as the numbers of its entries."""
    pages = []
    while True:
        page = await store.ledger.read_recent(query)
        pages.append([entry.global_seq for entry in page.entries])
        if not page.before:
            return pages
        assert not query.before or page.before < query.before
        query = query._replace(before=page.before)


class RecentContract:
    async def test_the_newest_come_first_and_pages_meet(self, open_store: OpenStore) -> None:
        store = await open_store()
        assert await numbers(store, RecentQuery()) == [[]]
        await record(store, *(NewEvent(f"a.{n}") for n in range(1, 8)))
        assert await numbers(store, RecentQuery()) == [[7, 6, 5, 4, 3, 2, 1]]
        assert await numbers(store, RecentQuery(limit=3)) == [[7, 6, 5], [4, 3, 2], [1]]
        assert await numbers(store, RecentQuery(limit=7)) == [[7, 6, 5, 4, 3, 2, 1]]
        assert await numbers(store, RecentQuery(before=3)) == [[2, 1]]
        assert await numbers(store, RecentQuery(before=1)) == [[]]
        assert await numbers(store, RecentQuery(before=99)) == [[7, 6, 5, 4, 3, 2, 1]]
        (newest,) = (await store.ledger.read_recent(RecentQuery(limit=1))).entries
        assert (newest.event_type, newest.subject) == ("a.7", "/tape/event/recorded/a.7/_/_")

    async def test_each_filter_compares_whole(self, open_store: OpenStore) -> None:
        store = await open_store()
        first, second = await record(
            store,
            NewEvent("price.changed", entity_type="sku", entity_id="1", trace_id=TRACE),
            NewEvent("price.changed", entity_type="sku", entity_id="2", caused_by="cause"),
        )
        await record(store, NewEvent("order", entity_type="sk", entity_id="1", source="desk"))
        for query, expected in (
            (RecentQuery(event_type="price.changed"), [2, 1]),
            (RecentQuery(event_type="price"), []),
            (RecentQuery(entity_type="sku"), [2, 1]),
            (RecentQuery(entity_id="1"), [3, 1]),
            (RecentQuery(entity_type="sku", entity_id="1"), [1]),
            (RecentQuery(trace_id=TRACE), [1]),
            (RecentQuery(event_id=first.event_id), [1]),
            (RecentQuery(event_id=second.event_id), [2]),
            (RecentQuery(caused_by="cause"), [2]),
            (RecentQuery(source="desk"), [3]),
            (RecentQuery(source="des"), []),
            (RecentQuery(prefix="/tape/event/recorded/price"), [2, 1]),
            (RecentQuery(prefix="/tape/value"), []),
        ):
            assert await numbers(store, query) == [expected], query

    async def test_a_search_looks_at_no_more_than_it_was_told(self, open_store: OpenStore) -> None:
        store = await open_store()
        await record(store, NewEvent("rare"), *(NewEvent("often") for _ in range(9)))
        pages = await numbers(store, RecentQuery(event_type="rare", scan=4))
        assert pages == [[], [], [1]]

    async def test_pages_pass_over_what_was_pruned(self, open_store: OpenStore) -> None:
        store = await open_store()
        await save_run(store, a_run("r"))
        await record(store, NewEvent("kept", run_id="r", fencing_token=1))
        await record(store, *(NewEvent("gone") for _ in range(50)), NewEvent("new"))
        await store.retention.prune(PruneStep(0, 51, 100))
        assert await numbers(store, RecentQuery(scan=2)) == [[52], [1]]

    async def test_a_run_is_read_by_itself(self, open_store: OpenStore) -> None:
        store = await open_store()
        await save_run(store, a_run("r"))
        for n in range(5):
            await record(store, NewEvent("other"), NewEvent("mine", run_id="r", fencing_token=1))
            await record(store, NewEvent(f"odd.{n % 2}", run_id="r", fencing_token=1))
        mine = [15, 14, 12, 11, 9, 8, 6, 5, 3, 2]
        assert await numbers(store, RecentQuery(run_id="r", scan=1)) == [mine]
        assert await numbers(store, RecentQuery(run_id="r", limit=4))  == [
            mine[:4], mine[4:8], mine[8:],
        ]  # fmt: skip
        assert await numbers(store, RecentQuery(run_id="r", event_type="odd.1")) == [[12, 6]]
        assert await numbers(store, RecentQuery(run_id="none")) == [[]]

    @pytest.mark.parametrize("run_id", ["", "r"])
    async def test_a_page_ends_when_it_is_large_enough(
        self, open_store: OpenStore, run_id: str
    ) -> None:
        store = await open_store()
        await save_run(store, a_run("r"))
        large = '"' + "€" * 100 + '"'
        for _ in range(5):
            event = NewEvent("large", large, run_id=run_id, fencing_token=1 if run_id else 0)
            await record(store, event)
        query = RecentQuery(run_id=run_id, max_bytes=500)
        assert await numbers(store, query) == [[5, 4], [3, 2], [1]]
        assert await numbers(store, query._replace(max_bytes=1)) in (
            [[5], [4], [3], [2], [1]],
            [[5], [4], [3], [2], [1], []],
        )
