"""What the code of a program raised in a run: its traceback is on record, told, and in the log."""

import asyncio
from typing import Any

import orjson
import pytest

import tape
from tape.cli.run_view import traceback_of_run
from tape.client.run_calls import outcome_of
from tape.errors import AckLost, EffectFailed, GiveUp
from tape.model.effect import EffectStatus
from tape.model.entry import Entry
from tape.model.run import Run, RunStatus
from tape.runs.declare import Apps, RetryPolicy
from tape.runs.driving.context import Context
from tape.runs.driving.sync_context import SyncContext
from tape.runs.looking.offline import ReplayVerdict, replay_offline
from tape.runs.looking.timeline import timeline
from tape.settings import Limits, Settings
from tape.testing.runs import AppKit, app_kit
from tests.unit.runs.driven import gone_on, outcome, ran, signalled

ONCE = RetryPolicy(attempts=1)
CAUSED = "The above exception was the direct cause of the following exception:"


def at_bank() -> None:
    raise ConnectionError("the bank is closed")


def traceback(run: Run) -> str:
    detail = orjson.loads(run.outcome_json)
    assert detail.keys() == {"type", "message", "traceback"}
    return str(detail["traceback"])


async def entries(kit: AppKit, run: Run, subject: str = "/tape/") -> list[Entry]:
    found = await kit._operations.runs.read_run(run.run_id, 0, 1_000)
    return [entry for entry in found if entry.subject.startswith(subject)]


def lines(caplog: pytest.LogCaptureFixture, level: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == level]


async def test_an_app_that_raises(
    kit: AppKit, apps: Apps, caplog: pytest.LogCaptureFixture
) -> None:
    @tape.app("fails", registry=apps)
    async def fails(ctx: Context) -> None:
        at_bank()

    run = await ran(kit, fails)
    shown = traceback(run)
    assert shown.startswith("Traceback (most recent call last):\n  File ")
    assert shown.split("\n")[1].endswith("in fails")
    assert shown.endswith("ConnectionError: the bank is closed")
    assert "in at_bank" in shown
    (line,) = lines(caplog, "ERROR")
    head, below = line.split("\n", 1)
    assert head == (f"run {run.run_id} of fails has failed: ConnectionError: the bank is closed")
    assert below == "\n".join(f"    {each}" for each in shown.split("\n"))
    told = timeline(await entries(kit, run))[-1]
    assert (told.detail, told.traceback) == ("ConnectionError: the bank is closed", shown)


async def test_an_app_in_a_thread_that_raises(kit: AppKit, apps: Apps) -> None:
    @tape.app("fails", registry=apps)
    def fails(ctx: SyncContext) -> None:
        at_bank()

    assert traceback(await ran(kit, fails)).split("\n")[1].endswith("in fails")


async def test_branches_that_raise_are_all_shown(kit: AppKit, apps: Apps) -> None:
    @tape.app("fails", registry=apps)
    async def fails(ctx: Context) -> None:
        async def branch(word: str) -> None:
            raise ValueError(word)

        async with asyncio.TaskGroup() as group:
            group.create_task(branch("one"))
            group.create_task(branch("two"))

    shown = traceback(await ran(kit, fails))
    assert "ValueError: one" in shown
    assert "ValueError: two" in shown


async def test_what_tape_refuses_has_no_traceback(kit: AppKit, apps: Apps) -> None:
    @tape.app("odd", registry=apps)
    async def odd(ctx: Context) -> Any:
        return object()

    run = await ran(kit, odd)
    assert run.status == RunStatus.FAILED
    assert orjson.loads(run.outcome_json).keys() == {"type", "message"}


async def test_an_effect_that_an_app_lets_by(
    kit: AppKit, apps: Apps, caplog: pytest.LogCaptureFixture
) -> None:
    @tape.effect(retry=ONCE, registry=apps)
    async def wire() -> None:
        at_bank()

    @tape.app("pays", registry=apps)
    async def pays(ctx: Context) -> None:
        await wire()

    run = await ran(kit, pays)
    effect, app = traceback(run).split(CAUSED)
    assert effect.split("\n")[1].endswith("in wire")
    assert "ConnectionError: the bank is closed" in effect
    assert "in pays" in app
    assert app.endswith("EffectFailed: wire: ConnectionError: the bank is closed")
    (failed,) = await entries(kit, run, "/tape/effect/failed/")
    assert failed.payload["error"]["traceback"] == effect.strip()
    (warned,) = lines(caplog, "WARNING")
    assert warned.startswith(f"effect {run.run_id}/decision-0/wire/0 has failed: Connection")
    assert "        at_bank()" in warned


