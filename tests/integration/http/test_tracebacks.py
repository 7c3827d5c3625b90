"""What the code of a worker raised, over both doors and on both stores."""

import asyncio
import logging
from typing import Any

import httpx
import pytest

import tape
from tape.errors import EffectFailed
from tape.model.task import TaskStatus
from tape.programs.worker import WorkerOptions, work
from tape.reactions.declare import Declaration, Registry
from tape.reactions.settings import new_reaction
from tape.runs.declare import Apps, RetryPolicy
from tests.integration.http.conftest import Serving

CAUSED = "The above exception was the direct cause"


def at_bank() -> None:
    raise ConnectionError("the bank is closed")


def apps() -> Apps:
    declared = Apps()

    def reverse(response: Any) -> None:
        at_bank()

    @tape.effect(retry=RetryPolicy(attempts=1), registry=declared)
    async def wire() -> None:
        at_bank()

    @tape.effect(compensate=reverse, compensate_attempts=1, registry=declared)
    async def hold() -> str:
        return "h1"

    @tape.app("pay", registry=declared)
    async def pay(_run: tape.Context, given: Any) -> None:
        if given:
            await hold()
        await wire()

    return declared


def reactions() -> Registry:
    registry = Registry()

    def handle(envelope: dict[str, Any]) -> None:
        at_bank()

    new = new_reaction("/tape/event/**", reaction_id="orders", retry_max=0)
    registry.add(Declaration(new, handle))
    return registry


async def test_it_is_on_the_task_the_run_and_the_dead_letter(
    store_url: str, serving: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    grpc, http, _ = await serving(store_url)
    stop, ready = asyncio.Event(), asyncio.Event()
    options = WorkerOptions(url=f"tape://{grpc}", apps=apps(), registry=reactions())
    worker = asyncio.create_task(work(options, on_ready=lambda _: ready.set(), stop=stop))
    async with (
        httpx.AsyncClient(base_url=f"http://{http}", timeout=60) as door,
        tape.connect_async(f"tape://{grpc}") as client,
        asyncio.timeout(60),
    ):
        await ready.wait()
        async with client.follow("/tape/task/dead_lettered/**") as letters:
            await client.record("order", {})
            letter = await anext(aiter(letters))
        run = await client.start_run("pay", None)
        with pytest.raises(EffectFailed) as failed:
            await client.run_result(run.run_id)
        stuck = await client.start_run("pay", True)
        with pytest.raises(EffectFailed):
            await client.run_result(stuck.run_id)
        (task,) = (await door.get("/api/tasks", params={"status": "dlq"})).json()["tasks"]
        found = (await door.get(f"/api/runs/{run.run_id}")).json()
        told = await client.read_run(stuck.run_id)
        (same,) = await client.list_tasks("orders", status=TaskStatus.DLQ)
        stop.set()
        await worker
    assert "in handle" in task["last_traceback"]
    assert task["last_traceback"].endswith("ConnectionError: the bank is closed")
    assert same.last_traceback == letter.payload["traceback"] == task["last_traceback"]
    effect, app = found["error"]["traceback"].split(CAUSED)
    assert ("in at_bank" in effect, "in pay" in app) == (True, True)
    assert "in at_bank" in str(failed.value.__cause__)
    (undone,) = [entry for entry in told if entry.subject.startswith("/tape/obligation/stuck/")]
    assert "in reverse" in undone.payload["traceback"]
    loggers = {each.name for each in caplog.records if "the bank is closed" in each.getMessage()}
    assert loggers == {"tape.dispatcher", "tape.runs", "tape.reactors"}  # none of the server's own
