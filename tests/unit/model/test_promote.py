"""Promotion and elections as moves, with no database."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tape.config import Limits
from tape.errors import InvalidArgument
from tape.model.move import KNOWN, Known, State
from tape.model.outbox import OUTBOX, RELAYS, OutboxPlace, OutboxRow, RelayTerm
from tape.model.promote import PromoteOutbox, draft_row
from tape.model.relay import Candidate, ElectRelay, ResignRelay

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
        )
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
        promoted = [place.global_seq > 0 for place in places if place]
        assert promoted == sorted(promoted, reverse=True)  # no hole
        own = [p.global_seq for p, r in zip(places, (r for r in rows if r.subject == subject),
               strict=True) if p and p.event_id == r.event_id and p.global_seq]  # fmt: skip
        assert own == sorted(own)
        bad = [row for row in rows if row.subject == subject and row.payload_json == "{"]
        assert not any(state.get(OUTBOX, row.id).global_seq for row in bad)  # type: ignore[union-attr]
    keys = [draft.idempotency_key for draft in state.entries if draft.idempotency_key]
    assert len(set(keys)) == len(keys)


def test_a_key_of_the_journal_gives_the_first_ones_id() -> None:
    row = a_row(1, key="k")
    state = a_state(row)
    state.put_loaded(KNOWN, [Known("k", "first", 7, 0)])
    decision = PromoteOutbox([row], LIMITS).decide(state)
    assert not decision.entries
    assert decision.changes[0].row == OutboxPlace(1, "first", "a.b", 7, False, "")


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
