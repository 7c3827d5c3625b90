"""The treasury where nothing is killed but much goes wrong: what was asked for is done once."""

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

import tape
from examples.treasury.app import FEE_CENTS, treasury
from examples.treasury.clients import Controls
from examples.treasury.counterparties import CounterpartyServer
from examples.treasury.records import Books, Outcome, Route
from tape.runs.boundary import set_boundary_hook
from tape.testing.runs import AppKit, Crashed, RunJournal, app_kit
from tests.integration.cli.command import tape as command

CENTS = 1_000_000_00
INPUT = {"floor_cents": 5_000_000_00 - CENTS - FEE_CENTS}
TOOLS: dict[Route, str] = {
    "bank.wire": "sweep",
    "broker.order": "hedge",
    "bank.plain_wire": "pay_fee",
    "ledger.batch": "post_ledger",
}
DONE_ONCE = [(route, "did") for route in TOOLS]
LEASE_S = 31


class Desk:
    """One treasury run at a time, on a store and books of its own."""

    def __init__(self, kit: AppKit, server: CounterpartyServer, controls: Controls) -> None:
        self.kit = kit
        self.server = server
        self.controls = controls
        self.run_id = ""

    async def begin(self, **more: Any) -> tape.Run:
        """Start it, and see how far it comes by itself."""
        self.run_id = (await self.kit.start_run(treasury, {**INPUT, **more})).run_id
        return await self.settle()

    async def settle(self, *, after_s: float = 0) -> tape.Run:
        self.kit.clock.advance(after_s)
        run = await self.kit.settle(self.run_id)
        assert run is not None
        return run

    async def journal(self) -> RunJournal:
        return await self.kit.journal(self.run_id)

    async def story_of(self, tool: str) -> list[str]:
        """What the journal tells of an effect, in order."""
        return [
            entry.subject.split("/")[3]
            for entry in (await self.journal()).entries
            if entry.kind == "effect" and entry.payload["tool_name"] == tool
        ]

    @property
    def calls(self) -> list[tuple[Route, Outcome]]:
        return [(call["route"], call["outcome"]) for call in self.controls.calls()]

    @property
    def books(self) -> Books:
        return self.controls.books()


@pytest.fixture
async def desk(
    own_server: CounterpartyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Desk]:
    monkeypatch.setenv("TREASURY_URL", own_server.url)
    with Controls(own_server.url) as controls:
        async with app_kit(tmp_path) as kit:
            yield Desk(kit, own_server, controls)


@pytest.fixture(autouse=True)
def _no_hook_is_left() -> Iterator[None]:
    yield
    set_boundary_hook(None)


async def check_done(desk: Desk, run: tape.Run) -> None:
    """Everything is there once, and the run says which."""
    assert run.status == tape.RunStatus.TERMINAL, run.outcome_json
    sweep, fee = desk.books["wires"]
    (order,), (batch,) = desk.books["orders"], desk.books["batches"]
    assert (sweep["cents"], fee["cents"], order["cents"]) == (CENTS, FEE_CENTS, CENTS)
    assert await desk.kit.run_result(run.run_id) == {
        "swept_cents": CENTS,
        "wire": sweep["id"],
        "order": order["id"],
        "fee": fee["id"],
        "batch": batch["id"],
    }


async def test_undisturbed(desk: Desk) -> None:
    await check_done(desk, await desk.begin())
    assert desk.calls == DONE_ONCE
    entries = (await desk.journal()).entries
    (event,) = (entry for entry in entries if entry.kind == "event")
    assert event.payload == {"cents": CENTS, "wire": "wire-1"}


async def test_nothing_above_the_floor(desk: Desk) -> None:
    run = await desk.begin(floor_cents=5_000_000_00)
    assert await desk.kit.run_result(run.run_id) == {"swept_cents": 0}
    assert desk.calls == []


async def test_it_waits_for_approval(desk: Desk) -> None:
    run = await desk.begin(approve_above_cents=CENTS - 1)
    assert (run.status, run.waiting_on) == (tape.RunStatus.WAITING, "gate approve")
    run = await desk.settle(after_s=24 * 3600)
    assert run.status == tape.RunStatus.WAITING
    assert desk.calls == []
    (asked,) = (e.payload for e in (await desk.journal()).entries if e.kind == "gate")
    assert asked == {"gate_name": "approve", "payload": {"cents": CENTS, "price": "1.0850"}}

    assert await desk.kit.send_signal(run.run_id, "approve", {"approved": True})
    await check_done(desk, await desk.settle())
    assert desk.calls == DONE_ONCE


