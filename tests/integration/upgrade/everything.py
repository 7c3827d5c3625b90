"""A program that uses the whole of Tape, written for version 0.1.0 and run with any version.

`python everything.py STORE NAME`: prints `ready` when the store is open, waits for a line, works,
and prints `done`. It asserts what it sees. Several may run on one store at once, each with a name
of its own.
"""

import asyncio
import contextlib
import json
import sqlite3
import sys
from pathlib import Path
from typing import Any

import psycopg

import tape
from tape.config import OutboxSettings, ReactorsSettings, Settings
from tape.relaying import relay_until
from tape.worker import WorkerOptions, work

URL, WHO = sys.argv[1], sys.argv[2]
BOUND_S = 90.0
SETTINGS = Settings(
    reactors=ReactorsSettings(poll_s=0.1),
    outbox=OutboxSettings(active_poll_s=0.02, idle_poll_s=0.05, lead_retry_s=0.1),
)
undone: list[str] = []
handled: list[str] = []
is_handled = asyncio.Event()
LOOP = asyncio.new_event_loop()


def undo(response: dict[str, Any]) -> None:
    undone.append(response["booked"])


@tape.effect(name=f"{WHO}-book", compensate=undo)
async def book(seat: str) -> dict[str, Any]:
    return {"booked": seat, "key": tape.idempotency_key()}


@tape.effect(
    name=f"{WHO}-wire",
    semantics="non_idempotent",
    dispatch="outbox",
    connector=f"{WHO}-bank",
    check=lambda _key, _request: tape.Observed("absent"),
    business_key=lambda order: f"{WHO}-{order}",
)
async def wire(order: str) -> str:
    return f"wired {order}"


async def think() -> dict[str, int]:
    return {"answer": 42}


@tape.app(f"{WHO}-child")
async def child(ctx: tape.Context, number: int) -> int:
    return number + 1


@tape.app(f"{WHO}-trip")
async def trip(ctx: tape.Context, order: dict[str, Any]) -> dict[str, Any]:
    await ctx.set_budget(usd=10)
    await book(order["id"])
    thought = await ctx.decide("model", {"ask": 1}, think)
    drawn = tape.uuid()
    await ctx.sleep(0.01)
    await ctx.charge(usd=1)
    await ctx.set_value(f"{WHO}-trips", order["id"], thought)
    await ctx.record("trip.booked", {"drawn": drawn}, entity_type="trip", entity_id=order["id"])
    grown = await ctx.result(await ctx.start(child, 1))
    word = await ctx.gate("go")
    return {"grown": grown, "word": word, "wired": await wire(order["id"])}


@tape.app(f"{WHO}-failing")
async def failing(ctx: tape.Context, seat: str) -> None:
    await book(seat)
    raise ValueError("no")


@tape.app(f"{WHO}-agent")
async def agent(ctx: tape.Context, _input: Any) -> str:
    return "reacted"


@tape.on_event(f"{WHO}.drained", drainer=WHO, input={"n": "$.payload.n"})
@tape.app(f"{WHO}-drain")
async def drained(ctx: tape.Context, given: dict[str, int]) -> int:
    return given["n"]


@tape.on(f"/tape/value/changed/{WHO}/**", reaction_id=f"{WHO}-task")
def task(envelope: dict[str, Any]) -> None:
    handled.append(envelope["subject"])
    LOOP.call_soon_threadsafe(is_handled.set)


tape.on(
    f"/tape/event/recorded/{WHO}.asked/**",
    agent=f"{WHO}-agent",
    reaction_id=f"{WHO}-agent",
)(lambda _envelope: None)


async def journal(client: tape.AsyncTapeClient) -> None:
    """Events, values and sessions."""
    first = await client.record(f"{WHO}.plain", {"n": 1}, idempotency_key=f"{WHO}-key")
    again = await client.record(f"{WHO}.plain", {"n": 1}, idempotency_key=f"{WHO}-key")
    assert (again.duplicate, again.event_id) == (True, first.event_id)
    many = await client.record_many(tape.NewEvent(f"{WHO}.many") for _ in range(50))
    seen = []
    async with client.follow(f"/tape/event/recorded/{WHO}.many/**") as entries:
        async for entry in entries:
            seen.append(entry.global_seq)
            if len(seen) == len(many):
                break
    assert seen == [recorded.global_seq for recorded in many]
    value = await client.set_value(f"{WHO}-v", "k", 1, if_version=0, writer=WHO)
    assert (await client.set_value(f"{WHO}-v", "k", 2, if_version=value.version)).version == 2
    await client.delete_value(f"{WHO}-v", "k")
    await client.create_session("desk", WHO, "s", {"a": 1})
    await client.append_event("desk", WHO, "s", {"author": "x"}, state_delta={"a": 2})
    session = await client.get_session("desk", WHO, "s")
    assert session is not None
    assert json.loads(session.session.state_json) == {"a": 2}


