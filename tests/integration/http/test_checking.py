"""A long predicate is checked in a thread, once, by whichever door it comes: the loop goes on."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest

from tape.bus import Bus, FollowQuery
from tape.errors import InvalidArgument
from tape.ledger import rules as ledger_rules
from tape.model.event import NewEvent
from tape.model.event_subscription import NewEventSubscription
from tape.model.reaction import HandlerKind, NewReaction
from tape.ports.tasks import Claim, Want
from tape.predicates import check, checker
from tape.programs.connect import open_bus
from tape.reactions import rules as reaction_rules
from tape.wire.v1 import tape_pb2 as pb
from tape.wire.v1.tape_pb2_grpc import TapeStub
from tests.integration.http.conftest import Serving, door

LONG = " || ".join(f"payload.n == {number}" for number in range(100))


@pytest.fixture
def checked_on(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the threads that a long expression was checked on."""
    threads: list[str] = []

    def watched(expression: str, **options: Any) -> Any:
        if expression.startswith(LONG):
            threads.append(threading.current_thread().name)
        return check(expression, **options)

    monkeypatch.setattr(checker, "check", watched)
    return threads


async def follow(bus: Bus) -> None:
    await bus.record_events([NewEvent("a.b")])
    assert [page async for page in bus.follow(FollowQuery(predicate=LONG, until=1))]


async def register(bus: Bus) -> None:
    await bus.reactions.register_reaction(
        NewReaction("r", "/tape/**", HandlerKind.TASK, predicate_cel=LONG)
    )


async def subscribe(bus: Bus) -> None:
    await bus.ledger.put_event_subscription(
        NewEventSubscription("s", "a.b", "app", filter_expr=LONG)
    )


@pytest.mark.parametrize("ask", [follow, register, subscribe])
async def test_the_bus_checks_in_a_thread(
    sqlite_url: str, checked_on: list[str], ask: Callable[[Bus], Awaitable[None]]
) -> None:
    bus = await open_bus(sqlite_url)
    try:
        await ask(bus)
        await ask(bus)
    finally:
        await bus.close()
    assert [name.rpartition("_")[0] for name in checked_on] == ["tape-predicates"]


async def test_matcher_and_drainer_compile_in_a_thread(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []

    def watched(expression: str, **options: Any) -> Any:
        threads.append(threading.current_thread())
        return check(expression, **options)

    for rules in (reaction_rules, ledger_rules):
        monkeypatch.setattr(rules, "check", watched)
        rules._checked.cache_clear()
    bus = await open_bus(sqlite_url)
    try:
        await subscribe(bus)
        await register(bus)
        await bus.record_events([NewEvent("a.b", payload_json='{"n": -1}')])
        assert (await bus.ledger.drain()).processed == 1
        bus.start_matching()
        await bus.record_events([NewEvent("a.b", payload_json='{"n": 3}')])
        async with asyncio.timeout(30):
            assert await bus.tasks.claim_tasks(
                Claim("me", 1_000, [Want("r", 0, 1)]), wait_ms=30_000
            )
    finally:
        await bus.close()
    assert len(threads) >= 2
    assert threading.main_thread() not in threads


async def test_a_follower_is_refused_a_long_predicate_that_is_wrong(sqlite_url: str) -> None:
    bus = await open_bus(sqlite_url)
    try:
        with pytest.raises(InvalidArgument, match="predicate_cel"):
            await anext(bus.follow(FollowQuery(predicate=LONG + " +")))
    finally:
        await bus.close()


async def test_both_doors_share_what_was_checked(
    sqlite_url: str, serving: Serving, checked_on: list[str]
) -> None:
    async with door(serving, sqlite_url) as client:
        await client.post("/api/events/record", json={"event_type": "a.b", "payload": {"n": 3}})
        where = {"where": LONG}
        assert len((await client.get("/api/events/recent", params=where)).json()["events"]) == 1
        streaming = client.stream("GET", "/api/events/stream", params={**where, "after": "0"})
        async with streaming as stream:
            async for line in stream.aiter_lines():
                if line.startswith("id:"):
                    break
    assert [name.rpartition("_")[0] for name in checked_on] == ["tape-predicates"]


async def test_grpc_checks_in_a_thread(
    sqlite_url: str, serving: Serving, checked_on: list[str]
) -> None:
    addresses = await serving(sqlite_url)
    async with grpc.aio.insecure_channel(addresses.grpc) as channel:
        tape: Any = TapeStub(channel)
        request = pb.FollowEntriesRequest(
            subject_pattern="/tape/**", predicate_cel=LONG, to_global_seq=1
        )
        event = pb.NewEvent(event_type="a.b", payload_json='{"n": 3}')
        await tape.RecordEvents(pb.RecordEventsRequest(events=[event]))
        assert [len(batch.entries) async for batch in tape.FollowEntries(request)] == [1]
    assert [name.rpartition("_")[0] for name in checked_on] == ["tape-predicates"]
