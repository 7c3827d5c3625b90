"""A function that holds up the event loop past a lease: it goes on, or is told why it does not."""

import asyncio
import logging
import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import tape
from tape.model.lease import Taker
from tape.model.run import RunStatus
from tape.model.task import TaskOutcome
from tape.reactions.threads import HandlerThreads
from tape.reactions.work import CallHandler
from tape.runs.declare import Apps
from tape.runs.driving.context import Context
from tape.runs.reactors.run_reactors import RunReactors
from tape.settings import ReactorSettings, ReactorsSettings
from tape.telemetry import metrics
from tape.telemetry.loop_watch import watched_loop
from tests.unit.reactions.test_work import a_task

LEASE_S = 3.0
"""After a block the store has a sixth of it to renew it in, on a busy machine, too."""
BLOCK_S = 4.0
SHORT = ReactorSettings(lease_ttl_s=LEASE_S)
SETTINGS = ReactorsSettings(recovery=SHORT, agent=SHORT, outbox=SHORT, poll_s=0.02)


@pytest.fixture
def apps() -> Apps:
    return Apps()


def blocking(apps: Apps, acts: list[str]) -> tape.App[Any]:
    @tape.effect(registry=apps)
    async def charge() -> str:
        acts.append(tape.idempotency_key())
        time.sleep(BLOCK_S)  # noqa: ASYNC251 - what this is about
        return "charged"

    @tape.app("shop", registry=apps)
    async def shop(ctx: Context) -> str:
        paid = await charge()
        await ctx.record("paid")
        return paid

    return shop


async def test_a_run_goes_on_while_nobody_has_taken_it_over(
    tmp_path: Path, apps: Apps, caplog: pytest.LogCaptureFixture
) -> None:
    acts: list[str] = []
    app = blocking(apps, acts)
    async with tape.connect_async(f"sqlite:{tmp_path}/tape.db") as client:
        blocks = metrics.LOOP_BLOCKS.value
        run = await client.start_run(app)
        threads = HandlerThreads(2)
        reactors = RunReactors(
            client._operations, apps, SETTINGS, threads, owner="w", pool="shared"
        )
        with watched_loop(LEASE_S):
            await reactors.once()
        await reactors.close()
        ended = await client.get_run(run.run_id)
        assert ended is not None
        assert (ended.status, ended.outcome_json) == (RunStatus.TERMINAL, '"charged"')
    assert len(acts) == 1
    assert metrics.LOOP_BLOCKS.value == blocks + 1
    (told,) = [record for record in caplog.records if record.name == "tape.loop"]
    assert told.levelno == logging.WARNING
    words = told.getMessage()
    blocked = f"effect charge of run {run.run_id} has blocked the event loop for "
    (told_s,) = re.findall(f"^{re.escape(blocked)}([0-9.]+) s", words)
    assert LEASE_S / 2 <= float(told_s) < LEASE_S
    assert f"{__file__}:" in words
    assert "in charge" in words
    assert "asyncio.to_thread" in words


async def test_a_run_in_the_callers_process_goes_on_too(
    tmp_path: Path, apps: Apps, caplog: pytest.LogCaptureFixture
) -> None:
    acts: list[str] = []
    app = blocking(apps, acts)
    settings = tape.Settings(reactors=SETTINGS)
    async with tape.connect_async(f"sqlite:{tmp_path}/tape.db", settings=settings) as client:
        assert await client.run(app) == "charged"
    assert len(acts) == 1
    assert "effect charge of run" in caplog.text


async def test_one_that_was_taken_over_is_told_with_what_to_do(
    tmp_path: Path, apps: Apps, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"sqlite:{tmp_path}/tape.db"
    run_ids: list[str] = []

    async def take_over() -> None:
        async with tape.connect_async(url) as other:
            await other._operations.runs.resume_run(run_ids[0], Taker("another"))

    @tape.effect(registry=apps)
    async def charge() -> None:
        time.sleep(BLOCK_S)  # noqa: ASYNC251 - what this is about
        taking = threading.Thread(target=lambda: asyncio.run(take_over()))
        taking.start()
        taking.join()

    @tape.app("shop", registry=apps)
    async def shop(ctx: Context) -> None:
        await charge()

    async with tape.connect_async(url) as client:
        run = await client.start_run(shop)
        run_ids.append(run.run_id)
        threads = HandlerThreads(2)
        reactors = RunReactors(
            client._operations, apps, SETTINGS, threads, owner="w", pool="shared"
        )
        with watched_loop(LEASE_S):
            await reactors.once()
        await reactors.close()
        found = await client.get_run(run.run_id)
        assert found is not None
        assert found.lease_owner == "another"
    (told,) = [
        r
        for r in caplog.records
        if "is left to another" in r.getMessage() and r.levelno >= logging.WARNING
    ]
    words = told.getMessage()
    assert f"run {run.run_id} is left to another" in words
    blocked = f"while effect charge of run {run.run_id} blocked the event loop for "
    (took_s,) = re.findall(f"{re.escape(blocked)}([0-9.]+) s", words)
    assert float(took_s) > LEASE_S
    assert "plain def" in words
    assert "lease_ttl_s" in words


async def test_a_handler_that_holds_up_the_loop_is_named(caplog: pytest.LogCaptureFixture) -> None:
    threads = HandlerThreads(1)

    async def slow(envelope: dict[str, Any]) -> None:
        time.sleep(BLOCK_S)  # noqa: ASYNC251 - what this is about

    with watched_loop(LEASE_S):
        assert await CallHandler(slow, threads).do([a_task()]) == [TaskOutcome("r/0/7")]
    threads.shutdown()
    assert "slow of task r/0/7 has blocked the event loop" in caplog.text


async def test_a_loop_that_goes_on_is_not_told_of(caplog: pytest.LogCaptureFixture) -> None:
    with watched_loop(60.0):
        for _ in range(20):
            await asyncio.sleep(0.005)
    assert not caplog.records
