"""A bus with subscriptions, messages for them, and who listens."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import yaml

from tape.bus import Bus
from tape.model.entry import Entry
from tape.model.message import SourceMessage
from tape.model.run import Run
from tape.ports.runs import RunQuery
from tape.ports.store import ReadEntries, Store
from tape.settings import ListenerSettings, Settings, SqliteSettings
from tape.stores.by_url import open_store
from tape.subscriptions.keep_listening import KeepListening
from tape.subscriptions.listener import OpenForListening
from tape.subscriptions.operations import (
    AcceptedMessage,
    AcceptMessagesRequest,
    HoldSubscription,
    Subscriptions,
)

QUICK = Settings(sqlite=SqliteSettings(poll_s=0.02))
QUICK_LISTENERS = ListenerSettings(lease_s=1.0, look_s=0.02, grace_s=10)
ORIGIN = "nats/ORDERS@1"


def document(name: str = "orders", **spec: Any) -> str:
    """One that pulls from NATS; None takes a key away."""
    said = {
        "source": "nats",
        "mode": "pull",
        "activation": "continuous",
        "auth": "nats_main",
        "stream": "ORDERS",
        "consumer": "desk",
        "dispatch": {"playbook": "desk"},
    } | spec
    metadata = {"name": name, "path": f"subscriptions/{name}"}
    kept = {key: value for key, value in said.items() if value is not None}
    return yaml.safe_dump(
        {"apiVersion": "tape/v1", "kind": "Subscription", "metadata": metadata, "spec": kept}
    )


def pushed(name: str = "hooks", **spec: Any) -> str:
    verify = {"type": "hmac_sha256", "header": "X-Signature", "secret": "hook_secret"}
    nothing = dict.fromkeys(("activation", "auth", "stream", "consumer"))
    ingress = {"gateway_path": f"/ingress/{name}", "verify": verify}
    return document(name, **nothing, source="webhook", mode="push", ingress=ingress, **spec)


def message(number: int, body: bytes = b'{"n":1}', **fields: Any) -> SourceMessage:
    return SourceMessage("nats", ORIGIN, str(number), body, **fields)


def delivery(number: int, body: bytes = b'{"n":1}') -> SourceMessage:
    return SourceMessage("webhook", "push/hooks", str(number), body)


class Subscribed:
    """Operations of one bus, in few words."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.subscriptions: Subscriptions = bus.subscriptions
        self.token = 0

    @property
    def store(self) -> Store:
        return self.bus._store

    async def listen(self, text: str = "", name: str = "orders") -> None:
        """Register, activate and hold it."""
        await self.subscriptions.register_subscription(text or document())
        await self.subscriptions.move_subscription(name, "activate")
        held = await self.subscriptions.hold_subscription(HoldSubscription(name, "me", 60_000))
        assert held.is_granted
        self.token = held.fencing_token

    async def push(self, text: str = "", name: str = "hooks") -> None:
        """Register and activate one that is pushed to."""
        await self.subscriptions.register_subscription(text or pushed())
        await self.subscriptions.move_subscription(name, "activate")

    async def accept(
        self, *messages: SourceMessage, name: str = "orders", revision: int = 1
    ) -> list[AcceptedMessage]:
        token = self.token if name == "orders" else 0
        request = AcceptMessagesRequest(name, revision, token, messages)
        return await self.subscriptions.accept_messages(request)

    async def outcomes(self, *messages: SourceMessage, **options: Any) -> list[str]:
        return [one.outcome.value for one in await self.accept(*messages, **options)]

    async def runs(self) -> list[Run]:
        """In the order in which they were begun."""
        begun = [entry.run_id for entry in await self._entries("/tape/run/runnable/")]
        runs = {run.run_id: run for run in await self.store.runs.list_runs(RunQuery(limit=10_000))}
        assert len(begun) == len(runs)
        return [runs[run_id] for run_id in begun]

    async def told(self, word: str) -> Sequence[Any]:
        """The payloads of entries with this verb."""
        return [entry.payload for entry in await self._entries(f"/tape/subscription/{word}/")]

    async def _entries(self, prefix: str) -> list[Entry]:
        upto = (await self.store.info()).head_global_seq
        query = ReadEntries(0, upto, 100_000, 1 << 30, prefix)
        return (await self.store.read_entries(query)).entries


@asynccontextmanager
async def subscribed(url: str, settings: Settings = QUICK) -> AsyncIterator[Subscribed]:
    bus = Bus(await open_store(url, settings), settings)
    try:
        yield Subscribed(bus)
    finally:
        await bus.close()


@asynccontextmanager
async def listening(
    subscriptions: Subscriptions,
    open_source: OpenForListening,
    settings: ListenerSettings = QUICK_LISTENERS,
    owner: str = "me",
) -> AsyncIterator[None]:
    """Within this, somebody listens for all subscriptions."""
    stop = asyncio.Event()
    keeper = KeepListening(subscriptions, open_source, lambda _row: True, settings, owner=owner)
    task = asyncio.create_task(keeper.run(stop))
    try:
        yield
    finally:
        stop.set()
        await task
