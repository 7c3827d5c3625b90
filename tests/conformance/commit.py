"""A commit is all or nothing, alone, and leaves the store fit for the next one."""

import asyncio
from collections.abc import Callable, Iterable

import pytest

from tape.errors import Closed, InvalidArgument, StoreFailed, TapeError
from tape.model.entry import EntryDraft
from tape.model.event import NewEvent
from tape.model.move import Need, State, save
from tape.model.run import RUNS
from tape.model.value import VALUES, ValueRow
from tape.ports.store import Store
from tests.conformance.playing import (
    IDS,
    OpenStore,
    SaveRows,
    a_run,
    attempt,
    load_run,
    play,
    read_all,
    record,
    recording,
    save_run,
)

INT64_MAX = 2**63 - 1
LARGE = 300  # stores may write many entries another way than few


def draft(**fields: object) -> EntryDraft:
    plain = EntryDraft(next(IDS), "event", "/tape/event/recorded/a/_/_", "null")
    return plain._replace(**fields)  # type: ignore[arg-type]


def value(key: str, **fields: object) -> ValueRow:
    return ValueRow("ns", key, "1", 1, 1, "", False, "")._replace(**fields)  # type: ignore[arg-type]


def writing(*drafts: EntryDraft, rows: Iterable[ValueRow] = ()) -> Callable[[State], None]:
    def decide(state: State) -> None:
        state.entries += drafts
        for row in rows:
            state.saves.setdefault(VALUES, {})[VALUES.key(row)] = row

    return decide


async def expect_working(store: Store, entries: int) -> None:
    """Nothing but `entries` is there, and both ways to write still work."""
    assert len(await read_all(store)) == entries
    await record(store, NewEvent("blind"))
    await record(store, NewEvent("looking", idempotency_key=next(IDS)))
    assert len(await read_all(store)) == entries + 2


ONE_NEED = [Need(VALUES, ("ns", "looked-at"))]
WAYS = pytest.mark.parametrize("needs", [[], ONE_NEED], ids=["blind", "looking"])


