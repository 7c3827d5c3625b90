"""The outbox: promoted once, published by one leader at a time, in the journal's order."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import pytest

from tape.errors import InvalidArgument, NotFound, NotLeading
from tape.model.event import NewEvent
from tape.model.outbox import NATS_RELAY, OutboxRow, SkipOutboxRow
from tape.model.promote import PromoteOutbox
from tape.model.relay import ResignRelay
from tape.ports.outbox import Lead, OutboxLeader
from tape.ports.store import Store
from tests.conformance.playing import IDS, LIMITS, MANY, OpenStore, play, read_all, record

BOUND_S = 20.0
HUNG_S = 3.0
"""A leader that is silent for so long is replaced. Busy cores do not hold one up for as long."""
KEY = 4242


class Appended(NamedTuple):
    """A row as a producer writes it, in a transaction of its own."""

    subject: str
    payload_json: str = "{}"
    event_id: str = ""
    idempotency_key: str | None = None


AppendRows = Callable[[Sequence[Appended]], None]
"""Writes rows as another program would, in one transaction; they are committed when it returns."""

RunElsewhere = Callable[[Callable[[Store], Awaitable[None]]], None]
"""Works with another store on another event loop, and blocks until that is done."""


def ulid(number: int) -> str:
    """An event's id that a test can name."""
    return f"01JZ{number:022d}"


def a_lead(owner: str, hung_s: float = 60.0, relay: str = NATS_RELAY) -> Lead:
    return Lead(relay, owner, KEY, hung_s, next(IDS))


async def lead(store: Store, owner: str, hung_s: float = 60.0) -> OutboxLeader:
    leader = await store.outbox.lead_outbox(a_lead(owner, hung_s))
    assert leader is not None
    return leader


async def promote(store: Store, leader: OutboxLeader) -> int:
    rows = await leader.read_unpromoted(MANY)
    return (await play(store, PromoteOutbox(rows, LIMITS))).promoted


async def lead_when_free(store: Store) -> None:
    """Ask to lead until it is so, then let go."""
    async with asyncio.timeout(BOUND_S):
        while (leader := await store.outbox.lead_outbox(a_lead("b"))) is None:  # noqa: ASYNC110 - only asking tells
            await asyncio.sleep(0.02)
    await leader.release()


async def expect_lost(leader: OutboxLeader) -> None:
    for attempt in (
        leader.mark_published([1]),
        leader.confirm(),
        leader.read_unpublished(1),
        leader.read_unpromoted(1),
        leader.note_failure(1, "x"),
        leader.forget_published(0, 1),
        leader.forget_promoted(0, 1),
        leader.forget_repeats(0, 1),
        leader.wait(0),
    ):
        with pytest.raises(NotLeading):
            await attempt


def expect_certain(leader: OutboxLeader, *, certain: bool) -> None:
    assert leader.is_certain is certain