@pytest.mark.parametrize("is_async", [True, False])
async def test_in_a_replay_the_effects_traceback_is_the_cause(
    kit: AppKit, apps: Apps, is_async: bool
) -> None:
    @tape.effect(retry=ONCE, registry=apps)
    async def wire() -> None:
        at_bank()

    @tape.effect(retry=ONCE, registry=apps)
    def wire_here() -> None:
        at_bank()

    @tape.app("pays", registry=apps)
    async def pays(ctx: Context) -> None:
        try:
            await wire()
        except EffectFailed as failed:
            await ctx.gate("go")
            raise LookupError("no way") from failed

    @tape.app("pays here", registry=apps)
    def pays_here(ctx: SyncContext) -> None:
        try:
            wire_here()
        except EffectFailed as failed:
            ctx.gate("go")
            raise LookupError("no way") from failed

    run = await ran(kit, pays if is_async else pays_here)
    effect, _failed, app = traceback(await signalled(kit, run)).split(CAUSED)
    assert "in at_bank" in effect
    assert app.endswith("LookupError: no way")


async def test_a_decision_that_could_not_be_had(
    kit: AppKit, apps: Apps, caplog: pytest.LogCaptureFixture
) -> None:
    async def ask() -> None:
        at_bank()

    @tape.app("decides", registry=apps)
    async def decides(ctx: Context) -> str:
        try:
            await ctx.decide("judge", {"n": 1}, ask)
        except EffectFailed as failed:
            await ctx.gate("go")
            return str(failed)
        return "decided"

    run = await ran(kit, decides)
    (failed,) = await entries(kit, run, "/tape/decision/failed/")
    shown = failed.payload["response"]["traceback"]
    assert "in ask" in shown
    (warned,) = lines(caplog, "WARNING")
    assert warned.startswith(f"decision judge of run {run.run_id} failed: ConnectionError")
    run = await signalled(kit, run)
    assert outcome(run) == "judge: ConnectionError: the bank is closed"
    (told,) = [line for line in timeline(await entries(kit, run)) if line.traceback]
    assert (told.what, told.traceback) == ("decision failed", shown)


async def test_a_child_that_failed(kit: AppKit, apps: Apps) -> None:
    @tape.app("child", registry=apps)
    async def child(ctx: Context) -> None:
        at_bank()

    @tape.app("parent", registry=apps)
    async def parent(ctx: Context) -> None:
        await ctx.result(await ctx.start("child"))

    run = await ran(kit, parent)
    below, own = traceback(run).split(CAUSED)
    assert "in at_bank" in below
    assert "in parent" in own
    message = orjson.loads(run.outcome_json)["message"]
    assert message.endswith("{'type': 'ConnectionError', 'message': 'the bank is closed'}")


async def test_whoever_waits_for_a_run_is_shown_where_it_failed(kit: AppKit, apps: Apps) -> None:
    @tape.app("fails", registry=apps)
    async def fails(ctx: Context) -> None:
        at_bank()

    with pytest.raises(EffectFailed) as failed:
        outcome_of(await ran(kit, fails))
    assert "in at_bank" in str(failed.value.__cause__)


async def test_a_dispatched_effect_is_tried_again_and_fails(
    kit: AppKit, apps: Apps, caplog: pytest.LogCaptureFixture
) -> None:
    twice = RetryPolicy(attempts=3, first_s=1.0, most_s=1.0)

    @tape.effect(dispatch="outbox", retry=twice, registry=apps)
    async def wire() -> None:
        at_bank()

    @tape.app("pays", registry=apps)
    async def pays(ctx: Context) -> None:
        await wire()

    run = await ran(kit, pays)
    kit.clock.advance(2)
    await gone_on(kit, run)
    kit.clock.advance(2)
    run = await gone_on(kit, run)
    for attempted in await entries(kit, run, "/tape/effect/attempted/"):
        assert "in at_bank" in attempted.payload["traceback"]
    effect, app = traceback(run).split(CAUSED)
    assert "in at_bank" in effect
    assert "in pays" in app
    first, second, last = lines(caplog, "WARNING")
    assert ("in at_bank" in first, "in at_bank" in second) == (True, False)
    assert "in at_bank" in last
    (*_, told) = [
        line for line in timeline(await entries(kit, run)) if line.what == "effect failed"
    ]
    assert "in at_bank" in told.traceback