async def runs(client: tape.AsyncTapeClient) -> None:
    """What a worker drives: effects, gates, timers, children, budgets, and what is undone."""
    begun = await client.start_run(trip, {"id": "t-1"})
    async with client.follow(f"/tape/gate/waiting/go/{begun.run_id}") as entries:
        async for _waiting in entries:
            break
    assert await client.send_signal(begun.run_id, "go", "word")
    result = await client.run_result(begun.run_id)
    assert result == {"grown": 2, "word": "word", "wired": "wired t-1"}
    assert len(await client.read_run(begun.run_id)) > 10
    failed = await client.start_run(failing, "f-1")
    with contextlib.suppress(tape.TapeError):
        await client.run_result(failed.run_id)
    ended = await client.get_run(failed.run_id)
    assert ended is not None
    assert ended.status == tape.RunStatus.FAILED
    assert undone == ["f-1"]
    assert await client.run(child, 4) == 5
    assert any(run.run_id == begun.run_id for run in await client.list_runs(app_name=trip.name))


async def reacting(client: tape.AsyncTapeClient) -> None:
    await client.set_value(WHO, "a", 1)
    await client.record(f"{WHO}.asked", {"n": 1})
    await once(client, f"/tape/run/terminal/{WHO}-agent/**")
    await is_handled.wait()
    assert handled == [f"/tape/value/changed/{WHO}/a"]
    assert {f"{WHO}-task", f"{WHO}-agent"} <= {
        state.reaction.reaction_id for state in await client.list_reactions()
    }


async def draining(client: tape.AsyncTapeClient) -> None:
    for n in range(3):
        await client.record(f"{WHO}.drained", {"n": n})
    seen = 0
    async with client.follow(f"/tape/run/terminal/{WHO}-drain/**") as entries:
        async for _ended in entries:
            seen += 1
            if seen == 3:
                break
    report = await client.drain(WHO)
    assert (report.error, report.halted_on_event_id) == ("", "")
    assert any(state.drainer.drainer_id == WHO for state in await client.drainers())


async def outbox(client: tape.AsyncTapeClient) -> None:
    """A row of a foreign transaction is promoted to the journal."""
    event_id = await asyncio.to_thread(_publish)
    stop = asyncio.Event()
    relay = asyncio.create_task(relay_until(stop, URL, settings=SETTINGS))
    entry = await once(client, f"/tape/event/recorded/{WHO}.orders.placed/**")
    assert entry.event_id == event_id
    stop.set()
    await relay
    assert (await client.outbox_status()).failing == []


def _publish() -> str:
    subject = f"{WHO}.orders.placed"
    if URL.startswith("sqlite:"):
        with contextlib.closing(sqlite3.connect(URL.removeprefix("sqlite:"), timeout=10)) as file:
            file.execute("BEGIN IMMEDIATE")
            event_id = tape.publish_within(file, subject, {"order": 7})
            file.commit()
            return event_id
    with psycopg.connect(URL) as connection, connection.transaction():
        return tape.publish_within(connection, subject, {"order": 7})


async def once(client: tape.AsyncTapeClient, pattern: str) -> tape.Entry:
    async with client.follow(pattern) as entries:
        async for entry in entries:
            return entry
    raise AssertionError(f"nothing came on {pattern}")


async def main() -> None:
    options = WorkerOptions(url=URL, settings=SETTINGS, owner=WHO)
    stop, ready = asyncio.Event(), asyncio.Event()
    async with tape.connect_async(URL, settings=SETTINGS) as client:
        print("ready", Path(tape.__file__).parent, flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        worker = asyncio.create_task(work(options, on_ready=lambda _r: ready.set(), stop=stop))
        await ready.wait()
        async with asyncio.timeout(BOUND_S):
            await journal(client)
            for use in (runs, reacting, draining, outbox):
                await use(client)
        stop.set()
        await worker
        assert (await client.info()).head_global_seq > 0
    print("done", flush=True)


LOOP.run_until_complete(main())
