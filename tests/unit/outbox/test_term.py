"""A relay's term, on a leader and a broker that do what a test wants."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tape.errors import BrokerError, BrokerRefused, BrokerUnavailable, NotLeading
from tape.model.outbox import OutboxRow, RelayTerm
from tape.model.promote import Promoted
from tape.outbox.term import Term
from tape.ports.broker import MaySend, Outgoing
from tape.settings import Limits, OutboxSettings

SETTINGS = OutboxSettings(
    batch=3, active_poll_s=0.0, idle_poll_s=0.01, backoff_first_s=0.01, backoff_most_s=0.02
)


def a_row(row_id: int, subject: str = "s", global_seq: int | None = None) -> OutboxRow:
    return OutboxRow(
        row_id, f"e{row_id}", subject, "1", 1, "", "", None, "", "", 0, "", "", "", 5,
        row_id if global_seq is None else global_seq, 0, "",
    )  # fmt: skip


class Leader:
    """Holds rows; `said` is everything that was asked of it, in order."""

    term = RelayTerm("nats", 1, "me", 0, 0)

    def __init__(self, *rows: OutboxRow) -> None:
        self.rows = list(rows)
        self.said: list[Any] = []
        self.is_certain = True
        self.lost = False
        self.idle = asyncio.Event()

    def _say(self, what: Any) -> None:
        if self.lost:
            raise NotLeading
        self.said.append(what)

    async def read_unpromoted(self, limit: int, held: Sequence[str] = ()) -> list[OutboxRow]:
        return [r for r in self.rows if not r.global_seq and r.subject not in held][:limit]

    async def read_unpublished(self, limit: int, held: Sequence[str] = ()) -> list[OutboxRow]:
        return [r for r in self.rows if r.global_seq and r.subject not in held][:limit]

    async def mark_published(self, ids: Sequence[int]) -> None:
        self._say(("marked", *ids))
        self.rows = [row for row in self.rows if row.id not in ids]

    async def note_failure(self, row_id: int, error: str) -> None:
        self._say(("failed", row_id, error))

    async def confirm(self) -> None:
        self._say("confirmed")
        self.is_certain = True

    async def wait(self, timeout_s: float) -> None:
        if not self.rows:
            self.idle.set()
        await asyncio.sleep(min(timeout_s, 0.01))

    async def forget_published(self, older_than_ms: int, limit: int) -> int:
        return 0

    async def forget_repeats(self, older_than_ms: int, limit: int) -> int:
        return 0

    async def forget_promoted(self, older_than_ms: int, limit: int) -> int:
        return 0

    async def release(self) -> None: ...


Answer = Callable[[Outgoing], BrokerError | None]


class Broker:
    def __init__(self, leader: Leader, answer: Answer = lambda _message: None) -> None:
        self._leader = leader
        self.answer = answer
        self.sent: list[str] = []

    async def prepare(self) -> None: ...

    async def publish(
        self, messages: Sequence[Outgoing], may_send: MaySend
    ) -> list[BrokerError | None]:
        results: list[BrokerError | None] = []
        failed: dict[str, BrokerError] = {}
        for message in messages:
            key = message.ordering_key
            error = failed.get(key)
            if error is None:
                error = self.answer(message) if may_send() else BrokerUnavailable("uncertain")
                self.sent.append(message.message_id)
                self._leader.said.append(("sent", message.message_id))
            if error is not None:
                failed[key] = error
            results.append(error)
        return results

    async def close(self) -> None: ...


class Writer:
    async def submit(self, _move: Any) -> Promoted:
        return Promoted(0, [])


async def serve(
    leader: Leader, broker: Broker, settings: OutboxSettings = SETTINGS, stop_s: float = 5.0
) -> str:
    """Until the leader is idle, or at most so long."""
    stop = asyncio.Event()
    term = Term(leader, Writer(), broker, settings, Limits())  # type: ignore[arg-type]
    task = asyncio.create_task(term.serve(stop))
    idle = asyncio.create_task(leader.idle.wait())
    await asyncio.wait((task, idle), timeout=stop_s, return_when=asyncio.FIRST_COMPLETED)
    stop.set()
    idle.cancel()
    return await task


async def test_a_row_is_marked_when_the_broker_has_it() -> None:
    leader = Leader(a_row(1), a_row(2), a_row(3), a_row(4))
    assert await serve(leader, Broker(leader)) == "stopped"
    assert leader.said == [
        ("sent", "e1"), ("sent", "e2"), ("sent", "e3"), ("marked", 1, 2, 3),
        ("sent", "e4"), ("marked", 4),
    ]  # fmt: skip


async def test_what_the_broker_did_not_take_is_sent_again_and_the_rest_is_marked() -> None:
    leader = Leader(a_row(1, "s"), a_row(2, "t"), a_row(3, "s"))
    failures = [BrokerUnavailable("away")]

    def answer(message: Outgoing) -> BrokerError | None:
        return failures.pop() if message.message_id == "e1" and failures else None

    await serve(leader, Broker(leader, answer))
    assert leader.said == [
        ("sent", "e1"), ("sent", "e2"), ("marked", 2), ("sent", "e1"), ("sent", "e3"),
        ("marked", 1, 3),
    ]  # fmt: skip


async def test_a_refused_message_is_noted_and_nothing_of_its_subject_passes_it() -> None:
    leader = Leader(a_row(1, "s"), a_row(2, "s"), a_row(3, "t"), a_row(4, "t"))
    left = 2

    def answer(message: Outgoing) -> BrokerError | None:
        nonlocal left
        if message.message_id != "e1" or not left:
            return None
        left -= 1
        return BrokerRefused("too large")

    await serve(leader, Broker(leader, answer))
    assert [said for said in leader.said if said[0] == "failed"] == [("failed", 1, "too large")] * 2
    sent = [said[1] for said in leader.said if said[0] == "sent"]
    assert sent.index("e4") < sent.index("e2")
    assert sent[-2:] == ["e1", "e2"]


async def test_who_has_lost_the_lead_stops_at_once() -> None:
    leader = Leader(a_row(1), a_row(2))

    def answer(_message: Outgoing) -> BrokerError | None:
        leader.lost = True
        return None

    with pytest.raises(NotLeading):
        await serve(leader, Broker(leader, answer))
    assert not any("marked" in said for said in leader.said)


async def test_a_leader_that_is_not_certain_asks_before_it_sends() -> None:
    leader = Leader(a_row(1))
    leader.is_certain = False
    await serve(leader, Broker(leader))
    assert leader.said == ["confirmed", ("sent", "e1"), ("marked", 1)]


async def test_a_leader_that_becomes_uncertain_in_the_middle_sends_no_more() -> None:
    leader = Leader(a_row(1, "s"), a_row(2, "s"), a_row(3, "s"))
    hung = True

    def answer(message: Outgoing) -> BrokerError | None:
        nonlocal hung
        if message.message_id == "e1" and hung:  # stopped and continued while it was on its way
            leader.is_certain = hung = False
        return None

    broker = Broker(leader, answer)
    await serve(leader, broker)
    assert leader.said[:3] == [("sent", "e1"), ("sent", "e2"), ("marked", 1)]
    assert leader.said[3] == "confirmed"


async def test_a_broker_that_stays_away_ends_the_term() -> None:
    leader = Leader(a_row(1))
    broker = Broker(leader, lambda _message: BrokerUnavailable("away"))
    reason = await serve(leader, broker, replace(SETTINGS, give_way_s=0.05))
    assert reason == "the broker has failed for 0.05 s"
    assert 2 <= len(broker.sent) <= 8  # with pauses between
