"""A journal in which everything there is has really happened, on any store."""

from typing import Any

from tape.model.budget import ChargeBudget, SetBudget
from tape.model.bulk_write import BATCH, RegisterWrite
from tape.model.credential import (
    CountOpenings,
    CredentialVersion,
    DeleteCredential,
    PutCredential,
    RetireCredential,
    RewrapCredential,
)
from tape.model.decision import RecordDecision
from tape.model.drain import DispatchEvents, DispatchFailure, HaltDrainer, PassProgress
from tape.model.drainer import AcquireDrainer, DrainerLease
from tape.model.drainer_operator import ResumeDrainer, SkipEvent
from tape.model.effect import BeginEffect, CompleteEffect, EffectStatus
from tape.model.entry import EntryDraft
from tape.model.event import NewEvent
from tape.model.event_subscription import (
    DeleteEventSubscription,
    NewEventSubscription,
    PutEventSubscription,
)
from tape.model.gate import AwaitSignal, SendSignal
from tape.model.lease import NewRun, Taker
from tape.model.move import Decision, Need, State
from tape.model.obligation import (
    ClaimObligation,
    ObligationKey,
    ObligationStatus,
    RegisterCompensation,
    ResolveObligation,
)
from tape.model.relay import Candidate, ElectRelay, ResignRelay
from tape.model.run import RunName, RunStatus
from tape.model.run_end import CancelRun, EndRun
from tape.model.run_write import RunWrite
from tape.model.session import SessionKey
from tape.model.subjects import outbox_skipped
from tape.model.timer import FireTimer, SetTimer
from tape.model.value import ANY_VERSION, Author, DeleteValue, WriteValue
from tape.ports.store import Store
from tests.conformance.dead_letters import dropping, replaying
from tests.conformance.playing import IDS, LIMITS, attempt, play, read_all, record
from tests.conformance.reacting import (
    a_cursor,
    a_task,
    claim,
    fail,
    keys_of,
    register,
    step,
)
from tests.conformance.run_sequences import play_batch
from tests.conformance.run_steps import RunWalk
from tests.conformance.running import Driver, beginning, drive
from tests.conformance.sessions import appending, creating, deleting
from tests.pipeline.audit.subscribed import keep_subscriptions


async def walk_runs(store: Store, name: str, seed: int, batches: int) -> None:
    """Any moves of runs there are, in any order that is allowed."""
    walk = RunWalk(name, seed)
    for _ in range(batches):
        await play_batch(store, walk)


async def unwind_a_run(store: Store) -> str:
    """Two effects, a failure, and their undoing, newest first."""
    driver = await drive(store, "unwound", app_name="désk/1", session=("u_", "_"))
    for name in ("debit", "credit"):
        await driver.extend(
            BeginEffect(0, name, 0, business_key=f"key of {name}"),
            CompleteEffect(
                f"{driver.run_id}/decision-0/{name}/0",
                EffectStatus.CONFIRMED,
                compensation=RegisterCompensation(f"{driver.run_id}/decision-0/{name}/0", "undo"),
            ),
        )
    await driver.write(EndRun(RunStatus.FAILED, '"no"', parent_run_id=""))
    for name in ("credit", "debit"):
        key = ObligationKey(f"{driver.run_id}/decision-0/{name}/0", "undo")
        claimed = await driver.tell(ClaimObligation(key, "undoer", 60_000))
        resolve = ResolveObligation(
            key, claimed.claim_token, ObligationStatus.COMPENSATED, parent_run_id=""
        )
        await driver.tell(resolve)
    return driver.run_id


async def change_values(store: Store) -> None:
    driver = await drive(store, "writes")
    by_run = Author("driver", driver.run_id, driver.token)
    for number, author in enumerate((Author(), Author("someone"), by_run)):
        for key in ("a/b", "ä_"):
            await play(
                store,
                WriteValue(
                    "n s", key, f'{{"n": {number}}}', ANY_VERSION, author=author,
                    event_id=next(IDS), limits=LIMITS,
                ),
            )  # fmt: skip
    await play(store, DeleteValue("n s", "ä_", by_run, next(IDS), LIMITS))
    # Spark can read neither, and both are JSON.
    for text in ("0." + "3" * 1_100, f'{{"{"k" * 60_000}": 1}}'):
        long = WriteValue(
            "n s", "long", text, ANY_VERSION, author=Author(), event_id=next(IDS), limits=LIMITS
        )
        await play(store, long)
    await record(store, NewEvent("in.run", run_id=driver.run_id, fencing_token=driver.token))
    await driver.end()