async def test_it_is_refused(desk: Desk) -> None:
    run = await desk.begin(approve_above_cents=0)
    await desk.kit.send_signal(run.run_id, "approve", {"approved": False})
    run = await desk.settle()
    assert await desk.kit.run_result(run.run_id) == {"swept_cents": 0, "refused": True}
    assert not await desk.kit.send_signal(run.run_id, "approve", {"approved": True})
    assert desk.calls == []


async def test_what_is_not_above_the_threshold_needs_no_approval(desk: Desk) -> None:
    await check_done(desk, await desk.begin(approve_above_cents=CENTS))


@pytest.mark.parametrize("route", TOOLS)
async def test_a_lost_ack_is_looked_into(desk: Desk, route: Route) -> None:
    desk.controls.set_hook(route, "lose_ack")
    await check_done(desk, await desk.begin())
    assert desk.calls == DONE_ONCE, "nothing was asked for again"
    claimed = ["claimed"] if route == "bank.plain_wire" else []
    story = ["pending", *claimed, "unknown", "claimed", "reconciled"]
    assert await desk.story_of(TOOLS[route]) == story


async def test_every_ack_is_lost(desk: Desk) -> None:
    for route in TOOLS:
        desk.controls.set_hook(route, "lose_ack")
    await check_done(desk, await desk.begin())
    assert desk.calls == DONE_ONCE


async def test_a_fee_that_was_certainly_not_paid_is_paid(desk: Desk) -> None:
    desk.controls.set_hook("bank.plain_wire", "fail")
    await check_done(desk, await desk.begin())
    assert [outcome for route, outcome in desk.calls if route == "bank.plain_wire"] == [
        "failed", "did",
    ]  # fmt: skip
    assert await desk.story_of("pay_fee") == [
        "pending", "claimed", "unknown", "claimed", "reconciled", "claimed", "confirmed",
    ]  # fmt: skip


async def test_a_fee_that_was_paid_twice(desk: Desk, tmp_path: Path) -> None:
    desk.controls.set_hook("bank.plain_wire", "twice")
    set_boundary_hook(_crash_at("after act pay_fee"))
    run = await desk.begin()
    assert run.status == tape.RunStatus.WAITING

    found: list[list[str]] = []

    def look(name: str) -> None:
        if name.endswith("RecordExternalObservation"):
            found.append(_subjects(tmp_path / "tape.db"))

    set_boundary_hook(look)
    run = await desk.settle(after_s=LEASE_S)
    before, after = found
    assert after[len(before) :] == [
        "effect reconciled pay_fee",
        "run runnable treasury",
        "obligation registered return_fee",
        "obligation registered duplicate:return_second_fee",
    ]
    assert run.status == tape.RunStatus.TERMINAL, run.outcome_json
    _sweep, first, second = desk.books["wires"]
    assert (await desk.kit.run_result(run.run_id))["fee"] == first["id"]
    assert (first["reversed"], second["reversed"]) == (False, True)
    assert desk.calls.count(("bank.plain_wire", "did")) == 1
    assert [(c["key"], c["outcome"]) for c in _reversals(desk)] == [(second["id"], "did")]
    undone = [s for s in _subjects(tmp_path / "tape.db") if s.startswith("obligation compensated")]
    assert undone == ["obligation compensated duplicate:return_second_fee"]


async def test_a_refused_hedge_has_the_sweep_reversed(desk: Desk) -> None:
    desk.controls.set_hook("broker.order", "refuse")
    run = await desk.begin()
    assert run.status == tape.RunStatus.FAILED
    assert "hedge: GiveUp: refused (422): refused, as a hook asks" in run.outcome_json
    assert desk.calls == [("bank.wire", "did"), ("broker.order", "refused"),
                          ("bank.reverse", "did")]  # fmt: skip
    (wire,) = desk.books["wires"]
    assert wire["reversed"]
    with pytest.raises(tape.EffectFailed, match="refused, as a hook asks"):
        await desk.kit.run_result(run.run_id)


async def test_what_was_done_last_is_undone_first(desk: Desk) -> None:
    desk.controls.set_hook("ledger.batch", "refuse")
    run = await desk.begin()
    assert run.status == tape.RunStatus.FAILED
    undone = [(call["route"], call["key"]) for call in desk.controls.calls()][4:]
    assert undone == [("bank.reverse", "wire-2"), ("broker.cancel", "order-1"),
                      ("bank.reverse", "wire-1")]  # fmt: skip
    assert [wire["reversed"] for wire in desk.books["wires"]] == [True, True]
    assert desk.books["orders"][0]["cancelled"]