class CommitContract:
    @WAYS
    async def test_the_place_is_that_of_the_first_entry(
        self, open_store: OpenStore, needs: list[Need]
    ) -> None:
        store = await open_store()
        await record(store, NewEvent("before"))
        place = await store.commit(needs, writing(draft(), draft()))
        entries = await read_all(store)
        assert [entry.global_seq for entry in entries] == [1, 2, 3]
        assert place == (2, entries[1].ts_ms)
        assert entries[1].ts_ms == entries[2].ts_ms

    @WAYS
    async def test_a_commit_of_nothing_is_nothing(
        self, open_store: OpenStore, needs: list[Need]
    ) -> None:
        store = await open_store()
        await store.commit(needs, writing())
        assert store.head == 0
        await expect_working(store, 0)

    @WAYS
    async def test_decide_is_called_once(self, open_store: OpenStore, needs: list[Need]) -> None:
        store = await open_store()
        calls: list[State] = []
        await store.commit(needs, calls.append)
        assert len(calls) == 1

    async def test_a_look_is_given_the_clock_and_the_next_number(
        self, open_store: OpenStore
    ) -> None:
        store = await open_store()
        await record(store, NewEvent("a"))
        states: list[State] = []
        await store.commit(ONE_NEED, states.append)
        assert states[0].next_global_seq == 2
        assert states[0].now_ms > 1_600_000_000_000

    @WAYS
    @pytest.mark.parametrize("error", [RuntimeError("a bug"), InvalidArgument("a refusal")])
    async def test_what_decide_raises_arrives_and_nothing_is_written(
        self, open_store: OpenStore, needs: list[Need], error: Exception
    ) -> None:
        store = await open_store()

        def decide(state: State) -> None:
            writing(draft(), rows=[value("k")])(state)
            raise error

        with pytest.raises(type(error)) as caught:
            await store.commit(needs, decide)
        assert caught.value is error
        assert await store.values.get_value("ns", "k") is None
        assert store.head == 0
        await expect_working(store, 0)

    @WAYS
    @pytest.mark.parametrize(
        "fields",
        [
            {"payload_json": '"\ud800"'},
            {"idempotency_key": "\udfff"},
            {"occurred_at_ms": INT64_MAX + 1},
            {"occurred_at_ms": -INT64_MAX - 2},
        ],
        ids=["lone surrogate", "lone surrogate in a key", "above int64", "below int64"],
    )
    async def test_what_no_database_holds_is_refused_and_harms_nobody(
        self, open_store: OpenStore, needs: list[Need], fields: dict[str, object]
    ) -> None:
        store = await open_store()
        with pytest.raises(StoreFailed):
            await store.commit(needs, writing(draft(), draft(**fields)))
        await expect_working(store, 0)

    @WAYS
    @pytest.mark.parametrize(
        "fields",
        [
            {"payload_json": '"\ud800"'},
            {"occurred_at_ms": INT64_MAX + 1},
            {"idempotency_key": "used"},
        ],
        ids=["lone surrogate", "above int64", "key used before"],
    )
    async def test_one_bad_entry_among_many_is_refused_as_well(
        self, open_store: OpenStore, needs: list[Need], fields: dict[str, object]
    ) -> None:
        store = await open_store()
        await record(store, NewEvent("a", idempotency_key="used"))
        many = [draft() for _ in range(LARGE)]
        with pytest.raises(StoreFailed):
            await store.commit(needs, writing(*many, draft(**fields)))
        await expect_working(store, 1)

    async def test_a_row_that_no_database_holds_takes_its_entries_with_it(
        self, open_store: OpenStore
    ) -> None:
        store = await open_store()
        rows = [value("good"), value("bad", version=INT64_MAX + 1)]
        with pytest.raises(StoreFailed):
            await store.commit(ONE_NEED, writing(draft(), rows=rows))
        assert await store.values.get_value("ns", "good") is None
        await expect_working(store, 0)

    async def test_nul_is_kept_or_refused_but_never_cut(self, open_store: OpenStore) -> None:
        """The model lets no NUL through; a store that gets one must not store half a name."""
        store = await open_store()
        try:
            await store.commit([], writing(draft(source="a\0b")))
        except StoreFailed:
            await expect_working(store, 0)
        else:
            (entry,) = await read_all(store)
            assert entry.source == "a\0b"
            await expect_working(store, 1)

    @WAYS
    async def test_an_entry_that_breaks_a_rule_of_the_journal_takes_its_batch_with_it(
        self, open_store: OpenStore, needs: list[Need]
    ) -> None:
        store = await open_store()
        (first,) = await record(store, NewEvent("a", idempotency_key="used"))
        clashes = [
            (draft(run_id="r", seq=1), draft(run_id="r", seq=1)),
            (draft(), draft(idempotency_key="used")),
        ]
        for clash in clashes:
            with pytest.raises(StoreFailed):
                await store.commit(needs, writing(*clash))
        assert [e.event_id for e in await read_all(store)] == [first.event_id]
        await expect_working(store, 1)

    async def test_a_number_seen_is_never_given_again(self, open_store: OpenStore) -> None:
        store = await open_store()
        numbers = []
        for n in range(5):
            (recorded,) = await record(store, NewEvent("a", idempotency_key=f"k{n}"))
            numbers.append(recorded.global_seq)
            with pytest.raises(StoreFailed):
                await store.commit([], writing(draft(), draft(idempotency_key=f"k{n}")))
        assert numbers == sorted(set(numbers))
        assert [entry.global_seq for entry in await read_all(store)] == numbers

    @WAYS
    async def test_commits_of_one_store_at_once_take_turns(
        self, open_store: OpenStore, needs: list[Need]
    ) -> None:
        store = await open_store()
        places = await asyncio.gather(
            *(store.commit(needs, writing(draft(), draft())) for _ in range(20))
        )
        assert sorted(place.global_seq for place in places) == list(range(1, 41, 2))
        assert len(await read_all(store)) == 40

    @WAYS
    async def test_a_cancelled_commit_is_whole_or_absent(
        self, open_store: OpenStore, needs: list[Need]
    ) -> None:
        store = await open_store()
        for patience in range(12):
            await record(store, NewEvent("before"))
            task = asyncio.create_task(store.commit(needs, writing(draft(), draft())))
            for _ in range(patience):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await record(store, NewEvent("after"))
        entries = await read_all(store)
        assert entries[-1].event_type == "after"
        cut_off = [entry.global_seq for entry in entries if not entry.event_type]
        assert all(b == a + 1 for a, b in zip(cut_off[::2], cut_off[1::2], strict=True))

    async def test_rows_and_entries_come_together(self, open_store: OpenStore) -> None:
        store, other = await open_store(), await open_store()
        await store.commit(ONE_NEED, writing(draft(), rows=[value("k")]))
        assert len(await read_all(other)) == 1
        assert await other.values.get_value("ns", "k") == value("k").value

    async def test_a_later_move_of_a_batch_sees_an_earlier_one(self, open_store: OpenStore) -> None:
        store = await open_store()
        event = NewEvent("a", run_id="r", fencing_token=3)
        stale, _, fresh = await attempt(
            store, recording(event), SaveRows(save(RUNS, a_run("r", fencing_token=3))),
            recording(event),
        )  # fmt: skip
        assert isinstance(stale, TapeError)
        assert fresh[0].seq == 1
        run = await load_run(store, "r")
        assert run is not None
        assert run.seq_cursor == 1

    async def test_rows_at_the_bounds_of_int64(self, open_store: OpenStore) -> None:
        store = await open_store()
        run = a_run(
            "r", seq_cursor=INT64_MAX, fencing_token=INT64_MAX, started_at_ms=-INT64_MAX - 1
        )
        await save_run(store, run)
        assert await load_run(store, "r") == run

    @WAYS
    async def test_many_entries_come_back_as_few_do(
        self, open_store: OpenStore, needs: list[Need]
    ) -> None:
        store = await open_store()
        odd = draft(
            payload_json='"ä\\u0000\\n\\\\"',
            source="\\N\t,\"'",
            run_id="r",
            seq=3,
            occurred_at_ms=9,
        )
        many = [draft() for _ in range(LARGE)]
        place = await store.commit(needs, writing(*many, odd))
        entries = await read_all(store)
        assert [e.global_seq for e in entries] == list(range(1, LARGE + 2))
        assert [e.event_id for e in entries] == [d.event_id for d in (*many, odd)]
        assert {e.ts_ms for e in entries} == {place.ts_ms} == {entries[0].occurred_at_ms}
        last = entries[-1]
        assert (last.payload_json, last.source) == (odd.payload_json, odd.source)
        assert (last.run_id, last.seq, last.occurred_at_ms) == ("r", 3, 9)
        assert (entries[0].run_id, entries[0].seq, entries[0].idempotency_key) == ("", 0, "")
        assert store.head == LARGE + 1

    async def test_a_closed_store_says_so(self, open_store: OpenStore) -> None:
        store = await open_store()
        await record(store, NewEvent("a"))
        await store.close()
        for use in (
            store.commit([], writing(draft())),
            store.commit(ONE_NEED, writing(draft())),
            store.values.get_value("ns", "k"),
            store.read_run("r", 0, 1),
            store.info(),
            store.await_beyond(1),
        ):
            with pytest.raises(Closed):
                await use
        await store.close()

    async def test_reads_under_way_end_before_or_with_the_store(
        self, open_store: OpenStore
    ) -> None:
        store = await open_store()
        await record(store, NewEvent("a"))
        reading = [asyncio.create_task(store.info()) for _ in range(20)]
        await asyncio.sleep(0)
        await store.close()
        outcomes = await asyncio.gather(*reading, return_exceptions=True)
        faults = [one for one in outcomes if isinstance(one, BaseException)]
        assert all(isinstance(one, TapeError) for one in faults)

    async def test_a_large_batch_is_one_commit(self, open_store: OpenStore) -> None:
        store = await open_store()
        moves = [
            recording(NewEvent("e", idempotency_key=f"k{n}" if n % 2 else "")) for n in range(2000)
        ]
        outcomes = await attempt(store, *moves)
        assert [one.global_seq for (one,) in outcomes] == list(range(1, 2001))
        assert await play(store, moves[1]) == [outcomes[1][0]._replace(duplicate=True)]