async def hold_sessions(store: Store) -> None:
    key, gone = SessionKey("app", "~u ser*", "_"), SessionKey("app", "u", "gone")
    for session in (key, gone):
        await play(store, creating(key=session))
        for number in range(3):
            await play(store, appending(f"e{number}", key=session))
    await play(store, deleting(gone))
    await play(store, creating(key=gone))
    await play(store, appending("e0", key=gone))


async def do_tasks(store: Store) -> None:
    """Tasks that are done, given back and then done, queued, in hand, dead-lettered, replayed,
    dropped and failed."""
    await register(store, "r", subject_pattern="/tape/event/recorded/a/**", dlq_after_n=1,
                   predicate_cel="payload.n >= 1")  # fmt: skip
    await register(store, "given up", subject_pattern="/tape/event/*/a/**", dlq_after_n=0,
                   retry_max=0, num_shards=2)  # fmt: skip
    await register(store, "elsewhere", engine="spark", from_global_seq=0)
    await register(store, "r2")
    for name in ("no pattern", "no cel", "no target"):  # not yet: something is planted there
        await register(store, name)
    events = [NewEvent("a", f'{{"n": {n}}}', "t", f"{n} x") for n in range(1, 8)]
    recorded = await record(store, *events)
    sources = [one.global_seq for one in recorded]
    tasks = [a_task(source) for source in sources]
    tasks += [a_task(source, "given up") for source in sources[:2]]
    cursors = [
        a_cursor(sources[-1], matched=7),
        a_cursor(sources[-1], "given up", matched=2, predicate_errors=1,
                 last_error="no such field", last_error_global_seq=sources[2]),
    ]  # fmt: skip
    assert await step(store, tasks=tasks, cursors=cursors, position=sources[-1]) == "made"
    mine = keys_of(await claim(store, most=5))
    await store.tasks.complete_tasks("a", mine[:1])
    given_back = keys_of(await claim(store, most=1))
    await fail(store, "a", given_back, given_back=True)
    await store.tasks.complete_tasks(
        "a", given_back
    )  # by who had it last, and it counts no attempt
    await fail(store, "a", mine[1:4])
    await play(store, replaying(mine[1:2]))
    await play(store, dropping(mine[2:3]))
    await fail(store, "a", keys_of(await claim(store, "given up", 1)))


