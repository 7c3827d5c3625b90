"""A subscription of a NATS stream on a store: registered, listened to, and what came of it."""

import asyncio
import json
import os
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeVar

from nats.js.api import AckPolicy, ConsumerConfig

import tape
from tape.brokers.nats_connection import Login, NatsConnection
from tape.bus import Bus
from tape.model.subscription import ACCEPTED_PLACES, SEEN_KEYS, Listener
from tape.model.subscription_spec import SourceSpec
from tape.pipeline.logins import BulkTopic, NatsLink
from tape.ports.credentials import OpenedCredential, SecretValue
from tape.ports.runs import RunQuery
from tape.ports.source import Source
from tape.programs.listening import ListensFor, listening
from tape.settings import ListenerSettings, Settings
from tape.sources.by_spec import open_source
from tape.stores.blocking import Stores
from tape.stores.by_url import open_store
from tape.subscriptions.keep_listening import KeepListening
from tape.wallet.keys import Keys
from tests.servers.nats import NatsServer
from tests.servers.nats_raw import publish_all_raw

T = TypeVar("T")

NAME: Final = "events"
DIRECTIVES: Final = [
    {"header": "x-route", "controls": "dispatch.playbook", "allowed": ["billing", "fraud"]},
    {"header": "x-pool", "controls": "dispatch.execution_pool", "allowed": ["iot"]},
    {"header": "x-rank", "controls": "priority", "map": {"high": "express"}},
    {"header": "x-key", "controls": "idempotency_key"},
]
DURABLE: Final = ConsumerConfig(durable_name="listener", ack_policy=AckPolicy.EXPLICIT)
PATIENCE_S: Final = 120.0
COLUMNS: Final = {
    ACCEPTED_PLACES.name: ("subscription", "place", "run_id", "number"),
    SEEN_KEYS.name: ("subscription", "key", "run_id", "place"),
}


class PlainLogins(NamedTuple):
    """`SourceLogins` of a server without logins, wherever it is asked."""

    address: str

    async def connect_nats(self, alias: str) -> NatsLink:
        connection = await NatsConnection.open([self.address], {}, "nats")
        return NatsLink(connection.jetstream, connection.close)

    async def find_topic(self, spec: SourceSpec) -> BulkTopic:
        raise NotImplementedError(spec)


def document(of: str, **changes: Any) -> str:
    spec = {
        "source": "nats", "mode": "pull", "activation": "continuous", "auth": "nats_main",
        "stream": of, "consumer": "listener", "dedup": {"window_secs": 86_400},
        "dispatch": {"playbook": "intake"},
        "headers": {"directives": DIRECTIVES, "trace": {"propagate": "w3c"}},
    } | changes  # fmt: skip
    return json.dumps({
        "apiVersion": "tape/v1",
        "kind": "Subscription",
        "metadata": {"name": NAME, "path": f"subscriptions/{NAME}"},
        "spec": {name: value for name, value in spec.items() if value is not None},
    })  # fmt: skip


