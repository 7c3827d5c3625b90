"""Reading the journal back: numbers, filters, limits, and what `through` promises."""

import pytest

from tape.errors import NotFound
from tape.model.event import NewEvent
from tape.ports.store import ReadEntries
from tests.conformance.playing import (
    IDS,
    MANY,
    OpenStore,
    a_run,
    attempt,
    play,
    read_all,
    record,
    recording,
    save_run,
)

INT64_MAX = 2**63 - 1
MIB = 1 << 20


def page(after: int, upto: int, limit: int = MANY, max_bytes: int = MIB) -> ReadEntries:
    return ReadEntries(after, upto, limit, max_bytes)


class JournalContract:
    async def test_a_new_journal_is_empty(self, open_store: OpenStore) -> None:
        store = await open_store()
        info = await store.info()
        assert store.head == 0
        assert (info.first_global_seq, info.head_global_seq) == (0, 0)
        assert info.migration >= 1
        assert await store.read_entries(page(0, 0)) == ([], 0)

    async def test_numbering_starts_at_one_and_has_no_gaps(self, open_store: OpenStore) -> None:
        store = await open_store()
        first = await record(store, NewEvent("a"))
        more = await record(store, NewEvent("b"), NewEvent("c"))
        assert [r.global_seq for r in first + more] == [1, 2, 3]
        assert store.head == 3
        info = await store.info()
        assert (info.first_global_seq, info.head_global_seq) == (1, 3)

    async def test_numbers_go_on_in_a_store_opened_later(self, open_store: OpenStore) -> None:
        await record(await open_store(), NewEvent("a"))
        later = await open_store()
        assert later.head == 1
        (recorded,) = await record(later, NewEvent("b"))
        assert recorded.global_seq == 2

    async def test_an_entry_comes_back_as_it_was_written(self, open_store: OpenStore) -> None:
        store = await open_store()
        event = NewEvent(
            "order.paid", '{"ä": "€\\u0000 😀"}', "order", "o/1 ä", "key ü", "cause", "shop",
            1234, 32767, "", 0, "a" * 32, "b" * 16, "c" * 16,
        )  # fmt: skip
        (recorded,) = await record(store, event)
        (entry,) = await read_all(store)
        assert entry.global_seq == recorded.global_seq
        assert entry.event_id == recorded.event_id
        assert (entry.run_id, entry.seq, entry.kind) == ("", 0, "event")
        assert entry.subject == "/tape/event/recorded/order.paid/order/o%2F1%20%C3%A4"
        assert entry.ts_ms > 1_600_000_000_000
        for field in (
            "payload_json", "event_type", "entity_type", "entity_id", "caused_by", "source",
            "occurred_at_ms", "schema_version", "trace_id", "span_id", "parent_span_id",
            "idempotency_key",
        ):  # fmt: skip
            assert getattr(entry, field) == getattr(event, field)

    async def test_time_of_recording_stands_in_for_time_of_occurrence(
        self, open_store: OpenStore
    ) -> None:
        store = await open_store()
        await record(store, NewEvent("a"))
        (entry,) = await read_all(store)
        assert entry.occurred_at_ms == entry.ts_ms

    async def test_the_largest_integer_is_kept(self, open_store: OpenStore) -> None:
        store = await open_store()
        await record(store, NewEvent("a", occurred_at_ms=INT64_MAX))
        (entry,) = await read_all(store)
        assert entry.occurred_at_ms == INT64_MAX

    @pytest.mark.parametrize("character", ["x", "€", "😀"])
    async def test_a_payload_of_a_mebibyte_is_kept(
        self, open_store: OpenStore, character: str
    ) -> None:
        store = await open_store()
        room = MIB - 2
        payload = '"' + character * (room // len(character.encode())) + '"'
        await record(store, NewEvent("large", payload))
        (entry,) = await read_all(store)
        assert entry.payload_json == payload

    async def test_a_range_is_open_below_and_closed_above(self, open_store: OpenStore) -> None:
        store = await open_store()
        await record(store, *[NewEvent(f"e{n}") for n in range(1, 6)])
        found = await store.read_entries(page(1, 4))
        assert [e.global_seq for e in found.entries] == [2, 3, 4]
        assert found.through == 4

    @pytest.mark.parametrize(
        ("limit", "numbers", "through"),
        [(1, [1], 1), (2, [1, 2], 2), (3, [1, 2, 3], 3), (4, [1, 2, 3], 3)],
    )
    async def test_a_limit_cuts_exactly(
        self, open_store: OpenStore, limit: int, numbers: list[int], through: int
    ) -> None:
        store = await open_store()
        await record(store, *[NewEvent("e") for _ in range(3)])
        found = await store.read_entries(page(0, 3, limit))
        assert [e.global_seq for e in found.entries] == numbers
        assert found.through == through

    @pytest.mark.parametrize("payload", ['"abcdefgh"', '"ää€"', '"😀😀"'])
    @pytest.mark.parametrize(
        ("budget", "count"), [(1, 1), (9, 1), (10, 1), (11, 2), (20, 2), (21, 3), (30, 3)]
    )
    async def test_the_budget_counts_bytes_and_ends_with_the_entry_that_reaches_it(
        self, open_store: OpenStore, payload: str, budget: int, count: int
    ) -> None:
        assert len(payload.encode()) in (9, 10)
        payload = payload.ljust(10 - len(payload.encode()) + len(payload))
        store = await open_store()
        await record(store, *[NewEvent("e", payload) for _ in range(4)])
        found = await store.read_entries(page(0, 4, max_bytes=budget))
        assert len(found.entries) == count
        assert found.through == count
        assert all(entry.payload_json == payload for entry in found.entries)

    async def test_a_budget_that_is_not_reached_reads_through_to_the_end(
        self, open_store: OpenStore
    ) -> None:
        store = await open_store()
        await record(store, *[NewEvent("e", '"abcdefgh"') for _ in range(4)])
        found = await store.read_entries(page(0, 4, max_bytes=41))
        assert (len(found.entries), found.through) == (4, 4)

    async def test_pages_of_any_size_add_up(self, open_store: OpenStore) -> None:
        store = await open_store()
        await record(store, *[NewEvent("e", f'"{"€" * n}"') for n in range(20)])
        for limit, budget in [(1, MIB), (7, MIB), (MANY, 1), (MANY, 50), (3, 40), (20, MIB)]:
            seen: list[int] = []
            cursor = 0
            while cursor < 20:
                found = await store.read_entries(page(cursor, 20, limit, budget))
                assert found.through > cursor
                seen += [entry.global_seq for entry in found.entries]
                cursor = found.through
            assert seen == list(range(1, 21))

    async def test_filters_are_anded_and_read_through_what_they_leave_out(
        self, open_store: OpenStore
    ) -> None:
        store = await open_store()
        await save_run(store, a_run("r1"))
        await record(
            store, NewEvent("a"), NewEvent("b"), NewEvent("a", run_id="r1", fencing_token=1)
        )
        await record(store, NewEvent("ab"))
        every = await read_all(store)
        prefix = "/tape/event/recorded/a/"

        async def numbers(**filters: object) -> list[int]:
            found = await store.read_entries(page(0, 4)._replace(**filters))  # type: ignore[arg-type]
            assert found.through == 4
            return [entry.global_seq for entry in found.entries]

        assert await numbers() == [1, 2, 3, 4]
        assert await numbers(prefix=prefix) == [1, 3]
        assert await numbers(prefix="/tape/event") == [1, 2, 3, 4]
        assert await numbers(prefix="/tape/value") == []
        assert await numbers(kind="event") == [1, 2, 3, 4]
        assert await numbers(kind="value") == []
        assert await numbers(run_id="r1") == [3]
        assert await numbers(run_id="r1", prefix=prefix) == [3]
        assert await numbers(run_id="r1", prefix="/tape/event/recorded/b/") == []
        assert await numbers(from_ts_ms=every[0].ts_ms) == [1, 2, 3, 4]
        assert await numbers(from_ts_ms=every[-1].ts_ms + 1) == []

    async def test_a_limit_counts_only_what_passes_the_filters(self, open_store: OpenStore) -> None:
        store = await open_store()
        await record(store, *[NewEvent("odd" if n % 2 else "even") for n in range(1, 9)])
        query = page(0, 8, 2)._replace(prefix="/tape/event/recorded/even/")
        found = await store.read_entries(query)
        assert [entry.global_seq for entry in found.entries] == [2, 4]
        assert found.through == 4
        rest = await store.read_entries(query._replace(after=4, limit=3))
        assert [entry.global_seq for entry in rest.entries] == [6, 8]
        assert rest.through == 8

    async def test_subjects_compare_by_code_point(self, open_store: OpenStore) -> None:
        """A prefix is a range of subjects; a locale's collation would move `-` and capitals."""
        store = await open_store()
        await record(store, *[NewEvent(t) for t in ("a-b", "a.b", "A-b", "aB", "ab", "a~b")])
        found = await store.read_entries(
            page(0, 6)._replace(prefix="/tape/event/recorded/a-"),
        )
        assert [entry.event_type for entry in found.entries] == ["a-b"]
        found = await store.read_entries(
            page(0, 6)._replace(prefix="/tape/event/recorded/a"),
        )
        assert [e.event_type for e in found.entries] == ["a-b", "a.b", "aB", "ab", "a~b"]

    async def test_refusals_leave_the_rest_of_a_batch_alone(self, open_store: OpenStore) -> None:
        store = await open_store()
        good, bad, after = await attempt(
            store,
            recording(NewEvent("a")),
            recording(NewEvent("b", run_id="nobody", fencing_token=1)),
            recording(NewEvent("c")),
        )
        assert isinstance(bad, NotFound)
        assert [good[0].global_seq, after[0].global_seq] == [1, 2]
        assert [entry.event_type for entry in await read_all(store)] == ["a", "c"]

    async def test_event_ids_keep_the_order_of_one_process(self, open_store: OpenStore) -> None:
        store = await open_store()
        early = next(IDS)
        await play(store, recording(*[NewEvent("e") for _ in range(50)]))
        ids = [entry.event_id for entry in await read_all(store)]
        assert ids == sorted(set(ids))
        assert early < ids[0]