async def drain_events(store: Store) -> None:
    """Drainers that go on, stay halted, were resumed, and one whose event was skipped."""
    event, other = await record(store, NewEvent("b", "1"), NewEvent("b", "2"))
    entries = await read_all(store, event.global_seq - 1)
    for drainer_id in ("d/1", "d2"):
        new = NewEventSubscription(f"s of {drainer_id}", "b", "app", drainer_id)
        await play(store, PutEventSubscription(new, next(IDS), LIMITS))
        for _ in range(2):
            grant = await play(store, AcquireDrainer(drainer_id, next(IDS), 60_000, LIMITS))
            hold = DrainerLease(drainer_id, grant.drainer.fencing_token, 60_000)
            failure = DispatchFailure(entries[0], new.subscription_id, "", "no")
            before = PassProgress(event.global_seq - 1, "")
            await play(store, HaltDrainer(hold, before, failure, IDS.take(3), LIMITS))
            if drainer_id == "d/1":
                await play(store, ResumeDrainer(drainer_id, "me", next(IDS), LIMITS))
    for name in (
        "no glob",
        "no filter",
        "no mapper",
        "moved",
    ):  # not yet: something is planted there
        await play(
            store,
            PutEventSubscription(NewEventSubscription(name, "b", "app", "d3"), next(IDS), LIMITS),
        )
    for drainer_id in ("gone on", "halted", "resumed"):
        grant = await play(store, AcquireDrainer(drainer_id, next(IDS), 60_000, LIMITS))
        hold = DrainerLease(drainer_id, grant.drainer.fencing_token, 60_000)
        passed = PassProgress(event.global_seq, event.event_id, 1)
        if drainer_id == "gone on":
            await play(store, DispatchEvents(hold, passed, [], ids=IDS.take(1), limits=LIMITS))
            continue
        failure = DispatchFailure(entries[1], "s", "", "no")
        await play(store, HaltDrainer(hold, passed, failure, IDS.take(3), LIMITS))
        if drainer_id == "resumed":
            await play(store, ResumeDrainer(drainer_id, "me", next(IDS), LIMITS))
    grant = await play(store, AcquireDrainer("d/1", next(IDS), 60_000, LIMITS))
    hold = DrainerLease("d/1", grant.drainer.fencing_token, 60_000)
    failure = DispatchFailure(entries[0], "s of d/1", "", "still no")
    await play(store, HaltDrainer(hold, before, failure, IDS.take(3), LIMITS))
    skip = SkipEvent("d/1", event.event_id, next(IDS), LIMITS, reason="enough", by="me")
    await play(store, skip)
    grant = await play(store, AcquireDrainer("d/1", next(IDS), 60_000, LIMITS))
    hold = DrainerLease("d/1", grant.drainer.fencing_token, 60_000)
    run = NewRun(RunName("app", "event", "s of d/1", f"event:b:{other.event_id}"), "2")
    passed = PassProgress(other.global_seq, other.event_id, 1, 1)
    ids = IDS.take(2)
    await play(store, DispatchEvents(hold, passed, [run], ids=ids, limits=LIMITS, letting_go=True))
    await play(store, DeleteEventSubscription("s of d/1", next(IDS), LIMITS))


async def unsubscribe_all(store: Store) -> None:
    """A drainer that somebody subscribes to would hold a prune up."""
    for subscription in await store.ledger.list_event_subscriptions():
        await play(store, DeleteEventSubscription(subscription.subscription_id, next(IDS), LIMITS))


async def drain_nothing(store: Store) -> None:
    """A drainer that has passed an event, and after it everything up to the end of the journal."""
    (event,) = await record(store, NewEvent("b", "3"))
    after = WriteValue(
        "n s", "after", "1", ANY_VERSION, author=Author(), event_id=next(IDS), limits=LIMITS
    )
    await play(store, after)
    grant = await play(store, AcquireDrainer("at the end", next(IDS), 60_000, LIMITS))
    hold = DrainerLease("at the end", grant.drainer.fencing_token, 60_000)
    passed = PassProgress(grant.head, event.event_id, 1)
    await play(store, DispatchEvents(hold, passed, [], ids=IDS.take(1), limits=LIMITS))


class _Skipped:
    """What skipping an outbox row leaves on the journal; the row itself is sown by SQL."""

    weight = 1

    def needs(self) -> list[Need]:
        return []

    def decide(self, _state: State) -> Decision[None]:
        subject = outbox_skipped("Not A Subject/1", 7)
        entry = EntryDraft(next(IDS), "outbox", subject, '{"row_id": 7, "reason": "a slip"}')
        return Decision(lambda _place: None, [entry])


async def lead_relays(store: Store) -> None:
    """Two relays, one of which gives way to another and back."""
    for relay, owner in (("nats", "a"), ("journal", "b"), ("nats", "b"), ("nats", "a")):
        term = await play(store, ElectRelay(Candidate(relay, owner, "pid 7"), next(IDS)))
        assert term is not None
        await play(store, ResignRelay(term, "stopped", next(IDS)))
    await play(store, _Skipped())


