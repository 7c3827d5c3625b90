"""Declared subscriptions to which everything that can happen has happened, on any store."""

from typing import Any

import orjson

from tape.model.lease import BeginRun, NewRun, ResumeRun, Taker
from tape.model.message import SourceMessage, nats_origin
from tape.model.run import RunName
from tape.model.subscription import MESSAGE_USER, reader_of
from tape.model.subscription_letters import DropSubscriptionLetters, ReplaySubscriptionLetter
from tape.model.subscription_moves import NewSubscription
from tape.ports.runs import RunQuery
from tape.ports.store import Store
from tape.ports.subscriptions import DeadLetterQuery, PlaceAges
from tape.subscriptions.operations import new_subscription
from tape.subscriptions.planning import Planner
from tape.subscriptions.spec import read_document, spec_of_json
from tests.conformance.playing import IDS, LIMITS, play
from tests.conformance.running import LONG_MS
from tests.conformance.subscribing import accept, delete, hold, move, register

ORIGIN = nats_origin("S", 1)
DIRECTIVES = [
    {"header": "x-route", "controls": "dispatch.playbook", "allowed": ["other"]},
    {"header": "x-rank", "controls": "priority", "map": {"high": "express"}},
    {"header": "x-key", "controls": "idempotency_key"},
]
PLAIN, TORN = b'{"n": 1}', b"{"
TO_SPOIL = (
    "unlike", "misread", "old token", "in nobody's hands", "another number", "no run", "one run",
    "count", "too many", "keyless", "letterless", "other letter",
)  # fmt: skip
"""Subscriptions in which a violation is planted afterwards."""


def name_of(words: str) -> str:
    return words.replace(" ", "-").replace("'", "")


def document(name: str, **spec: Any) -> NewSubscription:
    pulled = {
        "mode": "pull", "activation": "continuous", "source": "nats", "auth": "main",
        "stream": "S", "consumer": "c", "runtime": {"pool": "iot"},
        "dispatch": {"playbook": "app"}, "headers": {"directives": DIRECTIVES},
        "dedup": {"window_secs": 3600},
    }  # fmt: skip
    written = {
        "apiVersion": "tape/v1",
        "kind": "Subscription",
        "metadata": {"name": name, "path": f"subscriptions/{name}"},
        "spec": {k: v for k, v in (pulled | spec).items() if v is not None},
    }
    read = read_document(orjson.dumps(written).decode())
    return new_subscription(read.spec, read.canonical_json)


READER = reader_of(document("any").document_json)
PUSH: dict[str, Any] = {
    "mode": "push", "source": "webhook", "activation": None, "auth": None, "stream": None,
    "consumer": None, "runtime": None,
}  # fmt: skip


def pushed(name: str) -> NewSubscription:
    ingress = {
        "gateway_path": f"/ingress/{name}",
        "verify": {"type": "bearer", "secret": "s"},
    }
    return document(name, **PUSH, ingress=ingress)


def message(position: int, body: bytes = PLAIN, **headers: str) -> SourceMessage:
    pairs = tuple((name.replace("_", "-"), text.encode()) for name, text in headers.items())
    return SourceMessage("nats", ORIGIN, str(position), body, pairs)


async def listen(store: Store, new: NewSubscription, *messages: SourceMessage) -> int:
    """Accept them in one go, as whoever holds the subscription; the token."""
    answer = await hold(store, new.name)
    token = answer.listener.fencing_token
    planner = Planner(spec_of_json(new.document_json), LIMITS)
    planned = [planner.plan(one) for one in messages]
    window = {"window_ms": planner.window_ms, "key_rule": planner.key_rule}
    await accept(store, token, *planned, name=new.name, **window)
    return token


async def begin(store: Store, name: str, *messages: SourceMessage) -> NewSubscription:
    """Register and activate it, accept these, and let go of it."""
    new = document(name)
    await register(store, new)
    await move(store, "activate", name)
    token = await listen(store, new, *messages)
    await hold(store, name, fencing_token=token, letting_go=True, fetched=len(messages))
    return new


async def settle_letters(store: Store, new: NewSubscription) -> None:
    """Of three dead letters replay one by other rules, drop one and leave one."""
    letters = await store.subscriptions.list_dead_letters(DeadLetterQuery(new.name, "", 9, 1 << 20))
    dropped, replayed, _left = letters
    ids = [dropped.letter_id]
    await play(store, DropSubscriptionLetters(new.name, ids, IDS.take(1), LIMITS))
    planner = Planner(spec_of_json(new.document_json), LIMITS)
    again = planner.plan(message(int(replayed.position)))
    await play(
        store,
        ReplaySubscriptionLetter(
            new.name, replayed.letter_id, again, ids=IDS.take(3), limits=LIMITS,
            window_ms=planner.window_ms, key_rule=planner.key_rule,
        ),
    )  # fmt: skip


