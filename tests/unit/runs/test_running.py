"""Starting runs, telling them and running them here: by the module, and by either client."""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tape
from tape.errors import (
    Closed,
    EffectFailed,
    InvalidArgument,
    NotFound,
    RunCancelled,
    StoreUnavailable,
    TooLarge,
)
from tape.model.run import Run, RunStatus
from tape.reactions.threads import HandlerThreads
from tape.runs.declare import DECLARED_APPS, App, Apps
from tape.runs.driving import drive, run_here
from tape.runs.driving.context import Context
from tape.runs.driving.run_here import RunsHere, new_run
from tape.runs.driving.sync_context import SyncContext
from tape.settings import ReactorSettings, ReactorsSettings
from tape.testing.runs import AppKit
from tests.unit.runs.driven import Between, found, outcome, soon

HERE = ReactorsSettings(agent=ReactorSettings(30, heartbeat_s=0.005))


@pytest.fixture
def paid() -> list[int]:
    return []


@pytest.fixture
def desk(apps: Apps, paid: list[int]) -> App[Any]:
    """It pays, waits for a word and answers."""

    @tape.effect(registry=apps)
    def pay(cents: int) -> int:
        paid.append(cents)
        return cents

    @tape.app("desk", version="2", registry=apps)
    def desk(ctx: SyncContext, cents: int) -> dict[str, Any]:
        if cents < 0:
            raise LookupError("no such money")
        return {"paid": pay(cents), "word": ctx.gate("go") if cents else None}

    return desk


