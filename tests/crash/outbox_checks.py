"""What must be true of an outbox whatever was killed."""

import json
from collections import Counter, defaultdict

from tests.crash.outbox_world import Got, World


def check_truth(world: World, got: list[Got]) -> dict[str, int]:
    """Published = committed, once each on the journal, each row marked; the figures."""
    orders = world.rows("SELECT event_id, subject, producer, n FROM orders")
    committed = {event_id for event_id, *_ in orders}
    received = {one.message_id for one in got}
    assert received == committed, f"{len(committed - received)} missing, {received - committed}"
    journal = world.rows(
        "SELECT event_id, event_type, global_seq FROM tape_journal WHERE kind = 'event' "
        "ORDER BY global_seq"
    )
    assert Counter(event_id for event_id, *_ in journal) == Counter(committed)
    marked = world.rows(
        f"SELECT event_id FROM {world.outbox} WHERE published_to_nats AND global_seq > 0 "
        "AND published_term > 0 AND last_error = ''"
    )
    assert Counter(event_id for (event_id,) in marked) == Counter(committed)
    assert world.rows(f"SELECT count(*) FROM {world.outbox}") == [(len(committed),)]
    _check_order(got, journal, orders)
    copies = len(got) - len(committed)
    stored = len({one.stream_seq for one in got})
    return {"committed": len(committed), "redelivered": copies, "in_stream": stored}


def _check_order(
    got: list[Got], journal: list[tuple[str, str, int]], orders: list[tuple[str, str, str, int]]
) -> None:
    """First appearances of each subject: in the journal's order, and in that of its producer."""
    appeared: dict[str, list[str]] = defaultdict(list)
    for message_id, one in {one.message_id: one for one in reversed(got)}.items():
        appeared[one.subject].append(message_id)
    first = {subject: list(reversed(ids)) for subject, ids in appeared.items()}
    recorded: dict[str, list[str]] = defaultdict(list)
    for event_id, subject, _seq in journal:
        recorded[subject].append(event_id)
    assert first == recorded
    told = {one.message_id: one.global_seq for one in got}
    assert told == {event_id: seq for event_id, _subject, seq in journal}
    counted: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for event_id, subject, _producer, n in orders:
        if subject.startswith("own."):
            counted[subject].append((n, event_id))
    for subject, numbered in counted.items():
        assert first[subject] == [event_id for _n, event_id in sorted(numbered)]


def check_leadership(world: World) -> int:
    """Terms go up by one, and nothing is marked in an old one once the next has begun."""
    elected = world.rows(
        "SELECT payload_json, ts_ms FROM tape_journal "
        "WHERE subject = '/tape/relay/elected/nats' ORDER BY global_seq"
    )
    begun = {json.loads(payload)["term"]: ts_ms for payload, ts_ms in elected}
    terms = list(begun)
    assert terms == list(range(1, len(elected) + 1))
    marked = world.rows(
        "SELECT published_term, min(published_at_ms), max(published_at_ms) "
        f"FROM {world.outbox} WHERE published_term > 0 GROUP BY 1"
    )
    for term, first_ms, last_ms in marked:
        assert begun[term] <= first_ms
        assert last_ms <= begun.get(term + 1, last_ms)
    return len(terms)