def messages(count: int, seed: int, first: int = 0) -> list[tuple[bytes, bytes]]:
    """Header blocks and bodies: some that are rerouted, repeats by key, and some that are bad."""
    chance = random.Random(seed)
    parent = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

    def headers(number: int) -> bytes:
        said = [
            (b"X-Route", chance.choice([b"billing", b"fraud", b"nobody"]), 0.2),
            (b"x-pool", chance.choice([b"iot", b"elsewhere"]), 0.2),
            (b"X-Rank", b"high", 0.1),
            (b"x-key", b"k%d" % chance.randrange(count // 2), 0.6),
            (b"traceparent", parent, 0.3),
            (b"X-Unlisted", b"billing", 0.5),
            (b"Nats-Msg-Id", b"m%d" % number, 0.5),
        ]
        return b"".join(
            name + b": " + value + b"\r\n" for name, value, often in said if chance.random() < often
        )

    bodies = [b'{"n": %d}', b'{"n": %d', b'{"n": %d, "big": 18446744073709551616}']
    return [
        (headers(number), chance.choices(bodies, (96, 3, 1))[0] % number)
        for number in range(first, first + count)
    ]


def plainly(server: NatsServer) -> dict[str, Any]:
    """The value of a credential without a login."""
    return {"servers": [server.address]}


def publish(
    server: NatsServer, stream: str, sent: list[tuple[bytes, bytes]], last: str = "new"
) -> None:
    """And wait until the stream has them."""

    async def until_there() -> None:
        connection = await NatsConnection.open([server.address], {}, "nats")
        try:
            async with asyncio.timeout(PATIENCE_S):
                state = (await connection.jetstream.stream_info(stream)).state
                upto = state.last_seq + len(sent)
                await asyncio.to_thread(publish_all_raw, server.address, f"{stream}.{last}", sent)
                while state.last_seq < upto:
                    state = (await connection.jetstream.stream_info(stream)).state
                    await asyncio.sleep(0.02)
        finally:
            await connection.close()

    asyncio.run(until_there())


def publish_logged_in(
    server: NatsServer, stream: str, sent: list[tuple[bytes, bytes]], login: Login
) -> None:
    """By a client that logs in; each name of a header stands once."""

    async def send() -> None:
        connection = await NatsConnection.open([server.address], login, "nats")
        try:
            for headers, body in sent:
                pairs = [line.split(b": ", 1) for line in headers.splitlines()]
                said = {name.decode(): value.decode() for name, value in pairs}
                await connection.client.publish(f"{stream}.new", body, headers=said)
            await connection.client.flush()
        finally:
            await connection.close()

    asyncio.run(send())


def put_credential(url: str, value: Mapping[str, Any], alias: str = "nats_main") -> None:
    async def put() -> None:
        bus = Bus(await open_store(url, Settings()), Settings(), keys=Keys(os.environ))
        try:
            await bus.wallet.put_credential(alias, json.dumps(value))
        finally:
            await bus.close()

    asyncio.run(put())


def make_stream(
    server: NatsServer, stream: str, login: Login | None = None, **options: Any
) -> None:
    """With the durable of its listener; `options` are the stream's."""

    async def make() -> None:
        connection = await NatsConnection.open([server.address], login or {}, "nats")
        try:
            said = {"name": stream, "subjects": [f"{stream}.>"]} | options
            await connection.jetstream.add_stream(**said)
            await connection.jetstream.add_consumer(stream, DURABLE)
        finally:
            await connection.close()

    asyncio.run(make())


def make_durable(server: NatsServer, stream: str, **config: Any) -> None:
    """The listener's, in place of the one before."""

    async def make() -> None:
        connection = await NatsConnection.open([server.address], {}, "nats")
        try:
            await connection.jetstream.delete_consumer(stream, "listener")
            await connection.jetstream.add_consumer(stream, replace(DURABLE, **config))
        finally:
            await connection.close()

    asyncio.run(make())


def delete_stream(server: NatsServer, stream: str) -> None:
    async def delete() -> None:
        connection = await NatsConnection.open([server.address], {}, "nats")
        try:
            await connection.jetstream.delete_stream(stream)
        finally:
            await connection.close()

    asyncio.run(delete())


def using(url: str, use: Callable[[Bus], Awaitable[T]]) -> T:
    async def opened() -> T:
        bus = Bus(await open_store(url, Settings()), Settings())
        try:
            return await use(bus)
        finally:
            await bus.close()

    return asyncio.run(opened())


def register(url: str, text: str, *verbs: str) -> None:
    """Register a document, and move its subscription by these verbs."""
    tape.connect(url).close()

    async def registered(bus: Bus) -> None:
        await bus.subscriptions.register_subscription(text)
        for verb in verbs:
            await bus.subscriptions.move_subscription(NAME, verb)

    using(url, registered)


def move(url: str, verb: str) -> None:
    using(url, lambda bus: bus.subscriptions.move_subscription(NAME, verb))


def listener_of(url: str) -> Listener:
    view = using(url, lambda bus: bus.subscriptions.get_subscription(NAME))
    return view.listener


def keeper(bus: Bus, value: Mapping[str, Any], settings: ListenerSettings) -> KeepListening:
    """What listens, with a credential of this value."""
    credential = OpenedCredential("main", 1, [SecretValue(value)])

    async def opening(spec: SourceSpec, name: str) -> Source:
        return await open_source(spec, credential, name=name)

    return KeepListening(bus.subscriptions, opening, ListensFor(), settings, owner="a listener")


def listen(url: str, value: Mapping[str, Any], count: int) -> Listener:
    """Listen until so many messages, of whatever outcome, are counted. `value` is that of the
    credential. How much waits is told each third of a lease."""
    settings = replace(ListenerSettings(), look_s=0.1)

    async def work(bus: Bus) -> Listener:
        async with asyncio.timeout(PATIENCE_S), listening(keeper(bus, value, settings)):
            await until(bus, lambda row: outcomes(row) >= count and row.backlog == 0)
        return (await bus.subscriptions.get_subscription(NAME)).listener

    return using(url, work)


async def until(bus: Bus, is_so: Callable[[Listener], bool]) -> None:
    """Wait until this is so of the listener's row."""
    while True:
        row = (await bus.subscriptions.get_subscription(NAME)).listener
        if is_so(row):
            return
        await asyncio.sleep(0.05)


def outcomes(row: Listener) -> int:
    return row.accepted + row.redelivered + row.deduplicated + row.dead_lettered


class Became(NamedTuple):
    """What became of messages, without ids and times that differ from store to store."""

    runs: list[Any]
    entries: list[Any]
    letters: list[Any]
    places: list[Any]
    keys: list[Any]


def became(url: str) -> Became:
    async def look(bus: Bus) -> tuple[list[Any], list[Any], list[Any]]:
        store = bus._store
        runs = [run async for run in _all_runs(store)]
        begun = []
        for run in runs:
            (first,) = await store.read_run(run.run_id, 0, 1)
            trace = (first.trace_id, first.parent_span_id)
            begun.append((*run.name, run.run_id, run.pool, first.payload["input"], trace))
        letters = await bus.subscriptions.list_subscription_dead_letters(NAME, limit=1_000)
        found = [letter._replace(letter_id="", at_ms=0) for letter in letters]
        entries = [
            (entry.subject, entry.trace_id, {**entry.payload, "id": ""})
            for entry in (await _entries(bus))
            if entry.kind == "subscription" and "/message_" in entry.subject
        ]
        return begun, entries, found

    runs, entries, letters = using(url, look)
    return Became(sorted(runs, key=str), entries, letters, *(_rows(url, t) for t in COLUMNS))


async def _all_runs(store: Any) -> Any:
    query = RunQuery(limit=100_000)
    for run in await store.runs.list_runs(query):
        yield run


async def _entries(bus: Bus) -> list[Any]:
    from tests.conformance.playing import read_all

    return await read_all(bus._store)


def _rows(url: str, table: str) -> list[Any]:
    reader = Stores().store(url).reader()
    try:
        columns = COLUMNS[table]
        return sorted(
            tuple(row[name] for name in columns)
            for batch in reader.read_table(table, 10_000, columns)
            for row in batch.to_pylist()
        )
    finally:
        reader.close()
