"""Sinks on a broker: one key per run or subject, and what is sent again says so."""

from collections.abc import Sequence

import pytest

from tape.errors import BrokerError, BrokerRefused, BrokerUnavailable
from tape.ports.broker import Broker, Outgoing
from tape.programs.sinks import BrokerSink
from tests.conformance.broker import outgoing


class Recording:
    """A broker that answers as told and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[list[tuple[str, str, int]]] = []
        self.answers: list[list[BrokerError | None]] = []
        self.closed = False

    async def publish(self, messages: Sequence[Outgoing]) -> list[BrokerError | None]:
        self.asked.append([(m.message_id, m.ordering_key, m.attempt) for m in messages])
        return self.answers.pop(0) if self.answers else [None] * len(messages)

    async def close(self) -> None:
        self.closed = True


def sink_on(broker: Recording) -> BrokerSink:
    async def open_it() -> Broker:
        return broker

    return BrokerSink(open_it)


ENTRIES = [outgoing(1, "a").entry, outgoing(2, "b").entry._replace(run_id="run", seq=1)]
SUBJECT = ENTRIES[0].subject


async def test_the_key_is_the_run_or_else_the_subject() -> None:
    broker = Recording()
    sink = sink_on(broker)
    await sink.send(ENTRIES)
    assert broker.asked == [[("event-00001", SUBJECT, 1), ("event-00002", "run", 1)]]
    await sink.close()
    assert broker.closed


async def test_only_what_was_not_acknowledged_is_sent_again_and_marked() -> None:
    broker = Recording()
    away, no = BrokerUnavailable("away"), BrokerRefused("no")
    broker.answers = [[None, away], [no]]
    sink = sink_on(broker)
    with pytest.raises(BrokerUnavailable) as raised:
        await sink.send(ENTRIES)
    assert raised.value is away
    with pytest.raises(BrokerRefused):
        await sink.send(ENTRIES)
    await sink.send(ENTRIES)
    await sink.send(ENTRIES)
    assert broker.asked == [
        [("event-00001", SUBJECT, 1), ("event-00002", "run", 1)],
        [("event-00002", "run", 2)],
        [("event-00002", "run", 3)],
        [("event-00001", SUBJECT, 1), ("event-00002", "run", 1)],
    ]


async def test_what_is_refused_is_named_with_what_to_do() -> None:
    broker = Recording()
    broker.answers = [[BrokerUnavailable("away"), BrokerRefused("too large")]]
    with pytest.raises(BrokerRefused) as raised:
        await sink_on(broker).send(ENTRIES)
    assert str(raised.value) == (
        f"entry 3 ({ENTRIES[1].subject}) is refused, and no later entry is relayed: too large. "
        "Correct the cause, or relay without the entry: --where 'global_seq != 3'"
    )


async def test_what_an_earlier_relay_may_have_sent_is_marked() -> None:
    broker = Recording()
    sink = sink_on(broker)
    sink.expect_repeats(ENTRIES[:1])
    await sink.send(ENTRIES)
    assert [attempt for _, _, attempt in broker.asked[0]] == [2, 1]
