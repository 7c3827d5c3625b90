"""Apps that say which events run them: registered by a worker, and run in order."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

import tape
from tape.ledger.declare import EventSubscriptions, on_event
from tape.model.event_subscription import NewEventSubscription
from tape.programs.worker import WorkerOptions, work
from tape.runs.declare import Apps
from tests.servers.tape_server import ServerProcess


@pytest.fixture(params=["embedded", "served"])
def url(request: pytest.FixtureRequest, sqlite_url: str) -> Iterator[str]:
    """A store in process, where the worker drains, and a server that does."""
    if request.param == "embedded":
        yield sqlite_url
        return
    with ServerProcess(sqlite_url) as server:
        yield server.url


async def test_a_worker_registers_and_runs_what_is_declared(url: str) -> None:
    apps, declared = Apps(), EventSubscriptions()
    given: list[dict[str, Any]] = []
    all_done = asyncio.Event()

    @on_event("price.*", where="payload.n > 1", input={"n": "$.payload.n"}, registry=declared)
    @on_event("order.*", drainer="orders", subscription_id="orders", registry=declared)
    @tape.app("desk", registry=apps)
    async def desk(_ctx: tape.Context, event: dict[str, Any]) -> None:
        given.append(event)
        if len(given) == 3:
            all_done.set()

    assert desk.name == "desk"
    options = WorkerOptions(url, apps=apps, event_subscriptions=declared)
    ready, stop = asyncio.Event(), asyncio.Event()
    working = asyncio.create_task(work(options, on_ready=lambda _ready: ready.set(), stop=stop))
    await ready.wait()
    async with tape.connect_async(url) as client:
        assert [row.subscription_id for row in await client.event_subscriptions()] == [
            "desk:price.*", "orders",
        ]  # fmt: skip
        for n in (1, 2, 3):
            await client.record("price.changed", {"n": n})
        placed = await client.record("order.placed", {"sku": "a"}, entity_id="7")
        async with asyncio.timeout(30):
            await all_done.wait()
    stop.set()
    await working
    assert [event["n"] for event in given if "n" in event] == [2, 3]
    (whole,) = [event for event in given if "n" not in event]
    assert (whole["event_id"], whole["entity_id"]) == (placed.event_id, "7")
    assert whole["payload"] == {"sku": "a"}


def app(name: str) -> tape.App[Any]:
    return tape.app(name, registry=Apps())(lambda _ctx: None)


def test_what_is_declared() -> None:
    declared = EventSubscriptions()
    on_event("a.*", awaits_end=False, enabled=False, registry=declared)(app("x"))
    on_event("a.*", awaits_end=False, enabled=False, registry=declared)(app("x"))  # loaded again
    assert list(declared) == [
        NewEventSubscription("x:a.*", "a.*", "x", enabled=False, awaits_end=False)
    ]
    with pytest.raises(tape.InvalidArgument, match="another subscription has the id"):
        on_event("a.*", registry=declared)(app("x"))


def test_runs_go_to_the_pool_of_the_app_or_the_one_that_is_said() -> None:
    declared = EventSubscriptions()
    trained = tape.app("train", pool="gpu", registry=Apps())(lambda _ctx: None)
    on_event("a", registry=declared)(trained)
    on_event("b", pool="big", registry=declared)(trained)
    on_event("c", pool="shared", registry=declared)(trained)
    on_event("d", registry=declared)(app("x"))
    assert [new.pool for new in declared] == ["gpu", "big", "shared", ""]


async def test_an_app_in_a_pool_of_its_own_is_run_by_its_workers(url: str) -> None:
    apps, declared = Apps(), EventSubscriptions()
    done = asyncio.Event()

    @on_event("order.*", registry=declared)
    @tape.app("train", pool="gpu", registry=apps)
    async def train(_ctx: tape.Context, _event: dict[str, Any]) -> None:
        done.set()

    options = WorkerOptions(url, apps=apps, event_subscriptions=declared, pool="gpu")
    ready, stop = asyncio.Event(), asyncio.Event()
    working = asyncio.create_task(work(options, on_ready=lambda _ready: ready.set(), stop=stop))
    await ready.wait()
    async with tape.connect_async(url) as client:
        (row,) = await client.event_subscriptions()
        assert row.pool == "gpu"
        await client.record("order.placed", {})
        async with asyncio.timeout(30):
            await done.wait()
    stop.set()
    await working


@pytest.mark.parametrize(
    ("glob", "options", "message"),
    [
        ("a?", {}, "event_type_glob at position 1"),
        ("a", {"where": "payload >"}, "where at position"),
        ("a", {"input": {"n": "payload.n"}}, "input_mapper.n at position 0"),
        ("a", {"drainer": ""}, "drainer_id: must not be empty"),
        ("a", {"pool": "a\0"}, "pool at position 1: NUL"),
    ],
)
def test_a_bad_declaration_is_refused_at_once(
    glob: str, options: dict[str, Any], message: str
) -> None:
    declared = EventSubscriptions()
    with pytest.raises(tape.InvalidArgument, match=message):
        on_event(glob, registry=declared, **options)(app("x"))
    assert list(declared) == []


def test_it_goes_above_an_app() -> None:
    def plain() -> None: ...

    with pytest.raises(tape.InvalidArgument, match=r"write @tape\.on_event above @tape\.app"):
        on_event("a", registry=EventSubscriptions())(plain)  # type: ignore[type-var]
