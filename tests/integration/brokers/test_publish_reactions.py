"""A worker publishes for a reaction while the broker dies with kill -9, and comes back."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from tape.model.entry import Entry
from tape.model.event import NewEvent
from tape.model.reaction import HandlerKind, NewReaction, ReactionState
from tape.model.task import TaskStatus
from tape.programs.connect import open_bus
from tape.programs.worker import WorkerOptions, work
from tape.reactions.declare import Declaration, Registry
from tests.conformance.broker import Received, ids_by_key
from tests.integration.brokers.far_sides import KafkaFarSide, NatsFarSide
from tests.integration.brokers.receiver_process import ReceiverProcess
from tests.integration.brokers.relaying import make_journal
from tests.servers.kafka import KafkaServer
from tests.servers.nats import NatsServer
from tests.servers.webhook import SECRET

COUNT = 2_000


async def publish(
    url: str, target: str, kill: Callable[[], Awaitable[None]] | None, count: int = COUNT
) -> None:
    """Publish the whole journal; once a quarter is through, `kill` happens."""
    registry = Registry()
    new = NewReaction(
        "out", "/tape/event/**", HandlerKind.PUBLISH, publish_target=target, from_global_seq=0,
        max_concurrency=300,
    )  # fmt: skip
    registry.add(Declaration(new, None))
    stop = asyncio.Event()
    bus = await open_bus(url)
    working = asyncio.create_task(work(WorkerOptions(url=url, registry=registry), stop=stop))
    try:
        if kill is not None:
            await _until(bus.reactions.list_reactions, working, count, count * 3 // 4)
            await kill()
        await _until(bus.reactions.list_reactions, working, count, 0)
        (state,) = await bus.reactions.list_reactions()
        assert (state.matched, state.claimed, state.dead_letters) == (count, 0, 0)
        stop.set()
        await working
    finally:
        working.cancel()
        await bus.close()


async def _until(
    read: Callable[[], Awaitable[list[ReactionState]]],
    working: "asyncio.Task[None]",
    count: int,
    left: int,
) -> None:
    """Until the reaction has made all its tasks and at most so many are left."""
    async with asyncio.timeout(90):
        while True:
            states = await read()
            if [s for s in states if s.matched == count and s.pending + s.claimed <= left]:
                return
            assert not working.done(), working.result()
            await asyncio.sleep(0.02)


def check(entries: Sequence[Entry], received: Sequence[Received]) -> None:
    """Nothing is lost, and a copy beyond the first says that it may be one."""
    assert {message.event_id for message in received} == {entry.event_id for entry in entries}
    unmarked = [message.event_id for message in received if message.attempt == 1]
    assert len(unmarked) == len(set(unmarked))


@pytest.mark.parametrize("count", [400, pytest.param(COUNT, marks=pytest.mark.middle)])
async def test_in_the_order_of_each_key(
    nats_server: NatsServer, sqlite_url: str, count: int
) -> None:
    far_side = NatsFarSide(nats_server)
    await far_side.make_stream()
    entries = await make_journal(sqlite_url, count)
    await publish(sqlite_url, far_side.target, None, count)
    received = await far_side.received(count)
    check(entries, received)
    assert len(received) == count
    for subject, ids in ids_by_key(received).items():
        assert ids == [entry.event_id for entry in entries if entry.subject == subject]


@pytest.mark.middle
async def test_nats_dies(nats_server: NatsServer, store_url: str) -> None:
    far_side = NatsFarSide(nats_server)
    await far_side.make_stream()
    entries = await make_journal(store_url, COUNT)

    async def kill() -> None:
        await far_side.go_away()
        await far_side.come_back()

    await publish(store_url, far_side.target, kill)
    check(entries, await far_side.received(COUNT))


@pytest.mark.middle
async def test_kafka_dies(kafka_server: KafkaServer, sqlite_url: str) -> None:
    far_side = KafkaFarSide(kafka_server)
    far_side.make_topic()
    entries = await make_journal(sqlite_url, COUNT)

    async def kill() -> None:
        await far_side.go_away()
        await far_side.come_back()

    await publish(sqlite_url, far_side.target, kill)
    check(entries, await far_side.received(COUNT))


@pytest.mark.middle
async def test_a_webhook_receiver_dies(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAPE_WEBHOOK_SECRET", SECRET)
    entries = await make_journal(sqlite_url, COUNT)
    with ReceiverProcess(tmp_path / "deliveries") as receiver:

        async def kill() -> None:
            await asyncio.to_thread(receiver.kill)
            await asyncio.to_thread(receiver.start)

        await publish(sqlite_url, receiver.target, kill)
        check(entries, receiver.received())


ACCOUNT = """
accounts {
  A { jetstream: enabled, users: [{user: a, password: b}], limits: {max_payload: 3000} }
}
"""


async def test_a_message_over_a_limit_that_nobody_tells_is_one_dead_letter(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NATS closes the connection whenever it gets the message, as if it were away."""
    monkeypatch.setenv("TAPE_NATS_USER", "a")
    monkeypatch.setenv("TAPE_NATS_PASSWORD", "b")
    events = [
        NewEvent("order.moved", f'"{"x" * size}"', "order", key)
        for size, key in ((1, "a"), (4_000, "a"), (2, "a"), (3, "b"), (4, "b"))
    ]
    with NatsServer(ACCOUNT) as server:
        far_side = NatsFarSide(server, login="a:b@")
        await far_side.make_stream()
        bus = await open_bus(store_url)
        registry = Registry()
        target = f"nats://{server.address}/{far_side.subject}"
        new = NewReaction(
            "out", "/tape/event/**", HandlerKind.PUBLISH, publish_target=target, from_global_seq=0
        )
        registry.add(Declaration(new, None))
        await bus.record_events(events)
        stop = asyncio.Event()
        options = WorkerOptions(url=store_url, registry=registry)
        working = asyncio.create_task(work(options, stop=stop))
        try:
            async with asyncio.timeout(90):
                while not (letters := await bus.tasks.list_tasks("", TaskStatus.DLQ)):
                    assert not working.done(), working.result()
                    await asyncio.sleep(0.02)
            received = await far_side.received(4)
            stop.set()
            await working
        finally:
            working.cancel()
            await bus.close()
    assert [letter.source_global_seq for letter in letters] == [2]
    assert "the account's max_payload may be lower than the server's" in letters[0].last_error
    assert [message.data for message in received if message.key.endswith("/a")] == [
        b'"x"', b'"xx"',
    ]  # fmt: skip
    assert len(received) == 4
