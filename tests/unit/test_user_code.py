"""What functions of a program raise is their own failure, unless they are cut off."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

import tape
from tape.model.run import RunStatus
from tape.model.task import TaskOutcome
from tape.ports.user_code import as_failure, called
from tape.reactions.threads import HandlerThreads
from tape.reactions.work import CallHandler
from tape.runs.declare import Apps
from tape.runs.driving.context import Context
from tape.runs.driving.sync_context import SyncContext
from tape.testing.runs import app_kit
from tests.unit.reactions.test_work import a_task
from tests.unit.runs.driven import outcome


def leave(*_args: object) -> NoReturn:
    raise GeneratorExit("left")


def test_in_a_thread_it_is_a_failure() -> None:
    with pytest.raises(RuntimeError, match="GeneratorExit") as failed:
        called(leave)
    assert isinstance(failed.value.__cause__, GeneratorExit)


@pytest.mark.parametrize("how", ["raised", "passed on"])
async def test_on_the_loop_it_is_a_failure_too(how: str) -> None:
    async def passing_on() -> None:
        try:
            await asyncio.sleep(0)
            leave()
        finally:
            if how == "passed on":
                await asyncio.sleep(0)

    with pytest.raises(GeneratorExit) as raised:
        await passing_on()
    assert isinstance(as_failure(raised.value), RuntimeError)


@pytest.mark.parametrize("waiting", ["future", "sleep"])
async def test_a_coroutine_that_is_closed_ends(waiting: str) -> None:
    seen: list[str] = []

    async def waits() -> None:
        try:
            await (asyncio.sleep(60) if waiting == "sleep" else asyncio.Event().wait())
        except BaseException as raised:
            seen.append(type(raised).__name__)
            raise as_failure(raised) from raised

    coroutine = waits()
    coroutine.send(None)
    coroutine.close()
    assert seen == ["GeneratorExit"]


@pytest.mark.parametrize("colour", ["async", "thread"])
async def test_a_handler_that_raises_it_has_failed(colour: str) -> None:
    async def leaves(_envelope: dict[str, Any]) -> None:
        leave()

    threads = HandlerThreads(1)
    handlers: dict[str, Callable[..., Any]] = {"async": leaves, "thread": leave}
    (ended,) = await CallHandler(handlers[colour], threads).do([a_task()])
    threads.shutdown()
    assert isinstance(ended, TaskOutcome)
    assert (ended.verdict, "GeneratorExit" in ended.error) == ("failed", True)


@pytest.mark.parametrize("where", ["app", "effect"])
@pytest.mark.parametrize("colour", ["async", "thread"])
async def test_a_run_that_raises_it_has_failed(tmp_path: Path, where: str, colour: str) -> None:
    apps = Apps()

    @tape.effect(registry=apps)
    async def leaves() -> None:
        leave()

    @tape.effect(registry=apps)
    def leaves_plainly() -> None:
        leave()

    @tape.app("leaves", registry=apps)
    async def app(ctx: Context) -> None:
        await leaves() if where == "effect" else leave()

    @tape.app("leaves in a thread", registry=apps)
    def plain_app(ctx: SyncContext) -> None:
        leaves_plainly() if where == "effect" else leave()

    async with app_kit(tmp_path, apps=apps) as kit:
        run = await kit.start_run(app if colour == "async" else plain_app)
        ended = await kit.settle(run.run_id)
    assert ended is not None
    assert ended.status == RunStatus.FAILED
    assert "GeneratorExit" in outcome(ended)
