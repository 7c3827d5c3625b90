"""Agent reactions: a program with nothing else, the pool of the runs, what a run is given."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

import tape
from tape.model.reaction import Reaction
from tape.model.task import Task, TaskStatus
from tape.programs.worker import Ready, WorkerOptions, work
from tape.reactions.declare import Declaration, Registry
from tape.reactions.settings import new_reaction
from tape.reactions.work import handler_envelope
from tape.runs.declare import Apps
from tests.conformance.reacting import until

PLACED = "/tape/event/recorded/order.placed/**"
BOUND_S = 30.0
OF_THE_TASK = {"task_id", "reaction_id", "attempt"}

Work = Callable[[WorkerOptions], Awaitable[Ready]]


@pytest.fixture
async def start() -> AsyncIterator[Work]:
    """Begins workers, and ends them with the test; what they say when they are ready."""
    async with AsyncExitStack() as running:

        async def one(options: WorkerOptions) -> Ready:
            return await running.enter_async_context(_working(options))

        yield one


@asynccontextmanager
async def _working(options: WorkerOptions) -> AsyncIterator[Ready]:
    stop = asyncio.Event()
    ready: asyncio.Future[Ready] = asyncio.get_running_loop().create_future()
    async with asyncio.timeout(BOUND_S), asyncio.TaskGroup() as group:
        group.create_task(work(options, on_ready=ready.set_result, stop=stop))
        yield await ready
        stop.set()


def desk(pool: str) -> Apps:
    """An app that returns what it was given."""
    apps = Apps()

    @tape.app("desk", pool=pool, registry=apps)
    async def _desk(ctx: Any, payload: Any) -> Any:
        return payload

    return apps


def reacting(**options: Any) -> Registry:
    registry = Registry()
    registry.add(Declaration(new_reaction(PLACED, **options), None))
    return registry


async def place_order(url: str) -> Any:
    """An order, and what the run that it begins returns."""
    async with tape.connect_async(url) as client:
        await client.record(
            "order.placed", {"n": 1}, entity_type="order", entity_id="7", source="test",
            idempotency_key="k",
        )  # fmt: skip
        runs = await until(lambda: client.list_runs(app_name="desk"))
        return await client.run_result(runs[0].run_id), runs[0]


async def only_reaction(url: str) -> Reaction:
    async with tape.connect_async(url) as client:
        (state,) = await client.list_reactions()
        return state.reaction


async def test_a_program_with_nothing_else_begins_runs_in_the_pool_that_it_names(
    store_url: str, start: Work
) -> None:
    """The apps are served by another program; the first one does not know them."""
    registry = reacting(agent="desk", pool="gpu", reaction_id="follow-up")
    ready = await start(WorkerOptions(url=store_url, registry=registry, apps=Apps()))
    assert [reaction.reaction_id for reaction in ready.reactions] == ["follow-up"]
    await start(WorkerOptions(url=store_url, registry=Registry(), apps=desk("gpu"), pool="gpu"))
    given, run = await place_order(store_url)
    assert run.pool == "gpu"
    assert (await only_reaction(store_url)).pool == "gpu"
    async with tape.connect_async(store_url) as client:
        (task,) = await client.list_tasks("follow-up", status=TaskStatus.DONE)
    assert given == as_handled(task)


def as_handled(task: Task) -> dict[str, Any]:
    """What a handler of that task would have been called with."""
    envelope = handler_envelope(task)
    assert envelope.keys() > OF_THE_TASK
    assert (envelope["event_type"], envelope["entity_id"]) == ("order.placed", "7")
    assert (envelope["source"], envelope["idempotency_key"]) == ("test", "k")
    return envelope


@pytest.mark.parametrize("by_name", [True, False])
async def test_runs_go_to_the_pool_that_the_app_is_declared_with(
    store_url: str, start: Work, by_name: bool
) -> None:
    apps = desk("gpu")
    registry = reacting(agent="desk" if by_name else apps.apps["desk"])
    await start(WorkerOptions(url=store_url, registry=registry, apps=apps, pool="gpu"))
    _given, run = await place_order(store_url)
    assert run.pool == "gpu"


async def test_a_reaction_may_name_another_pool_than_its_app(store_url: str, start: Work) -> None:
    apps = desk("gpu")
    registry = reacting(agent=apps.apps["desk"], pool="night")
    await start(WorkerOptions(url=store_url, registry=registry, apps=apps, pool="night"))
    _given, run = await place_order(store_url)
    assert run.pool == "night"