async def test_a_dispatched_effect_in_doubt_and_a_check_that_raises(
    kit: AppKit, apps: Apps, caplog: pytest.LogCaptureFixture
) -> None:
    def check(_key: str, _request: Any) -> tape.Observed:
        raise GiveUp("the bank cannot tell")

    @tape.effect(semantics="non_idempotent", dispatch="outbox", check=check, registry=apps)
    async def wire() -> None:
        at_bank()

    @tape.app("pays", registry=apps)
    async def pays(ctx: Context) -> None:
        await wire()

    run = await ran(kit, pays)
    assert run.status == RunStatus.STUCK
    (unknown,) = await entries(kit, run, "/tape/effect/unknown/")
    assert "in at_bank" in unknown.payload["traceback"]
    assert "in check" in traceback(run)
    assert "in check" in traceback_of_run(run, await entries(kit, run))
    assert "in at_bank" in lines(caplog, "WARNING")[0]
    assert "in check" in lines(caplog, "ERROR")[0]


async def test_a_check_that_is_asked_again(
    kit: AppKit, apps: Apps, caplog: pytest.LogCaptureFixture
) -> None:
    def check(_key: str, _request: Any) -> tape.Observed:
        return at_bank()  # type: ignore[return-value, func-returns-value]

    @tape.effect(check=check, registry=apps)
    async def wire() -> None:
        raise AckLost("the line is dead")

    @tape.app("pays", registry=apps)
    async def pays(ctx: Context) -> None:
        await wire()

    run = await ran(kit, pays)
    kit.clock.advance(2)
    await gone_on(kit, run)
    row = await kit._operations.runs.get_effect(run.run_id, f"{run.run_id}/decision-0/wire/0")
    assert row is not None
    assert row.status == EffectStatus.UNKNOWN
    assert "in wire" in orjson.loads(row.error_json)["traceback"]
    asked = await entries(kit, run, "/tape/effect/attempted/")
    assert ["in check" in each.payload["traceback"] for each in asked] == [True, True]
    told = [line for line in lines(caplog, "WARNING") if line.startswith("the check of effect")]
    assert ["in check" in line for line in told] == [True, False]


async def test_a_compensator_that_raises(
    kit: AppKit, apps: Apps, caplog: pytest.LogCaptureFixture
) -> None:
    def reverse(response: Any) -> None:
        at_bank()

    @tape.effect(compensate=reverse, compensate_attempts=2, registry=apps)
    async def wire() -> str:
        return "w1"

    @tape.app("pays", registry=apps)
    async def pays(ctx: Context) -> None:
        await wire()
        raise ValueError("after all")

    run = await ran(kit, pays)
    kit.clock.advance(2)
    run = await gone_on(kit, run)
    assert run.status == RunStatus.STUCK
    assert "ValueError: after all" in traceback(run)
    for verb in ("attempted", "stuck"):
        (entry,) = await entries(kit, run, f"/tape/obligation/{verb}/")
        assert "in reverse" in entry.payload["traceback"]
    assert "in reverse" in traceback_of_run(run, await entries(kit, run))
    told = [line for line in lines(caplog, "WARNING") if line.startswith("obligation")]
    assert ["in reverse" in line for line in told] == [True, False]


async def test_a_traceback_is_cut_for_small_payloads(tmp_path: Any, apps: Apps) -> None:
    def deeper(depth: int) -> None:
        if depth % 2 or depth:
            deeper(depth - 1)
        at_bank()

    @tape.effect(retry=ONCE, registry=apps)
    async def wire() -> None:
        deeper(50)

    @tape.app("pays", registry=apps)
    async def pays(ctx: Context) -> None:
        await wire()

    limits = Limits(payload_bytes=700)
    async with app_kit(tmp_path, apps=apps, settings=Settings(limits=limits)) as kit:
        run = await ran(kit, pays)
        assert outcome(run) == "EffectFailed: wire: ConnectionError: the bank is closed"
        assert len(run.outcome_json) <= 700
        (failed,) = await entries(kit, run, "/tape/effect/failed/")
    error = failed.payload["error"]
    assert (error["type"], error["message"]) == ("ConnectionError", "the bank is closed")
    assert "lines left out" in error["traceback"]


async def test_code_that_moved_replays_the_same(kit: AppKit, apps: Apps) -> None:
    @tape.app("fails", registry=apps)
    async def fails(ctx: Context) -> None:
        await ctx.gate("go")
        at_bank()

    run = await signalled(kit, await ran(kit, fails))
    moved = Apps()

    @tape.app("fails", registry=moved)
    async def fails_elsewhere(ctx: Context) -> None:
        await ctx.gate("go")
        raise ConnectionError("the bank is closed")

    recorded = await entries(kit, run)
    replayed = await replay_offline(run, fails_elsewhere, recorded, kit._threads)
    assert replayed.verdict is ReplayVerdict.SAME
    assert "raises ConnectionError: the bank is closed" in replayed.text
    assert "Traceback" not in replayed.text