async def live_through_everything(store: Store) -> None:
    new = document("events")
    await register(store, new)
    await move(store, "activate", new.name)
    messages = [
        message(1), message(2, x_key="k"), message(3, x_key="k"), message(4, TORN),
        message(5, TORN), message(6, TORN), message(7, x_route="other", x_rank="high"),
        message(8, x_route="evil"), message(2, x_key="k"),
    ]  # fmt: skip
    token = await listen(store, new, *messages)
    await settle_letters(store, new)
    again = document(new.name, dispatch={"playbook": "app", "execution_pool": "mine"})
    await register(store, again)
    passed = ((ORIGIN, 7),)
    await hold(
        store, new.name, fencing_token=token, reader=READER, fetched=9, backlog=3, passed=passed
    )
    await listen(store, again, message(9), message(10, x_key="k"))
    await move(store, "pause", new.name)
    await hold(store, new.name, fencing_token=token, in_flight=2)
    await move(store, "resume", new.name)


async def live_on(store: Store, round_: int) -> None:
    """One more round of a subscription in which something of everything happens, and that is
    deleted and registered anew now and then."""
    name = "live"
    new = document(name, dispatch={"playbook": "app", "execution_pool": f"p{round_ // 3}"})
    await register(store, new)
    await move(store, "activate", name)
    first = 10 * round_
    bodies = {4: TORN, 5: TORN, 6: TORN}
    messages = [message(first + n, bodies.get(n, PLAIN), x_key=f"{n % 3}") for n in range(9)]
    messages += [message(first + 9, x_route="other"), message(first)]
    token = await listen(store, new, *messages)
    passed = ((ORIGIN, first + 8),)
    await hold(
        store, name, fencing_token=token, reader=READER, letting_go=True, passed=passed, fetched=11
    )
    await forget_places(store, name)
    if round_ % 4 == 3:
        await move(store, "drain", name)
        await delete(store, name)
        while await store.subscriptions.purge_deleted(name, 1_000):
            pass


async def start_children(store: Store, name: str) -> None:
    """Each run of a message hands its input to a child, which has its user and session."""
    for run in await store.runs.list_runs(RunQuery(session=(MESSAGE_USER, name), limit=100)):
        taker = Taker("a worker", ttl_ms=LONG_MS)
        taken = await play(store, ResumeRun(run.run_id, taker, next(IDS), LIMITS))
        (first,) = await store.read_run(run.run_id, 0, 1)
        child = NewRun(
            RunName("child", MESSAGE_USER, name, f"{run.run_id}/1"),
            orjson.dumps(first.payload["input"]).decode(),
            parent_run_id=run.run_id,
            parent_fencing_token=taken.fencing_token,
        )
        await play(store, BeginRun(child, Taker(), next(IDS), LIMITS))


async def forget_places(store: Store, name: str) -> int:
    """What upkeep removes when an hour has passed."""
    return await store.subscriptions.prune_places(name, READER, PlaceAges(0, 0, 0), 1_000)


async def keep_subscriptions(store: Store) -> None:
    await live_through_everything(store)
    for words in TO_SPOIL:
        await begin(
            store, name_of(words), message(1, x_key="k"), message(2), message(3, x_key="k"),
            message(4, TORN),
        )  # fmt: skip
    for name in ("events", "too-many"):
        await start_children(store, name)
    for name in ("torn", "altered"):
        await begin(store, name)
        await register(store, document(name, runtime={"pool": "other"}))
    for name in ("pushed", "pathless"):
        await register(store, pushed(name))
        await move(store, "activate", name)
    await begin(store, "drained", message(1))
    await move(store, "drain", "drained")
    await begin(store, "drains")
    await hold(store, "drains", owner="held on")
    await move(store, "drain", "drains")
    for name in ("gone", "again"):  # something is left of the first one
        await begin(store, name, message(1, x_key="k"), message(2, TORN), message(3, x_key="k"))
        await move(store, "deactivate", name)
        await delete(store, name)
    while await store.subscriptions.purge_deleted("again", 1_000):
        pass
    await begin(store, "again", message(1), message(2, TORN))
