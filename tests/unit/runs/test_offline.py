"""Replaying offline: what the code does with a journal, with nothing done and nothing written."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import orjson
import pytest

from tape import Context, SyncContext
from tape.errors import AckLost, InvalidArgument
from tape.model.entry import Entry
from tape.model.run import Run, RunStatus
from tape.runs.declare import App, Apps, app, effect
from tape.runs.looking.offline import Replayed, ReplayVerdict, replay_offline
from tape.testing.runs import AppKit, app_kit

APPS = Apps()
DONE: list[str] = []


def reverse(response: str) -> None:
    DONE.append(f"reverse {response}")


@effect(registry=APPS, compensate=reverse)
async def wire(cents: int, to: str = "") -> str:
    DONE.append(f"wire {cents}")
    return f"w{cents}"


@effect(registry=APPS)
def post(text: str) -> str:
    DONE.append(f"post {text}")
    return text.upper()


@effect(registry=APPS)
async def refused() -> None:
    DONE.append("refused")
    raise ValueError("no such account")


@effect(registry=APPS)
async def doubtful() -> None:
    DONE.append("doubtful")
    raise AckLost("the line is dead")


def drawn(what: Any) -> Any:
    DONE.append(f"drawn {what}")
    return what


async def ask() -> str:
    DONE.append("ask")
    return "go"


@app("everything", version="1", registry=APPS)
async def everything(ctx: Context, cents: int) -> dict[str, Any]:
    """A step of every kind."""
    started = ctx.now()
    colour = ctx.sample(lambda: drawn("red"), name="colour")
    answer = await ctx.decide("model", {"q": 1}, ask, rationale="it said so")
    wired = await wire(cents, to="DE1")
    posted = await ctx.call(post, "a")
    await ctx.set_budget(usd=5)
    await ctx.charge(usd=0.5)
    await ctx.heartbeat()
    await ctx.sleep(3)
    approved = await ctx.gate("approve", {"cents": cents}, timeout_s=600)
    version = await ctx.set_value("ns", "k", {"cents": cents})
    value = await ctx.get_value("ns", "k")
    await ctx.record("paid", {"cents": cents}, entity_type="order", entity_id="7")
    child = await ctx.result(await ctx.start(small, 2))
    new = ctx.patched("fees")
    found = [colour, answer, wired, posted, approved, version, value, child, new]
    return {"at": started.isoformat(), "found": found}


@app("small", registry=APPS)
def small(ctx: SyncContext, number: int) -> int:
    ctx.sample(lambda: drawn(number))
    return len(post(str(number))) + number


@app("plain", version="2", registry=APPS)
def plain(ctx: SyncContext) -> list[Any]:
    got = [ctx.random(), ctx.call(wire, 5), post("x"), ctx.decide("m", 1, lambda: drawn(9))]
    return [*got, ctx.gate("g"), str(ctx.uuid())]


@app("failing", registry=APPS)
async def failing(ctx: Context) -> None:
    await wire(1)
    await refused()


@app("in doubt", registry=APPS)
async def in_doubt(ctx: Context) -> None:
    await doubtful()


@app("draws badly", registry=APPS)
async def draws_badly(ctx: Context) -> None:
    ctx.sample(lambda: drawn(1) / 0)


@app("gathers", registry=APPS)
async def gathers(ctx: Context) -> list[Any]:
    return await asyncio.gather(*(ctx.call(wire, cents) for cents in (1, 2, 3)))


@app("holds on", registry=APPS)
async def holds_on(ctx: Context) -> str:
    """What it makes of being unwound does not count."""
    found = await asyncio.gather(ctx.call(wire, 1), ctx.call(wire, 2), return_exceptions=True)
    return str(found)


@app("charges", registry=APPS)
async def charges(ctx: Context) -> str:
    try:
        await ctx.charge(usd=1)
    except BaseException:  # noqa: BLE001 - as bad as an app can be
        return "caught"
    return "charged"


@app("branches", registry=APPS)
async def branches(ctx: Context) -> list[str]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(ctx.call(wire, cents)) for cents in (1, 2, 3)]
    return [task.result() for task in tasks]


@pytest.fixture(autouse=True)
def _forget() -> None:
    DONE.clear()


@pytest.fixture
async def kit(tmp_path: Path) -> AsyncIterator[AppKit]:
    async with app_kit(tmp_path, apps=APPS) as kit:
        yield kit


class Recorded:
    """A run with its journal, to be replayed with this code or that."""

    def __init__(self, run: Run, entries: Sequence[Entry]) -> None:
        self.run = run
        self.entries = entries

    async def replay(self, code: App[Any] | Any, **changes: Any) -> Replayed:
        """What comes of it; nothing at all is done on the way."""
        if not isinstance(code, App):
            code = App(self.run.app_name, code, self.run.app_version)
        before = list(DONE)
        with ThreadPoolExecutor(1) as executor:
            found = await asyncio.wait_for(
                replay_offline(self.run._replace(**changes), code, self.entries, executor), 60
            )
        assert before == DONE
        return found

    def first(self, count: int) -> "Recorded":
        """As it stood when only so much was written."""
        running = self.run._replace(
            status=RunStatus.RUNNING.value, outcome_json="", ending=0, ended_at_ms=0
        )
        return Recorded(running, self.entries[:count])

    def seq(self, what: str) -> int:
        """Of the last entry whose subject begins like that."""
        return max(e.seq for e in self.entries if e.subject.startswith(f"/tape/{what}"))


async def ran(kit: AppKit, code: App[Any], payload: Any = None, **signals: Any) -> Recorded:
    run = await kit.start_run(code, payload)
    for gate, word in signals.items():
        await kit.send_signal(run.run_id, gate, word)
    settled = await kit.settle(run.run_id)
    assert settled is not None
    return Recorded(settled, await kit.read_run(run.run_id))


async def test_the_same_code_does_the_same(kit: AppKit) -> None:
    recorded = await ran(kit, everything, 100, approve={"by": "ada"})
    assert recorded.run.status == RunStatus.TERMINAL
    found = await recorded.replay(everything)
    assert (found.verdict, found.steps) == (ReplayVerdict.SAME, 14)
    assert found.text.startswith("replayed 14 steps: the code does what the journal records, and")
    assert list(await kit.read_run(recorded.run.run_id)) == list(recorded.entries)


async def test_code_that_is_not_asynchronous(kit: AppKit) -> None:
    recorded = await ran(kit, plain, g=[1])
    assert recorded.run.status == RunStatus.TERMINAL
    found = await recorded.replay(plain)
    assert (found.verdict, found.steps) == (ReplayVerdict.SAME, 6)


@pytest.mark.parametrize(
    ("code", "payload"),
    [
        (everything, 100),
        (plain, None),
        (failing, None),
        (branches, None),
        (gathers, None),
        (holds_on, None),
        (charges, None),
    ],
)
async def test_wherever_the_journal_ends_nothing_is_done(
    kit: AppKit, code: App[Any], payload: Any
) -> None:
    recorded = await ran(kit, code, payload, approve={"by": "ada"}, g=1)
    verdicts = set()
    for count in range(1, len(recorded.entries)):
        found = await recorded.first(count).replay(code)
        assert found.verdict is not ReplayVerdict.DIVERGED, found
        assert found.seq == count
        verdicts.add(found.verdict)
    assert ReplayVerdict.GOES_ON in verdicts


@pytest.mark.parametrize(
    ("upto", "next_step"),
    [
        ("run/", "decides with now"),
        ("decision/drawn", "decides with colour"),
        ("effect/pending/wire", "executes effect wire again, because it is pending"),
        ("effect/confirmed/wire", "starts effect post"),
        ("effect/confirmed/post", "writes SetBudget"),
        ("budget/set", "writes ChargeBudget"),
        ("budget/charged", "sets timer sleep:1"),
        ("timer/fired/redrive", "sets timer gate:approve"),
        ("timer/set/gate_timeout", "reaches gate approve"),
        ("value/changed", "reads value ns/k"),
        ("event/recorded", "starts a run of small"),
    ],
)
async def test_what_the_code_would_do_next(kit: AppKit, upto: str, next_step: str) -> None:
    recorded = await ran(kit, everything, 100, approve={"by": "ada"})
    count = next(e.seq for e in recorded.entries if e.subject.startswith(f"/tape/{upto}"))
    found = await recorded.first(count).replay(everything)
    assert found.verdict is ReplayVerdict.GOES_ON
    assert found.text.endswith(f"the journal ends at seq {count}, then the code {next_step}")


@pytest.mark.parametrize("code", [branches, gathers])
async def test_every_branch_goes_as_far_as_the_journal(kit: AppKit, code: App[Any]) -> None:
    recorded = await ran(kit, code)
    begun = [e.seq for e in recorded.entries if e.subject.startswith("/tape/effect/pending")]
    found = await recorded.first(begun[0] - 1).replay(code)
    assert found.text.endswith("then the code starts effect wire")
    pending = [e for e in recorded.entries if e.seq in {1, *begun}]
    found = await Recorded(recorded.first(1).run, pending).replay(code)
    assert (found.verdict, found.steps) == (ReplayVerdict.GOES_ON, 3)
    assert found.text.endswith("then the code executes effect wire again, because it is pending")


async def test_code_that_holds_on_to_what_unwinds_it(kit: AppKit) -> None:
    recorded = await ran(kit, holds_on)
    begun = recorded.seq("effect/pending/wire")
    found = await recorded.first(begun).replay(holds_on)
    assert found.text.endswith("then the code executes effect wire again, because it is pending")
    recorded = await ran(kit, charges)
    assert (await recorded.replay(charges)).verdict is ReplayVerdict.SAME
    found = await recorded.first(2).replay(charges)
    assert found.text.endswith("then the code writes ChargeBudget")


async def test_a_run_that_waits(kit: AppKit) -> None:
    recorded = await ran(kit, plain)
    assert recorded.run.status == RunStatus.WAITING
    found = await recorded.replay(plain)
    assert found == Replayed(
        ReplayVerdict.SAME, 5, recorded.run.seq_cursor,
        "replayed 5 steps: the code does what the journal records, and waits for gate g",
    )  # fmt: skip


async def test_another_step(kit: AppKit) -> None:
    recorded = await ran(kit, failing)

    async def changed(ctx: Context) -> None:
        await ctx.call(post, "first")

    found = await recorded.replay(changed)
    assert (found.verdict, found.steps) == (ReplayVerdict.DIVERGED, 0)
    assert found.seq == recorded.seq("effect/pending/wire")
    assert found.text == (
        "replayed 0 steps, then the code does something else: step 1: the journal has "
        f"effect pending wire (seq {found.seq}), the code does effect pending post"
    )


async def test_other_arguments(kit: AppKit) -> None:
    recorded = await ran(kit, failing)

    async def changed(ctx: Context) -> None:
        await wire(2)
        await refused()

    found = await recorded.replay(changed)
    assert (found.verdict, found.seq) == (
        ReplayVerdict.DIVERGED,
        recorded.seq("effect/pending/wire"),
    )
    assert "'args': [1]" in found.text
    assert "'args': [2]" in found.text


async def test_code_that_ends_before_its_journal(kit: AppKit) -> None:
    recorded = await ran(kit, plain, g=1)
    found = await recorded.replay(lambda ctx: [ctx.random()])
    assert (found.verdict, found.steps) == (ReplayVerdict.DIVERGED, 1)
    assert found.seq == recorded.seq("effect/pending/wire")
    assert "the code ends after step 1, the journal goes on with" in found.text


async def test_another_result(kit: AppKit) -> None:
    recorded = await ran(kit, small, 3)

    def changed(ctx: SyncContext, number: int) -> int:
        ctx.sample(lambda: drawn(number))
        return len(post(str(number))) + number + 1

    found = await recorded.replay(changed)
    assert (found.verdict, found.steps) == (ReplayVerdict.DIVERGED, 2)
    end = recorded.seq("run/terminal")
    assert found.seq == end
    assert f"the journal has that it returns 4 (seq {end}), the code returns 5" in found.text


async def test_code_that_goes_on_where_the_run_ended(kit: AppKit) -> None:
    recorded = await ran(kit, small, 3)

    def changed(ctx: SyncContext, number: int) -> int:
        ctx.sample(lambda: drawn(number))
        return len(post(str(number)) + post("more")) + number

    found = await recorded.replay(changed)
    assert found.verdict is ReplayVerdict.DIVERGED
    assert "returns 4" in found.text
    assert found.text.endswith("the code starts effect post")


async def test_a_run_that_failed(kit: AppKit) -> None:
    recorded = await ran(kit, failing)
    assert recorded.run.status == RunStatus.FAILED
    assert "reverse w1" in DONE
    found = await recorded.replay(failing)
    assert found.verdict is ReplayVerdict.SAME
    assert found.text.endswith("and raises EffectFailed: refused: ValueError: no such account")

    async def caught(ctx: Context) -> str:
        await wire(1)
        try:
            await refused()
        except Exception as error:
            raise LookupError("none") from error
        return ""

    found = await recorded.replay(caught)
    assert (found.verdict, found.seq) == (ReplayVerdict.DIVERGED, recorded.seq("run/failed"))
    assert found.text.endswith("the code raises LookupError: none")


async def test_a_run_that_failed_at_something_that_is_not_recorded(kit: AppKit) -> None:
    recorded = await ran(kit, draws_badly)
    assert recorded.run.status == RunStatus.FAILED
    found = await recorded.replay(draws_badly)
    assert found.verdict is ReplayVerdict.SAME
    assert "until it failed with ZeroDivisionError: " in found.text
    assert found.text.endswith("there it decides with sample")


async def test_a_run_that_was_cancelled(kit: AppKit) -> None:
    recorded = await ran(kit, plain)
    await kit.cancel_run(recorded.run.run_id, "too late")
    run = await kit.settle(recorded.run.run_id)
    assert run is not None
    assert run.status == RunStatus.CANCELLED
    cancelled = Recorded(run, await kit.read_run(run.run_id))
    found = await cancelled.replay(plain)
    assert found.verdict is ReplayVerdict.SAME
    assert found.text.endswith("until it was cancelled; there it waits for gate g")
    found = await cancelled.replay(lambda ctx: ctx.uuid())
    assert found.verdict is ReplayVerdict.DIVERGED


async def test_code_that_looks_whether_it_is_cancelled(kit: AppKit) -> None:
    """It was told in the middle, and returned."""
    recorded = await ran(kit, small, 3)
    found = await Recorded(recorded.run._replace(outcome_json="2"), recorded.entries).replay(
        _until_cancelled, cancel_reason="enough"
    )
    assert found.verdict is ReplayVerdict.SAME


def _until_cancelled(ctx: SyncContext) -> int:
    steps = 0
    while not ctx.is_cancelled:
        if steps == 0:
            ctx.sample(lambda: drawn(3))
        else:
            post("3")
        steps += 1
    return steps


async def test_an_effect_in_doubt_is_waited_for(kit: AppKit) -> None:
    run = await kit.start_run(in_doubt)
    await kit.work()
    found = await kit.get_run(run.run_id)
    assert found is not None
    replayed = await Recorded(found, await kit.read_run(run.run_id)).replay(in_doubt)
    assert replayed.verdict is ReplayVerdict.SAME
    assert f"waits for effect {run.run_id}/decision-0/doubtful/0" in replayed.text


async def test_a_run_that_is_stuck_and_its_code_mended(kit: AppKit) -> None:
    recorded = await ran(kit, plain)
    broken = App("plain", lambda ctx: ctx.uuid(), "3")
    APPS.apps["plain"] = broken
    try:
        await kit.send_signal(recorded.run.run_id, "g", 1)
        run = await kit.settle(recorded.run.run_id)
    finally:
        APPS.apps["plain"] = plain
    assert run is not None
    assert run.status == RunStatus.STUCK
    stuck = Recorded(run, await kit.read_run(run.run_id))
    diverged = await stuck.replay(broken)
    assert diverged.verdict is ReplayVerdict.DIVERGED
    assert diverged.text.endswith("(started by version '2', this is '3')")
    mended = await stuck.replay(plain)
    assert (mended.verdict, mended.steps) == (ReplayVerdict.GOES_ON, 5)
    assert mended.text.endswith("then the code decides with uuid")


async def test_a_charge_that_is_new_in_the_middle_changes_no_step(kit: AppKit) -> None:
    recorded = await ran(kit, small, 3)

    def changed(ctx: SyncContext, number: int) -> int:
        ctx.charge(usd=1)
        return int(small(ctx, number))

    assert (await recorded.replay(changed)).verdict is ReplayVerdict.SAME


async def test_a_journal_whose_beginning_is_gone(kit: AppKit) -> None:
    recorded = await ran(kit, small, 3)
    for entries in (recorded.entries[1:], []):
        with pytest.raises(InvalidArgument, match="beginning of its journal"):
            await Recorded(recorded.run, entries).replay(small)


async def _long(ctx: Context) -> int:
    return sum([int(10 * ctx.random()) for _ in range(10_000)])


def _long_sync(ctx: SyncContext) -> int:
    return sum([int(10 * ctx.random()) for _ in range(10_000)])


@pytest.mark.parametrize("code", [_long, _long_sync])
async def test_ten_thousand_steps(kit: AppKit, code: Any) -> None:
    recorded = await ran(kit, plain)
    step = next(entry for entry in recorded.entries if entry.kind == "decision")
    text = orjson.dumps(step.payload | {"response": 0.25}).decode()
    steps = [step._replace(seq=seq, payload_json=text) for seq in range(2, 10_002)]
    end = recorded.run._replace(status=RunStatus.TERMINAL.value, outcome_json="20000")
    began = time.process_time()
    found = await Recorded(end, [recorded.entries[0], *steps]).replay(code)
    took_s = time.process_time() - began
    assert (found.verdict, found.steps) == (ReplayVerdict.SAME, 10_000)
    assert took_s < 10, "one to two seconds on a machine that does nothing else"