@pytest.fixture
def url(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("TAPE_URL", sqlite_url)
    return sqlite_url


@pytest.fixture
def declared(apps: Apps, desk: App[Any]) -> Iterator[None]:
    """Where a program that names no registry looks."""
    DECLARED_APPS.add_app(desk)
    yield
    del DECLARED_APPS.apps["desk"]


def test_a_program_without_a_client(
    url: str, desk: App[Any], declared: None, paid: list[int]
) -> None:
    run_id = tape.start(desk, 5, user_id="ada", session_id="s", invocation_id="first")
    assert tape.start("desk", 5, user_id="ada", session_id="s", invocation_id="first") == run_id
    assert tape.recover_once() == 1
    assert tape.recover_once() == 0
    with tape.connect() as client:
        run = client.get_run(run_id)
        assert run is not None
        assert (run.status, run.waiting_on) == (RunStatus.WAITING, "gate go")
        assert (run.user_id, run.session_id, run.app_version) == ("ada", "s", "2")
    assert tape.send_signal(run_id, "go", {"by": "ada"})
    assert not tape.send_signal(run_id, "go", "again")
    assert tape.recover_once() == 1
    with tape.connect() as client:
        assert client.run_result(run_id) == {"paid": 5, "word": {"by": "ada"}}
    assert paid == [5]


def test_another_store_than_that_of_the_environment(
    url: str, tmp_path: Path, apps: Apps, desk: App[Any]
) -> None:
    other = f"sqlite:{tmp_path / 'other.db'}"
    run_id = tape.start(desk, 0, url=other, pool="p")
    assert tape.recover_once(apps=apps) == 0
    assert tape.recover_once(apps=apps, url=other) == 0
    assert tape.recover_once(apps=apps, url=other, pool="p") == 1
    with tape.connect(other) as client:
        assert client.run_result(run_id) == {"paid": 0, "word": None}
    with pytest.raises(NotFound):
        tape.send_signal(run_id, "go")


def test_the_end_of_a_run_is_asked_for(url: str, apps: Apps, desk: App[Any]) -> None:
    run_id = tape.start(desk, 5)
    assert tape.cancel_run(run_id, "never mind").status == RunStatus.CANCELLED
    assert tape.recover_once(apps=apps) == 0
    with tape.connect() as client, pytest.raises(RunCancelled, match="never mind"):
        client.run_result(run_id)


def test_a_stuck_run_is_put_back(url: str, apps: Apps, desk: App[Any]) -> None:
    run_id = tape.start(desk, 5)
    tape.recover_once(apps=apps)
    apps.apps["desk"] = App("desk", lambda ctx: ctx.uuid())
    assert tape.resume(run_id).status == RunStatus.RUNNABLE
    tape.recover_once(apps=apps)
    with tape.connect() as client:
        with pytest.raises(EffectFailed, match="is stuck: step 1: the journal has effect pending"):
            client.run_result(run_id)
        assert [run.run_id for run in client.list_runs(status="stuck")] == [run_id]
        apps.apps["desk"] = desk
        assert client.resume_run(run_id).status == RunStatus.RUNNABLE
        tape.recover_once(apps=apps)
        found = client.get_run(run_id)
        assert found is not None
        assert found.status == RunStatus.WAITING


def test_a_run_that_is_driven_is_not_put_back(url: str, desk: App[Any]) -> None:
    with tape.connect() as client:
        run_id = client.start_run(desk, 5).run_id
        client.cancel_run(run_id)
        with pytest.raises(tape.RunEnded):
            client.resume_run(run_id)
        with pytest.raises(NotFound):
            client.resume_run("nobody's")
        with pytest.raises(NotFound):
            client.run_result("nobody's")
        assert client.get_run("nobody's") is None


async def test_a_program_with_an_event_loop_is_told_what_to_do(url: str) -> None:
    with pytest.raises(InvalidArgument, match=r"await asyncio.to_thread\(tape.recover_once\)"):
        tape.recover_once()
    assert await asyncio.to_thread(tape.recover_once, apps=Apps()) == 0


async def test_what_a_child_cannot_have_of_its_own(kit: AppKit, apps: Apps) -> None:
    @tape.app("parent", registry=apps)
    async def parent(ctx: Context) -> None:
        await tape.start("other", user_id="bob")

    run = await kit.start_run(parent)
    await kit.settle()
    assert outcome(await found(kit, run)) == (
        "InvalidArgument: user_id: not allowed for a child run, which has its parent's"
    )


def test_a_blocking_client_runs_an_app_here(
    url: str, desk: App[Any], declared: None, paid: list[int]
) -> None:
    with tape.connect() as client:
        assert client.run(desk, 0) == {"paid": 0, "word": None}
        assert client.run("desk", 0, invocation_id="same") == {"paid": 0, "word": None}
        assert client.run("desk", 0, invocation_id="same") == {"paid": 0, "word": None}
        assert paid == [0, 0]
        with pytest.raises(EffectFailed, match="is failed: no such money"):
            client.run(desk, -1)
        with pytest.raises(InvalidArgument, match="no app 'unknown' is declared in this process"):
            client.run("unknown")
        failed, *others = client.list_runs(app_name="desk")
        assert failed.status == RunStatus.FAILED
        assert len(others) == 2
        assert client.list_runs(app_name="desk", status="failed") == [failed]
        assert client.list_runs(status=RunStatus.FAILED, limit=1) == [failed]
        assert client.list_runs(after=failed.run_id) == others
        assert client.list_runs(pool="other") == []
        with pytest.raises(InvalidArgument, match="'gone' is not one of runnable, running"):
            client.list_runs(status="gone")
        kinds = [entry.subject.split("/")[3] for entry in client.read_run(failed.run_id)]
        assert kinds == ["running", "failed"]


async def test_a_run_here_waits_for_its_word(url: str, desk: App[Any]) -> None:
    async with tape.connect_async() as client, tape.connect_async() as other:
        running = asyncio.create_task(client.run(desk, 5, invocation_id="i"))
        run_id = new_run(desk, invocation_id="i").name.run_id
        async with other.follow_run(run_id) as entries:
            async for entry in entries:
                if entry.subject.startswith("/tape/run/waiting"):
                    break
        assert await other.send_signal(run_id, "go", "now")
        async with asyncio.timeout(20):
            assert await running == {"paid": 5, "word": "now"}
            assert await other.run_result(run_id) == {"paid": 5, "word": "now"}


@pytest.mark.parametrize("first", ["value", "deleted", "event", "child", "budget", "heartbeat"])
async def test_whatever_a_run_here_does_first_begins_it(
    kit: AppKit, apps: Apps, first: str
) -> None:
    @tape.app("begins", registry=apps)
    async def begins(ctx: Context) -> Any:
        steps: dict[str, Any] = {
            "value": lambda: ctx.set_value("ns", "k", 1),
            "deleted": lambda: ctx.delete_value("ns", "k"),
            "event": lambda: ctx.record("begun"),
            "child": lambda: ctx.start("other"),
            "budget": lambda: ctx.set_budget(usd=1),
            "heartbeat": ctx.heartbeat,
        }
        await steps[first]()
        return "begun"

    assert await kit.run(begins) == "begun"
    (run,) = await kit.list_runs(app_name="begins")
    assert run.fencing_token == 1


async def test_a_run_here_that_cannot_begin_says_why(
    kit: AppKit, apps: Apps, desk: App[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(TooLarge, match="pool"):
        await kit.run(desk, 0, pool="p" * 600)
    with pytest.raises(InvalidArgument, match="input: cannot be written as JSON"):
        await kit.run(desk, object())
    between = Between(kit._operations)

    async def away(name: str, _args: Any) -> None:
        if name == "begin_run":
            raise StoreUnavailable("no route")

    between.before = away
    here = RunsHere(between, HERE, "me", HandlerThreads(2))
    with pytest.raises(StoreUnavailable, match="no route"):
        await here.run(new_run(desk, 0), desk, is_new=True)
    assert await kit.list_runs() == []
    await here.close()


async def test_a_run_here_that_takes_long_to_begin_is_not_lost(kit: AppKit, apps: Apps) -> None:
    """Before its first step there is no lease that could be renewed."""
    begun, go_on = asyncio.Event(), asyncio.Event()
    between = Between(kit._operations)
    beats = 0

    async def count(name: str, _args: Any) -> None:
        nonlocal beats
        if name == "heartbeat_run":
            beats += 1
            if beats == 3:
                go_on.set()

    between.after = count

    @tape.app("late", registry=apps)
    async def late(ctx: Context) -> str:
        begun.set()
        await go_on.wait()
        return str(ctx.sample(lambda: "late"))

    @tape.app("beats", registry=apps)
    async def beating(ctx: Context) -> None:
        await ctx.record("begun")
        await go_on.wait()

    here = RunsHere(between, HERE, "me", HandlerThreads(2))
    running = asyncio.create_task(here.run(new_run(late), late, is_new=True))
    await soon(begun)
    async with asyncio.timeout(20):
        await here.run(new_run(beating), beating, is_new=True)
        run = await running
    assert outcome(run) == "late"
    await here.close()


async def test_a_run_here_that_begins_when_nobody_waits_any_more_is_left_to_others(
    kit: AppKit, apps: Apps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drive, "LET_GO_S", 0.02)
    asked, go_on, begun = asyncio.Event(), asyncio.Event(), asyncio.Event()
    between = Between(kit._operations)

    async def hold_up(name: str, _args: Any) -> None:
        if name == "begin_run":
            asked.set()
            await go_on.wait()

    async def tell(name: str, _args: Any) -> None:
        if name == "begin_run":
            begun.set()

    between.before, between.after = hold_up, tell

    @tape.app("late", registry=apps)
    async def late(ctx: Context) -> None:
        await ctx.record("begun")

    here = RunsHere(between, HERE, "me", HandlerThreads(1))
    running = asyncio.create_task(here.run(new_run(late), late, is_new=True))
    await soon(asked)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    go_on.set()
    await soon(begun)
    await asyncio.sleep(0)
    assert here._keeper._held == set()
    await here.close()


async def test_two_who_run_the_same_here_do_not_take_it_from_each_other(
    kit: AppKit, apps: Apps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_here, "LOOK_S", 0.001)
    acts: list[str] = []
    go_on, looked, looks = asyncio.Event(), asyncio.Event(), 0

    async def note(name: str, _args: Any) -> None:
        nonlocal looks
        looks += name == "get_run"
        if looks == 5:
            looked.set()

    between = Between(kit._operations)
    between.after = note

    @tape.effect(registry=apps)
    async def act() -> str:
        acts.append(tape.idempotency_key())
        await go_on.wait()
        return "acted"

    @tape.app("acts", registry=apps)
    async def acts_once(ctx: Context) -> str:
        return await act()

    here, new = RunsHere(between, HERE, "me", HandlerThreads(2)), new_run(acts_once)
    both = [asyncio.create_task(here.run(new, acts_once, is_new=False)) for _ in range(2)]
    await soon(looked)
    go_on.set()
    async with asyncio.timeout(20):
        assert [outcome(run) for run in await asyncio.gather(*both)] == ["acted", "acted"]
    assert len(acts) == 1
    assert (await kit.journal(new.name.run_id)).tokens() == [1]
    await here.close()


async def test_a_run_inside_of_an_effect_of_another_is_a_run_of_its_own(
    kit: AppKit, apps: Apps
) -> None:
    @tape.app("inner", registry=apps)
    async def inner(ctx: Context) -> Any:
        with pytest.raises(InvalidArgument, match="only while an effect is executed"):
            tape.idempotency_key()
        return [tape.random() < 1, ctx.run_id]

    @tape.effect(registry=apps)
    async def runs_it() -> Any:
        return await kit.run(inner)

    @tape.app("outer", registry=apps)
    async def outer(ctx: Context) -> Any:
        return [*await runs_it(), tape.random() < 1]

    drawn, inner_id, drawn_after = await kit.run(outer)
    assert (drawn, drawn_after) == (True, True)
    (found,) = await kit.list_runs(app_name="inner")
    assert (found.run_id, found.parent_run_id) == (inner_id, "")


async def test_a_client_that_is_closed_lets_go_of_what_it_runs(url: str, apps: Apps) -> None:
    hangs = asyncio.Event()

    @tape.app("hangs", registry=apps)
    async def hanging(ctx: Context) -> None:
        await ctx.record("begun")
        hangs.set()
        await asyncio.Event().wait()

    async with tape.connect_async() as client, tape.connect_async() as other:
        running = asyncio.create_task(client.run(hanging))
        await soon(hangs)
        await client.close()
        with pytest.raises(Closed):
            await running
        (run,) = await other.list_runs()
        assert (run.status, run.lease_owner) == (RunStatus.RUNNABLE, "")


async def test_a_caller_who_gives_up_leaves_the_run_to_others(
    kit: AppKit, apps: Apps, caplog: pytest.LogCaptureFixture
) -> None:
    hangs = asyncio.Event()

    @tape.app("hangs", registry=apps)
    async def hanging(ctx: Context, step: bool) -> str:
        if step:
            await ctx.record("begun")
        if not hangs.is_set():
            hangs.set()
            await asyncio.Event().wait()
        return "done"

    async def given_up(step: bool) -> None:
        hangs.clear()
        running = asyncio.create_task(kit.run(hanging, step))
        await soon(hangs)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running

    await given_up(step=False)
    assert await kit.list_runs() == []
    await given_up(step=True)
    (run,) = await kit.list_runs()
    assert run.status == RunStatus.RUNNABLE
    await kit.work()
    ended: Run = await found(kit, run)
    assert outcome(ended) == "done"
    assert caplog.messages == []