async def test_a_lost_ack_of_a_reversal(desk: Desk) -> None:
    desk.controls.set_hook("broker.order", "refuse")
    desk.controls.set_hook("bank.reverse", "lose_ack")
    run = await desk.begin()
    assert run.status == tape.RunStatus.COMPENSATING
    run = await desk.settle(after_s=2)
    assert run.status == tape.RunStatus.FAILED
    assert [call["outcome"] for call in _reversals(desk)] == ["did", "repeated"]


async def test_a_reversal_that_keeps_failing(
    desk: Desk, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    desk.controls.set_hook("broker.order", "refuse")
    desk.controls.set_hook("bank.reverse", "fail", times=1_000)
    run = await desk.begin()
    for _attempt in range(4):
        assert run.status == tape.RunStatus.COMPENSATING
        run = await desk.settle(after_s=60)
    assert run.status == tape.RunStatus.STUCK
    errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert [record.name for record in errors] == ["tape.runs", "tape.reactors"]
    failed, loud = errors
    assert "of treasury has failed: EffectFailed: hedge: GiveUp" in failed.getMessage()
    assert "(reverse_wire)" in loud.getMessage()
    assert "stuck after 5 attempts" in loud.getMessage()
    assert "Unavailable" in loud.getMessage()
    assert [call["outcome"] for call in _reversals(desk)] == ["failed"] * 5

    run = await desk.settle(after_s=24 * 3600)
    assert run.status == tape.RunStatus.STUCK, "an operator must look"
    desk.controls.clear_hooks()
    done = command("runs", "resume", run.run_id, "--store", "sqlite:tape.db", folder=tmp_path)
    assert done.code == 0, done.err
    run = await desk.settle()
    assert run.status == tape.RunStatus.FAILED
    assert "refused, as a hook asks" in run.outcome_json
    assert [call["outcome"] for call in _reversals(desk)] == ["failed"] * 5 + ["did"]
    assert desk.books["wires"][0]["reversed"]


async def test_a_bank_that_is_away_for_a_while(desk: Desk) -> None:
    desk.server.kill()
    tried: list[str] = []
    often = asyncio.Event()

    def count(name: str) -> None:
        tried.append(name)
        if tried.count("after act read_balances") == 3:
            often.set()

    set_boundary_hook(count)
    running = asyncio.create_task(desk.begin())
    await often.wait()
    desk.server.start()
    await check_done(desk, await running)
    assert desk.calls == DONE_ONCE


@pytest.mark.parametrize("route", TOOLS)
async def test_one_that_is_away_is_asked_again(desk: Desk, route: Route) -> None:
    desk.controls.set_hook(route, "fail", times=3)
    run = await desk.begin()
    await check_done(desk, run)
    asked = [outcome for called, outcome in desk.calls if called == route]
    assert asked == ["failed", "failed", "failed", "did"]


@pytest.mark.parametrize("route", TOOLS)
async def test_a_counterparty_that_dies_after_doing_it(
    desk: Desk, route: Route, caplog: pytest.LogCaptureFixture
) -> None:
    desk.controls.set_hook(route, "crash")
    run = await desk.begin()
    assert run.status == tape.RunStatus.WAITING
    assert f"the check of effect {run.run_id}" in caplog.text
    assert (await desk.story_of(TOOLS[route]))[-2:] == ["claimed", "attempted"]
    assert desk.server.wait() < 0
    desk.server.start()
    await check_done(desk, await desk.settle(after_s=2))
    assert desk.calls == DONE_ONCE


def _reversals(desk: Desk) -> list[Any]:
    return [call for call in desk.controls.calls() if call["route"] == "bank.reverse"]


def _crash_at(place: str) -> Any:
    """As good as a kill there: nothing more is done or written."""
    crashed = False

    def come_to(name: str) -> None:
        nonlocal crashed
        crashed = crashed or name == place
        if crashed:
            raise Crashed(name)

    return come_to


def _subjects(file: Path) -> list[str]:
    with closing(sqlite3.connect(file)) as db:
        rows = db.execute("SELECT subject FROM tape_journal ORDER BY global_seq").fetchall()
    return [unquote(" ".join(subject.split("/")[2:5])) for (subject,) in rows]
