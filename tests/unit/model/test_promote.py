"""Promotion and elections as moves, with no database."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tape.errors import InvalidArgument
from tape.model.event import NewEvent, draft_event
from tape.model.move import KNOWN, EntryPlace, State, UsedKey
from tape.model.outbox import (
    OUTBOX,
    OUTBOX_IDS,
    OUTBOX_KEYS,
    RELAYS,
    REPEATED,
    EntryOfId,
    EntryOfKey,
    OutboxPlace,
    OutboxRow,
    RelayTerm,
)
from tape.model.promote import PromoteOutbox, draft_row
from tape.model.relay import Candidate, ElectRelay, ResignRelay
from tape.settings import Limits

LIMITS = Limits()


def ulid(number: int) -> str:
    return f"01JZ{number:022d}"


def a_row(row_id: int, subject: str = "a.b", payload: str = "1", key: str = "") -> OutboxRow:
    return OutboxRow(
        row_id, ulid(row_id), subject, payload, 3, "order", "7", key or None, "cause", "desk", 0,
        "", "", "", 1_000 + row_id, 0, 0, "",
    )  # fmt: skip


def a_state(*rows: OutboxRow, now_ms: int = 50) -> State:
    state = State(now_ms, 101)
    places = [OutboxPlace(r.id, r.event_id, r.subject, r.global_seq, False, "") for r in rows]
    state.put_loaded(OUTBOX, places)
    return state


def test_an_event_is_what_its_row_says() -> None:
    draft = draft_row(a_row(1)._replace(trace_id="a" * 32, span_id="b" * 16), LIMITS)
    assert draft.subject == "/tape/event/recorded/a.b/order/7"
    assert (draft.event_id, draft.event_type, draft.kind) == (ulid(1), "a.b", "event")
    assert (draft.caused_by, draft.source, draft.schema_version) == ("cause", "desk", 3)
    assert (draft.trace_id, draft.span_id) == ("a" * 32, "b" * 16)
    assert draft.occurred_at_ms == 1_001  # when it was written, if nobody says otherwise
    said = draft_row(a_row(1)._replace(occurred_at_ms=9), LIMITS)
    assert said.occurred_at_ms == 9


@pytest.mark.parametrize(
    ("row", "field"),
    [
        (a_row(1, "A.b"), "subject"),
        (a_row(1, "a.>"), "subject"),
        (a_row(1, "a\r\nPUB x 1"), "subject"),
        (a_row(1, "a" * 300), "subject"),
        (a_row(1, "workflow.dispatch_failed"), "event_type"),
        (a_row(1, payload="{"), "payload_json"),
        (a_row(1)._replace(event_id=""), "event_id"),
        (a_row(1)._replace(event_id="a\r\nb"), "event_id"),
        (a_row(1)._replace(event_id="by-hand"), "event_id"),
        (a_row(1)._replace(schema_version=0), "schema_version"),
        (a_row(1)._replace(trace_id="x"), "trace_id"),
        (a_row(1)._replace(created_at_ms=-1), "occurred_at_ms"),
    ],
)
def test_what_cannot_be_an_event(row: OutboxRow, field: str) -> None:
    with pytest.raises(InvalidArgument) as refusal:
        draft_row(row, LIMITS)
    assert refusal.value.field == field


def test_a_committed_payload_may_tell_another_version_than_its_row() -> None:
    draft = draft_row(a_row(1, payload='{"schema_version": 2}'), LIMITS)
    assert (draft.schema_version, draft.payload_json) == (3, '{"schema_version": 2}')


def test_rows_get_the_places_of_their_entries() -> None:
    rows = [a_row(2), a_row(1), a_row(3)]
    state = a_state(*rows)
    state.entries.append(draft_row(a_row(9), LIMITS))  # another move's, before it in the batch
    decision = PromoteOutbox(rows, LIMITS).decide(state)
    assert [draft.event_id for draft in decision.entries] == [ulid(1), ulid(2), ulid(3)]
    assert [(c.row[0], c.row[3]) for c in decision.changes if c.row] == [
        (1, 102), (2, 103), (3, 104),
    ]  # fmt: skip


@given(st.data())
def test_nothing_is_promoted_twice_and_subjects_keep_their_order(data: st.DataObject) -> None:
    """Any batches of rows, overlapping as they like, in any order of turns."""
    count = data.draw(st.integers(1, 12))
    rows = [
        a_row(
            n, data.draw(st.sampled_from("st")), data.draw(st.sampled_from(["1", "{"])),
            data.draw(st.sampled_from(["", "k1", "k2"])),
        )._replace(event_id=ulid(data.draw(st.integers(1, n))))
        for n in range(1, count + 1)
    ]  # fmt: skip
    state = a_state(*rows)
    for _ in range(data.draw(st.integers(1, 4))):
        # Whoever sees a row sees those before it that are not promoted, so a batch is a prefix.
        waiting = [row for row in rows if not state.get(OUTBOX, row.id).global_seq]  # type: ignore[union-attr]
        batch = waiting[: data.draw(st.integers(0, len(waiting)))]
        state.apply(PromoteOutbox(batch, LIMITS).decide(state))
    ids = [draft.event_id for draft in state.entries]
    assert len(set(ids)) == len(ids)
    for subject in "st":
        places = [state.get(OUTBOX, row.id) for row in rows if row.subject == subject]
        settled = [place.global_seq != 0 for place in places if place]
        assert settled == sorted(settled, reverse=True)  # no hole
        own = [place.global_seq for place in places if place and place.has_entry]
        assert own == sorted(own)
        for place in places:
            assert place is not None
            if place.repeat_of:
                first = state.entries[place.repeat_of_seq - 101]
                assert (first.event_id, first.event_type) == (place.repeat_of, subject)
        bad = [row for row in rows if row.subject == subject and row.payload_json == "{"]
        assert not any(state.get(OUTBOX, row.id).global_seq for row in bad)  # type: ignore[union-attr]
    keys = [draft.idempotency_key for draft in state.entries if draft.idempotency_key]
    assert len(set(keys)) == len(keys)
    assert {p.global_seq for r in rows if (p := state.get(OUTBOX, r.id)) and p.has_entry} == {
        *range(101, 101 + len(state.entries))
    }


def test_a_key_of_a_recorded_event_is_not_the_outboxs() -> None:
    row = a_row(1, key="k")
    state = a_state(row)
    state.put_loaded(KNOWN, [UsedKey("k", "recorded", 7, 0)])
    decision = PromoteOutbox([row], LIMITS).decide(state)
    assert [draft.idempotency_key for draft in decision.entries] == ["bus.outbox/a.b/k"]


def test_a_key_of_the_outbox_makes_a_repeat_of_the_first() -> None:
    row = a_row(1, key="k")
    first = OutboxPlace(1, ulid(1), "a.b", REPEATED, False, "", False, "first", 7)
    state = a_state(row)
    state.put_loaded(KNOWN, [UsedKey("bus.outbox/a.b/k", "first", 7, 0)])
    by_journal = PromoteOutbox([row], LIMITS).decide(state)
    assert not by_journal.entries
    assert by_journal.changes[0].row == first
    state = a_state(row)
    state.put_loaded(OUTBOX_KEYS, [EntryOfKey("a.b", "k", "first", 7)])
    by_outbox = PromoteOutbox([row], LIMITS).decide(state)
    assert by_outbox.changes == by_journal.changes


@pytest.mark.parametrize(
    ("subject", "payload", "repeats"),
    [("a.b", "1", True), ("a.b", "2", False), ("a.c", "1", False)],
)
def test_an_id_of_another_event(subject: str, payload: str, repeats: bool) -> None:
    rows = [a_row(2, subject, payload), a_row(3, subject, "3")]
    state = a_state(*rows)
    state.put_loaded(OUTBOX_IDS, [EntryOfId(ulid(2), 1, "a.b", "1", 7)])
    decision = PromoteOutbox(rows, LIMITS).decide(state)
    done = decision.reply(EntryPlace(101, 0))
    if repeats:
        assert (done.promoted, done.repeats, done.unfit) == (1, 1, [])
    else:
        assert (done.promoted, done.repeats) == (0, 0)  # what comes after it waits
        assert "(row 1, subject a.b, global_seq 7)" in done.unfit[0].error


def test_rows_of_two_moves_in_one_batch_share_ids_and_keys() -> None:
    rows = [a_row(1, key="k"), a_row(2, key="k"), a_row(3)._replace(event_id=ulid(1))]
    state = a_state(*rows)
    for row in rows:
        state.apply(PromoteOutbox([row], LIMITS).decide(state))
    assert len(state.entries) == 1
    places = [state.get(OUTBOX, row.id) for row in rows]
    assert [p.repeat_of for p in places if p] == ["", ulid(1), ulid(1)]


def test_a_row_that_was_corrected_since_is_left_for_the_next_round() -> None:
    row = a_row(1)
    state = a_state(row._replace(event_id=ulid(5)))
    assert not PromoteOutbox([row], LIMITS).decide(state).changes


def test_nothing_overtakes_a_row_that_was_corrected_since() -> None:
    rows = [a_row(1), a_row(2), a_row(3, "a.c"), a_row(4, "a.d")]
    state = a_state(rows[0]._replace(subject="a.c"), *rows[1:])
    done = PromoteOutbox(rows, LIMITS).decide(state)
    assert [draft.event_id for draft in done.entries] == [ulid(4)]


def test_no_producer_has_a_key_of_the_outbox() -> None:
    with pytest.raises(InvalidArgument, match="choose another key") as refusal:
        draft_event(NewEvent("a", idempotency_key="bus.outbox/a.b/k"), ulid(1), LIMITS)
    assert refusal.value.field == "idempotency_key"


def test_terms_go_up_by_one_and_a_lease_is_respected() -> None:
    state = State(1_000, 1)
    first = ElectRelay(Candidate("nats", "a", lease_ms=100), "e1").decide(state)
    state.apply(first)
    assert state.get(RELAYS, "nats") == RelayTerm("nats", 1, "a", 1_000, 1_100)
    state.now_ms = 1_099
    again = ElectRelay(Candidate("nats", "b", lease_ms=100), "e2").decide(state)
    assert not again.entries
    assert not again.changes
    state.now_ms = 1_100
    state.apply(ElectRelay(Candidate("nats", "b", "pid 7"), "e3").decide(state))
    assert state.get(RELAYS, "nats") == RelayTerm("nats", 2, "b", 1_100, 0)
    late = ResignRelay(RelayTerm("nats", 1, "a", 0, 0), "late", "e4").decide(state)
    assert not late.entries
    last = state.get(RELAYS, "nats")
    assert last is not None
    state.apply(ResignRelay(last, "enough", "e5").decide(state))
    assert [draft.subject for draft in state.entries] == [
        "/tape/relay/elected/nats", "/tape/relay/elected/nats", "/tape/relay/resigned/nats",
    ]  # fmt: skip