async def keep_credentials(store: Store) -> None:
    """One of each sort: put, put again, rotated, retired, deleted and put once more, rewrapped."""

    async def put(alias: str, version: int, *, rotates: bool = False) -> CredentialVersion:
        new = CredentialVersion(alias, version, "text", "key-1", b"k", b"n", b"c")
        await play(store, PutCredential(new, next(IDS), LIMITS, keeps_previous=rotates))
        return new

    for alias in ("plain", "another key", "unsaid", "torn"):
        await put(alias, 1)
    for alias in ("rotated/ä", "retired", "rewound"):
        await put(alias, 1)
        await put(alias, 2, rotates=True)
    await play(store, RetireCredential("retired", 2, next(IDS), LIMITS))
    await put("replaced", 1)
    await put("replaced", 2)
    await play(store, DeleteCredential("replaced", next(IDS), LIMITS))
    again = await put("replaced", 3)
    moved = again._replace(key_id="key-2", wrapped_key=b"l")
    assert await play(store, RewrapCredential(b"k", moved, next(IDS), LIMITS))
    await put("deleted", 1)
    await play(store, DeleteCredential("deleted", next(IDS), LIMITS))
    await play(store, CountOpenings({"plain": 7, "nobody's": 1}))


async def write_in_bulk(store: Store) -> None:
    """A write that is finished; what is staged for another is sown by SQL."""
    await play(store, RegisterWrite("w0", 0, BATCH, []))


async def record_events(store: Store) -> None:
    (first,) = await record(store, NewEvent("order.placed", '{"qty": 1.5e3}', "order", "a/ä %_"))
    await record(
        store,
        NewEvent("order.paid", "null", idempotency_key="k1", caused_by=first.event_id,
                 trace_id="0" * 31 + "1", span_id="0" * 15 + "2"),
        NewEvent("odd", '"\\ud83d\\ude00 \\u0000"', "_", ""),
        NewEvent("deep", "[" * 60 + "1234567890" * 5 + "]" * 60),
    )  # fmt: skip


Driven = dict[str, str]
"""Ids of runs by what they are for."""


async def drive_some(store: Store) -> Driven:
    """Runs that have come somewhere and stay there, each with something of its own."""
    runs: Driven = {}

    async def driven(name: str, *writes: RunWrite, **fields: Any) -> Driver:
        driver = await drive(store, name, **fields)
        if writes:
            await driver.extend(*writes)
        runs[name] = driver.run_id
        return driver

    for name in ("run_row", "other pool", "other version", "reason of nobody"):
        await driven(name)
    to_be_cancelled = await driven("reason forgotten")
    await to_be_cancelled.tell(CancelRun("enough", parent_run_id=""))
    await driven("decision_row", RecordDecision(0, "model"), RecordDecision(1, "now"))
    await driven("effect_row", BeginEffect(0, "wire", 0))
    done = CompleteEffect(
        "k", EffectStatus.CONFIRMED, compensation=RegisterCompensation("k", "undo")
    )
    for name in ("obligation_row", "obligation_top"):
        await driven(name, BeginEffect(0, "wire", 0, custom_key="k"), done)
    await driven("gate_row", AwaitSignal("g"))
    await driven("timer_row", SetTimer("t", after_ms=60_000))
    await driven("budget_row", SetBudget(2.5, 10), ChargeBudget(0.1, 3, "c"))
    parent = await driven("run_parent_told")
    child = await driven(
        "the child", parent_run_id=parent.run_id, parent_fencing_token=parent.token
    )
    await parent.write(AwaitSignal(f"run:{child.run_id}"))
    await child.end(parent_run_id=parent.run_id)
    waiting = await driven("waiting", AwaitSignal("g"), SetTimer("t", 1))
    await waiting.release("g")
    (timer,) = await store.runs.list_timers(waiting.run_id)
    await waiting.tell(FireTimer(timer))
    await waiting.tell(SendSignal("g", "1"))
    return runs


async def make_healthy(store: Store, *, with_tasks: bool = True) -> Driven:
    await record_events(store)
    await hold_sessions(store)
    await change_values(store)
    unwound = await unwind_a_run(store)
    if with_tasks:
        await do_tasks(store)
    await drain_events(store)
    await lead_relays(store)
    await write_in_bulk(store)
    await keep_credentials(store)
    await keep_subscriptions(store)
    await attempt(store, beginning(RunName("app", "", "", "queued"), Taker()))
    return {"unwound": unwound, **await drive_some(store)}
