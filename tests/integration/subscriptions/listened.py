"""Subscriptions at real systems, and what a journal says of them: for tests of whole listeners."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import orjson
import yaml

from tape.bus import Bus
from tape.client import AsyncTapeClient
from tape.model.entry import Entry
from tape.model.run import Run, RunStatus
from tape.model.subscription import Subscription
from tape.model.subscription_spec import SourceSpec
from tape.programs.listening import listeners_keeper
from tape.programs.opening_credentials import opening_credentials
from tape.settings import ListenerSettings, Settings, SqliteSettings
from tape.stores.by_url import open_store
from tape.subscriptions.operations import SubscriptionView
from tape.wallet.keys import Keys
from tests.integration.sources.far_sides import NatsSide
from tests.integration.wallet.wallets import KEY, environment_of
from tests.servers.nats import NatsServer
from tests.servers.nats_raw import publish_all_raw

BOUND_S = 120.0
"""Of anything that is waited for: the machine may be busy."""
LOOK_S = 0.02
LISTENERS = ListenerSettings(lease_s=2.0, look_s=LOOK_S)
QUICK = Settings(sqlite=SqliteSettings(poll_s=0.02), listeners=LISTENERS)
ENVIRONMENT = {**environment_of(KEY), "PUBSUB_EMULATOR_HOST": ""}
"""Of programs that open credentials."""


class Side(Protocol):
    """Where messages come from, and how one logs in there."""

    @property
    def spec(self) -> SourceSpec: ...

    @property
    def credential(self) -> dict[str, Any]: ...


def document(side: Side, name: str, **spec: Any) -> str:
    """A subscription to what is there; its credential has the subscription's name as alias."""
    at = {
        key: getattr(side.spec, key)
        for key in ("subscription", "stream", "consumer", "topic", "group")
        if getattr(side.spec, key)
    }
    said: dict[str, Any] = {
        "source": side.spec.kind.value, "mode": "pull", "activation": "continuous", "auth": name,
        **at, "dispatch": {"playbook": "keep"},
    }  # fmt: skip
    metadata = {"name": name, "path": f"subscriptions/{name}"}
    kind = {"apiVersion": "tape/v1", "kind": "Subscription", "metadata": metadata}
    return yaml.safe_dump({**kind, "spec": said | spec})


async def activate(client: AsyncTapeClient, side: Side, name: str, **spec: Any) -> None:
    """Put its credential in the wallet, register the subscription and activate it."""
    await client.put_credential(name, json.dumps(side.credential))
    await client.register_subscription(document(side, name, **spec))
    await client.move_subscription(name, "activate")


def settings_file(folder: Path, lease_s: float = LISTENERS.lease_s) -> str:
    """Settings of a process that looks for subscriptions often; its path."""
    path = folder / "tape.yaml"
    told = {"sqlite": {"poll_s": 0.02}, "listeners": {"lease_s": lease_s, "look_s": LOOK_S}}
    path.write_text(yaml.safe_dump({"tape": told}))
    return str(path)


@asynccontextmanager
async def opened_here(url: str) -> AsyncIterator[Bus]:
    """A bus in this process, which has the key of the wallet."""
    bus = Bus(await open_store(url, QUICK), QUICK, keys=Keys(environment_of(KEY)))
    try:
        yield bus
    finally:
        await bus.close()


@asynccontextmanager
async def listening_here(
    bus: Bus, settings: ListenerSettings = LISTENERS, owner: str = "here"
) -> AsyncIterator[None]:
    """A process's listeners, in this one."""

    def wanted(_row: Subscription) -> bool:
        return True

    stop = asyncio.Event()
    async with opening_credentials(bus) as open_credential:
        keeper = listeners_keeper(bus, open_credential, wanted, settings, owner=owner)
        task = asyncio.create_task(keeper.run(stop))
        try:
            yield
        finally:
            stop.set()
            await task


async def all_runs(client: AsyncTapeClient, name: str) -> list[Run]:
    """The runs that messages of a subscription became, in the order in which they began."""
    found: list[Run] = []
    while page := await client.list_runs(
        subscription=name, limit=1_000, after=found[-1].run_id if found else ""
    ):
        found += page
    return sorted(found, key=lambda run: run.started_at_ms)


async def until_begun(client: AsyncTapeClient, name: str, count: int) -> list[Run]:
    """Its runs, once there are so many."""
    await until_view(client, name, lambda view: view.listener.accepted >= count)
    return await all_runs(client, name)


async def until_done(client: AsyncTapeClient, name: str, count: int) -> list[Run]:
    """Its runs, once so many are completed; a run that ends otherwise is a fault."""
    async with asyncio.timeout(BOUND_S):
        while True:
            runs = await all_runs(client, name)
            ended = [
                run for run in runs if run.status not in (RunStatus.RUNNABLE, RunStatus.RUNNING)
            ]
            assert {run.status for run in ended} <= {RunStatus.TERMINAL}
            if len(ended) >= count:
                return runs
            await asyncio.sleep(LOOK_S)


async def until_view(client: AsyncTapeClient, name: str, holds: Any) -> SubscriptionView:
    """The subscription, once that is so of it."""
    async with asyncio.timeout(BOUND_S):
        while not holds(view := await client.subscription(name)):  # noqa: ASYNC110 - it is asked
            await asyncio.sleep(LOOK_S)
    return view


async def entries(client: AsyncTapeClient, pattern: str) -> list[Entry]:
    """What the journal has of these subjects."""
    async with client.follow(pattern, live=False) as found:
        return [entry async for entry in found]


async def told(client: AsyncTapeClient, name: str, word: str = "*") -> list[tuple[str, Any]]:
    """What the journal says of a subscription: each verb with its payload."""
    found = await entries(client, f"/tape/subscription/{word}/{name}")
    return [(entry.subject.split("/")[3], entry.payload) for entry in found]


async def inputs(client: AsyncTapeClient, name: str) -> list[Any]:
    """What the runs of a subscription were given, in the order in which they began."""
    found = [entry.payload["input"] for entry in await entries(client, "/tape/run/runnable/**")]
    return [each for each in found if each["message"]["subscription"] == name]


async def payloads(client: AsyncTapeClient, name: str) -> list[Any]:
    """Of those the messages' bodies."""
    return [each["payload"] for each in await inputs(client, name)]


async def given(client: AsyncTapeClient, run: Run) -> Any:
    """The input of a run."""
    return (await client.read_run(run.run_id))[0].payload["input"]


def gave(run: Run) -> Any:
    """What a completed run has returned."""
    return orjson.loads(run.outcome_json)


async def publish(
    server: NatsServer, side: NatsSide, messages: Sequence[tuple[bytes, Any]]
) -> None:
    """Send header lines and JSON values to a stream, by NATS's protocol alone."""
    bodies = [(headers, orjson.dumps(value)) for headers, value in messages]
    await asyncio.to_thread(publish_all_raw, server.address, f"{side.stream}.any", bodies)