class OutboxContract:
    async def test_one_leads_and_each_term_is_on_the_journal(self, open_store: OpenStore) -> None:
        store, other = await open_store(), await open_store()
        first = await lead(store, "a")
        assert (first.term.term, first.term.owner) == (1, "a")
        assert await other.outbox.lead_outbox(a_lead("b")) is None
        assert await store.outbox.lead_outbox(a_lead("b")) is None
        assert await play(store, ResignRelay(first.term, "enough", next(IDS)))
        await first.release()
        second = await lead(other, "b")
        assert second.term.term == 2
        assert not await play(store, ResignRelay(first.term, "late", next(IDS)))
        told = [(e.subject, e.payload["term"], e.payload["owner"]) for e in await read_all(store)]
        assert told == [
            ("/tape/relay/elected/nats", 1, "a"),
            ("/tape/relay/resigned/nats", 1, "a"),
            ("/tape/relay/elected/nats", 2, "b"),
        ]
        (term,) = (await store.outbox.read_outbox_status(1)).terms
        assert (term.relay, term.term, term.owner) == ("nats", 2, "b")
        await second.release()

    async def test_relays_of_other_names_do_not_keep_each_other_out(
        self, open_store: OpenStore
    ) -> None:
        store = await open_store()
        first = await lead(store, "a")
        second = await store.outbox.lead_outbox(
            a_lead("a", relay="journal")._replace(lock_key=KEY + 1)
        )
        assert second is not None
        for leader in (first, second):
            await leader.release()

    async def test_a_leader_that_hangs_is_replaced_and_can_do_nothing_more(
        self, open_store: OpenStore, append_rows: AppendRows, run_elsewhere: RunElsewhere
    ) -> None:
        store = await open_store()
        leader = await lead(store, "a", HUNG_S)
        append_rows([Appended("a.b")])
        await promote(store, leader)
        expect_certain(leader, certain=True)
        run_elsewhere(lead_when_free)  # this event loop stands still meanwhile, heartbeats and all
        expect_certain(leader, certain=False)
        await expect_lost(leader)
        await leader.release()
        next_one = await lead(store, "c")
        assert [row.subject for row in await next_one.read_unpublished(MANY)] == ["a.b"]
        assert next_one.term.term == 3
        await next_one.release()

    async def test_a_leader_that_is_heard_of_stays(self, open_store: OpenStore) -> None:
        store, other = await open_store(), await open_store()
        leader = await lead(store, "a", HUNG_S)
        loop = asyncio.get_running_loop()
        ends = loop.time() + 1.2 * HUNG_S
        while loop.time() < ends:
            await leader.read_unpromoted(1)  # or it would hear at once of what was there before
            await leader.wait(HUNG_S / 5)
            assert await other.outbox.lead_outbox(a_lead("b")) is None
        await leader.confirm()
        await leader.release()

    async def test_rows_are_promoted_by_id_and_read_by_their_place(
        self, open_store: OpenStore, append_rows: AppendRows
    ) -> None:
        store = await open_store()
        leader = await lead(store, "a")
        append_rows([Appended("a.x", '{"n": 1}', ulid(1)), Appended("b", '"two"', ulid(2))])
        append_rows([Appended("a.x", "3", ulid(3))])
        unpromoted = await leader.read_unpromoted(MANY)
        assert [row.global_seq for row in unpromoted] == [0, 0, 0]
        assert await leader.read_unpublished(MANY) == []
        later, *earlier = reversed(unpromoted)  # whatever the order in which they are given
        assert (await play(store, PromoteOutbox([later, *earlier], LIMITS))).promoted == 3
        rows = await leader.read_unpublished(MANY)
        assert [(row.event_id, row.global_seq) for row in rows] == [
            (ulid(1), 2),
            (ulid(2), 3),
            (ulid(3), 4),
        ]
        _, *events = await read_all(store)
        assert [(e.event_id, e.event_type, e.payload_json) for e in events] == [
            (ulid(1), "a.x", '{"n": 1}'), (ulid(2), "b", '"two"'), (ulid(3), "a.x", "3"),
        ]  # fmt: skip
        assert [row.id for row in await leader.read_unpublished(MANY, ["a.x"])] == [rows[1].id]
        assert [row.id for row in await leader.read_unpublished(2)] == [rows[0].id, rows[1].id]
        assert await leader.read_unpromoted(MANY) == []
        await leader.release()

    async def test_nothing_is_promoted_twice_however_many_try(
        self, open_store: OpenStore, append_rows: AppendRows
    ) -> None:
        stores = [await open_store() for _ in range(4)]
        leader = await lead(stores[0], "a")
        append_rows([Appended("s", str(n), ulid(n)) for n in range(40)])
        rows = await leader.read_unpromoted(MANY)
        parts = [rows[:30], rows, rows[10:], rows]
        done = await asyncio.gather(
            *(
                play(store, PromoteOutbox(part, LIMITS))
                for store, part in zip(stores, parts, strict=True)
            )
        )
        assert sum(told.promoted for told in done) == 40
        events = [entry for entry in await read_all(stores[0]) if entry.kind == "event"]
        assert sorted(int(entry.payload_json) for entry in events) == list(range(40))
        placed = await leader.read_unpublished(MANY)
        assert [row.global_seq for row in placed] == [entry.global_seq for entry in events]
        await leader.release()

    async def test_a_key_belongs_to_its_subject_and_a_repeat_names_the_first(
        self, open_store: OpenStore, append_rows: AppendRows
    ) -> None:
        store = await open_store()
        await record(store, NewEvent("s", idempotency_key="k"))
        leader = await lead(store, "a")
        append_rows([Appended("s", "1", ulid(1), "k"), Appended("s", "2", ulid(2), "k")])
        append_rows([Appended("t", "3", ulid(3), "k"), Appended("s", "4", ulid(4), "")])
        done = await play(store, PromoteOutbox(await leader.read_unpromoted(MANY), LIMITS))
        assert (done.promoted, done.repeats, done.unfit) == (3, 1, [])
        append_rows([Appended("s", "5", ulid(5), "k"), Appended("s", "6", ulid(6), "")])
        assert await promote(store, leader) == 1
        rows = await leader.read_unpublished(MANY)
        assert [(row.event_id, row.global_seq) for row in rows] == [
            (ulid(1), 3), (ulid(3), 4), (ulid(4), 5), (ulid(6), 6),
        ]  # fmt: skip
        events = [e for e in await read_all(store) if e.kind == "event"]
        assert [(e.event_type, e.idempotency_key) for e in events] == [
            ("s", "k"), ("s", "bus.outbox/s/k"), ("t", "bus.outbox/t/k"), ("s", ""), ("s", ""),
        ]  # fmt: skip
        status = await store.outbox.read_outbox_status(9)
        assert (status.waiting, status.repeated) == (4, 2)
        told = [(r.event_id, r.subject, r.idempotency_key) for r in status.repeats]
        assert sorted(told) == [(ulid(2), "s", "k"), (ulid(5), "s", "k")]
        assert {(r.repeat_of, r.repeat_of_seq) for r in status.repeats} == {(ulid(1), 3)}
        (latest,) = (await store.outbox.read_outbox_status(1)).repeats
        assert latest.event_id == ulid(5)
        # Nobody takes a repeat for anything else, and it goes after a while.
        await leader.mark_published([row.id for row in rows])
        assert await leader.read_unpromoted(MANY) == []
        assert not await store.outbox.has_unpromoted()
        with pytest.raises(InvalidArgument, match="is a repeat of the event"):
            await play(store, SkipOutboxRow(latest.id, "why", "the desk", next(IDS), LIMITS))
        assert await leader.forget_published(-1_000, 9) == 4
        assert await leader.forget_repeats(3_600_000, 9) == 0
        assert await leader.forget_repeats(-1_000, 1) == 1
        assert await leader.forget_repeats(-1_000, 9) == 1
        # The first row is gone; its event is on the journal.
        append_rows([Appended("s", "7", ulid(7), "k")])
        assert await promote(store, leader) == 0
        (again,) = (await store.outbox.read_outbox_status(9)).repeats
        assert (again.repeat_of, again.repeat_of_seq) == (ulid(1), 3)
        await leader.release()

    async def test_an_id_is_one_events_and_another_with_it_is_held(
        self, open_store: OpenStore, append_rows: AppendRows
    ) -> None:
        store = await open_store()
        leader = await lead(store, "a")
        append_rows([Appended("s", "1", ulid(1)), Appended("s", "1", ulid(1)), Appended("s", "2")])
        append_rows([Appended("s", "9", ulid(1)), Appended("s", "3"), Appended("t", "1", ulid(1))])
        rows = await leader.read_unpromoted(MANY)
        done = await play(store, PromoteOutbox(rows, LIMITS))
        assert (done.promoted, done.repeats) == (2, 1)
        assert [unfit.row.id for unfit in done.unfit] == [rows[3].id, rows[5].id]
        for unfit in done.unfit:
            assert unfit.error.startswith(
                f"event_id: belongs to another event (row {rows[0].id}, subject s, global_seq 2)"
            )
        # A later round finds the same, and nothing overtakes them.
        done = await play(store, PromoteOutbox(await leader.read_unpromoted(MANY), LIMITS))
        assert (done.promoted, done.repeats) == (0, 0)
        assert [unfit.row.id for unfit in done.unfit] == [rows[3].id, rows[5].id]
        for unfit in done.unfit:
            await leader.note_failure(unfit.row.id, unfit.error)
            await skip(store, unfit.row, "a slip")
        assert await promote(store, leader) == 1
        payloads = [row.payload_json for row in await leader.read_unpublished(MANY)]
        assert payloads == ["1", "2", "3"]
        await leader.release()

    async def test_who_promotes_the_same_ids_and_keys_at_once_makes_one_event_of_each(
        self, open_store: OpenStore, append_rows: AppendRows
    ) -> None:
        stores = [await open_store() for _ in range(4)]
        leader = await lead(stores[0], "a")
        append_rows([Appended("s", "1", ulid(n % 5), f"k{n % 5}") for n in range(40)])
        append_rows([Appended("t", "1", ulid(100 + n), f"k{n % 3}") for n in range(20)])
        rows = await leader.read_unpromoted(MANY)
        done = await asyncio.gather(
            *(play(store, PromoteOutbox(rows, LIMITS)) for store in stores for _ in range(2))
        )
        assert sum(told.promoted for told in done) == 8
        assert sum(told.repeats for told in done) == 52
        events = [entry for entry in await read_all(stores[0]) if entry.kind == "event"]
        assert len({entry.event_id for entry in events}) == len(events) == 8
        await leader.release()

    async def test_a_row_that_cannot_be_an_event_holds_up_its_subject_alone(
        self, open_store: OpenStore, append_rows: AppendRows
    ) -> None:
        store = await open_store()
        leader = await lead(store, "a")
        append_rows([Appended("bad", "{", ulid(1)), Appended("bad", "2", ulid(2)), Appended("ok")])
        append_rows([Appended("Not A Subject", "1", ulid(4)), Appended("odd", "1", "no-ulid")])
        done = await play(store, PromoteOutbox(await leader.read_unpromoted(MANY), LIMITS))
        assert done.promoted == 1
        assert [(unfit.row.event_id, unfit.error.split(":")[0]) for unfit in done.unfit] == [
            (ulid(1), "payload_json at position 1"), (ulid(4), "subject at position 0"),
            ("no-ulid", "event_id"),
        ]  # fmt: skip
        assert [r.subject for r in await leader.read_unpublished(MANY)] == ["ok"]
        left = await leader.read_unpromoted(MANY, ["bad"])
        assert [row.event_id for row in left] == [ulid(4), "no-ulid"]
        await leader.release()

    async def test_what_is_marked_is_not_read_again(
        self, open_store: OpenStore, append_rows: AppendRows
    ) -> None:
        store = await open_store()
        leader = await lead(store, "a")
        append_rows([Appended("s") for _ in range(3)])
        assert (await store.outbox.read_outbox_status(9))[:2] == (3, 3)
        assert await store.outbox.has_unpromoted()
        await promote(store, leader)
        assert not await store.outbox.has_unpromoted()
        first, second, third = await leader.read_unpublished(MANY)
        await leader.note_failure(second.id, "refused")
        await leader.note_failure(second.id, "refused again")
        status = await store.outbox.read_outbox_status(9)
        assert status[:2] == (3, 0)
        assert [(r.id, r.attempts, r.last_error) for r in status.failing] == [
            (second.id, 2, "refused again")
        ]
        await leader.mark_published([second.id, first.id])
        assert [row.id for row in await leader.read_unpublished(MANY)] == [third.id]
        status = await store.outbox.read_outbox_status(9)
        assert (status.waiting, status.failing) == (1, [])
        assert 0 <= status.oldest_ms < 60_000
        await leader.release()

    async def test_who_waits_hears_of_new_rows(
        self, open_store: OpenStore, append_rows: AppendRows
    ) -> None:
        store = await open_store()
        leader = await lead(store, "a")
        await leader.read_unpromoted(1)
        await leader.wait(0.05)  # what was heard before
        await leader.read_unpromoted(1)
        waiting = asyncio.create_task(leader.wait(BOUND_S))
        done, _ = await asyncio.wait((waiting,), timeout=0.2)
        assert not done
        append_rows([Appended("s")])
        async with asyncio.timeout(BOUND_S / 2):
            await waiting
        await leader.release()

    async def test_old_rows_are_removed_a_few_at_a_time(
        self, open_store: OpenStore, append_rows: AppendRows
    ) -> None:
        store = await open_store()
        leader = await lead(store, "a")
        append_rows([Appended("s") for _ in range(5)])
        await promote(store, leader)
        rows = await leader.read_unpublished(MANY)
        await leader.mark_published([row.id for row in rows[:3]])
        assert await leader.forget_published(3_600_000, 10) == 0
        assert await leader.forget_published(-1_000, 2) == 2
        assert await leader.forget_published(-1_000, 2) == 1
        assert await leader.forget_promoted(-1_000, 9) == 0  # somebody publishes
        assert len(await leader.read_unpublished(MANY)) == 2
        await leader.release()

    async def test_where_nobody_publishes_promoted_rows_go(
        self, open_store: OpenStore, append_rows: AppendRows
    ) -> None:
        store = await open_store()
        leader = await store.outbox.lead_outbox(a_lead("a", relay="journal"))
        assert leader is not None
        append_rows([Appended("s") for _ in range(3)])
        await play(store, PromoteOutbox(await leader.read_unpromoted(2), LIMITS))
        assert await leader.forget_promoted(3_600_000, 9) == 0
        assert await leader.forget_promoted(-1_000, 9) == 2
        assert (await store.outbox.read_outbox_status(1)).waiting == 1
        await leader.release()

    async def test_a_failing_row_can_be_skipped_and_the_journal_says_so(
        self, open_store: OpenStore, append_rows: AppendRows
    ) -> None:
        store = await open_store()
        leader = await lead(store, "a")
        append_rows(
            [Appended("s", "1", ulid(1)), Appended("s", "2", ulid(2)), Appended("s", "{", ulid(3))]
        )
        done = await play(store, PromoteOutbox(await leader.read_unpromoted(MANY), LIMITS))
        refused, fine = await leader.read_unpublished(MANY)
        await leader.note_failure(refused.id, "too large")
        await leader.note_failure(done.unfit[0].row.id, "no JSON")
        for row in (refused, done.unfit[0].row):
            await skip(store, row, "not needed")
        assert await leader.read_unpromoted(MANY) == []
        assert await leader.read_unpublished(MANY) == [fine]
        told = [e.payload for e in await read_all(store) if e.kind == "outbox"]
        assert [(t["event_id"], t["reason"], t["error"]) for t in told] == [
            (ulid(1), "not needed", "too large"), (ulid(3), "not needed", "no JSON"),
        ]  # fmt: skip
        with pytest.raises(InvalidArgument, match="already published or skipped"):
            await skip(store, refused, "again")
        with pytest.raises(InvalidArgument, match="has not failed"):
            await skip(store, fine, "why not")
        with pytest.raises(NotFound):
            await skip(store, fine._replace(id=MANY), "no such")
        with pytest.raises(InvalidArgument, match="reason: must not be empty"):
            await skip(store, fine, "")
        await leader.release()


async def skip(store: Store, row: OutboxRow, reason: str) -> None:
    await play(store, SkipOutboxRow(row.id, reason, "the desk", next(IDS), LIMITS))
