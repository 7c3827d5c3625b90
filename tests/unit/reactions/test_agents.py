"""Runs for agent reactions: one for each entry, named after it, however often its task is done."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tape.bus import Bus, FollowQuery
from tape.errors import StoreUnavailable, TapeError
from tape.model.entry import Entry
from tape.model.event import NewEvent
from tape.model.move import Need
from tape.model.reaction import HandlerKind, NewReaction
from tape.model.run import RUNS, Run, RunName, RunStatus
from tape.model.task import TaskOutcome, TaskStatus
from tape.ports.store import Store
from tape.programs.connect import open_bus
from tape.programs.worker import WorkerOptions
from tape.reactions import agents, run_dispatcher
from tape.reactions.agents import Agents
from tape.reactions.tasks import Tasks
from tape.settings import Limits, Settings
from tape.stores.by_url import open_store
from tests.conformance.playing import Look, play
from tests.conformance.reacting import a_task, expect_sound, lead, queue, sources_with, until

TRACE_ID, SPAN_ID = "0af7651916cd43dd8448eb211c80319c", "00f067aa0ba902b7"
AGENT = NewReaction("follow-up", "/tape/event/**", HandlerKind.AGENT, agent_app="desk app")
PLACED = NewEvent("order.placed", '{"n":1}', "order", "7", trace_id=TRACE_ID, span_id=SPAN_ID)


@pytest.fixture
async def bus(store_url: str) -> AsyncIterator[Bus]:
    opened = await open_bus(store_url)
    yield opened
    await opened.close()
    closed = await open_store(store_url, Settings())
    await expect_sound(closed)
    await closed.close()


class FaultyTasks(Tasks):
    """Its first answers are lost."""

    faults = 0

    async def settle_tasks(
        self,
        owner: str,
        outcomes: "list[TaskOutcome]",  # type: ignore[override]
    ) -> list[TaskStatus | TapeError]:
        if self.faults:
            self.faults -= 1
            raise StoreUnavailable
        return await super().settle_tasks(owner, outcomes)


def agents_of(bus: Bus, tasks: Tasks | None = None) -> Agents:
    return Agents(bus._store, bus._writer, bus._ids, tasks or bus.tasks, bus.limits)


async def runs_in_journal(bus: Bus) -> list[Entry]:
    head = (await bus.info()).head_global_seq
    pages = bus.follow(FollowQuery("/tape/run/**", until=head))
    return [entry async for page in pages for entry in page.entries]


async def get_run(store: Store, name: RunName) -> Run:
    (run,) = await play(store, Look(Need(RUNS, name.run_id)))
    assert isinstance(run, Run)
    return run


async def test_a_run_is_begun_for_each_entry(bus: Bus) -> None:
    await bus.reactions.register_reaction(AGENT)
    bus.start_matching()
    (first,) = await bus.record_events([PLACED])
    (second,) = await bus.record_events([PLACED])

    async def both() -> list[Entry] | None:
        found = await runs_in_journal(bus)
        return found if len(found) == 2 else None

    entries = await until(both)
    for source, entry in zip((first, second), entries, strict=True):
        name = RunName("desk app", "", "", f"follow-up/{source.global_seq}")
        run = await get_run(bus._store, name)
        assert (run.status, run.app_name) == (RunStatus.RUNNABLE, "desk app")
        assert run.invocation_id == f"follow-up/{source.global_seq}"
        assert (entry.run_id, entry.seq, entry.kind) == (run.run_id, 1, "run")
        assert entry.subject.startswith("/tape/run/runnable/desk%20app/")
        assert entry.subject.endswith(f"/{run.run_id}")
        assert entry.payload["invocation_id"] == run.invocation_id
        assert entry.payload["input"]["global_seq"] == source.global_seq
        assert entry.payload["input"]["payload"] == {"n": 1}
        assert entry.payload["input"]["subject"] == "/tape/event/recorded/order.placed/order/7"
        assert (entry.trace_id, entry.parent_span_id) == (TRACE_ID, SPAN_ID)

    async def done() -> bool:
        return await sources_with(bus._store, TaskStatus.DONE, "follow-up") == [
            first.global_seq,
            second.global_seq,
        ]

    await until(done)


async def test_two_reactions_begin_two_runs_of_one_entry(bus: Bus) -> None:
    await bus.reactions.register_reaction(AGENT)
    await bus.reactions.register_reaction(AGENT._replace(reaction_id="other"))
    bus.start_matching()
    await bus.record_events([PLACED])

    async def both() -> bool:
        return len(await runs_in_journal(bus)) == 2

    await until(both)
    assert len({entry.run_id for entry in await runs_in_journal(bus)}) == 2


async def test_a_task_that_is_done_twice_begins_one_run(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents, "LEASE_MS", 1)
    await bus.reactions.register_reaction(AGENT)
    await bus.record_events([PLACED])
    await queue(bus._store, [a_task(1, "follow-up")])
    tasks = FaultyTasks(bus._store, bus._writer, bus._ids, Limits())
    tasks.faults = 1
    with pytest.raises(StoreUnavailable):
        await agents_of(bus, tasks).begin_runs("me", ["follow-up"])
    assert len(await runs_in_journal(bus)) == 1
    await bus._store.matching.release_matcher(await lead(bus._store))
    bus.start_matching()

    async def again() -> bool:
        return await sources_with(bus._store, TaskStatus.DONE, "follow-up") == [1]

    await until(again)
    task = await bus.tasks.get_task("follow-up/0/1")
    assert task is not None
    assert task.attempts == 2
    assert len(await runs_in_journal(bus)) == 1


async def test_more_than_fit_one_claim(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents, "AT_ONCE", 3)
    await bus.reactions.register_reaction(AGENT._replace(max_concurrency=5))
    await bus.record_events([PLACED] * 20)
    await queue(bus._store, [a_task(k, "follow-up") for k in range(1, 21)])
    await agents_of(bus).begin_runs("me", ["follow-up"])
    assert len(await runs_in_journal(bus)) == 20


async def test_a_reaction_that_names_no_app_any_more_keeps_its_tasks(bus: Bus) -> None:
    await bus.reactions.register_reaction(AGENT)
    await bus.record_events([PLACED])
    await queue(bus._store, [a_task(1, "follow-up")])
    await bus.reactions.register_reaction(
        AGENT._replace(handler_kind=HandlerKind.TASK, agent_app="")
    )
    async with asyncio.timeout(10):
        await agents_of(bus).begin_runs("me", ["follow-up"])
    assert await runs_in_journal(bus) == []
    assert await sources_with(bus._store, TaskStatus.PENDING, "follow-up") == [1]


async def test_there_may_be_more_reactions_than_one_claim_names(bus: Bus) -> None:
    most = Limits().claim_tasks
    await bus.reactions.register_reaction(AGENT)
    await bus.record_events([PLACED])
    await queue(bus._store, [a_task(1, "follow-up")])
    many = [f"other-{k}" for k in range(most)]
    await asyncio.gather(
        *(
            bus.reactions.register_reaction(AGENT._replace(reaction_id=reaction_id))
            for reaction_id in many
        )
    )
    await agents_of(bus).begin_runs("me", [*many, "follow-up"])
    assert len(await runs_in_journal(bus)) == 1


def test_a_dispatcher_drives_the_runs_of_its_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[WorkerOptions] = []
    monkeypatch.setattr("tape.programs.worker.run_worker", begun.append)
    run_dispatcher("sqlite:desk.db", pool="gpu")
    run_dispatcher("sqlite:desk.db")
    assert [options.pool for options in begun] == ["gpu", "shared"]
