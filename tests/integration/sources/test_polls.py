"""An app polls real systems: what was sent comes, is acknowledged, and comes no more."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest

import tape
from tape.runs.declare import App
from tape.runs.driving import polled_sources
from tests.conformance.source import BOUND_S, Sent
from tests.integration.docs.pages import ROOT
from tests.integration.sources.far_sides import FileSide, KafkaSide, NatsSide, PubSubSide
from tests.integration.sources.polling_apps import (
    QUIET_S,
    SETTINGS,
    blocking_poller,
    failing_poller,
    poller,
    waiting_poller,
)
from tests.integration.wallet.wallets import KEY, environment_of
from tests.servers.kafka import KafkaServer
from tests.servers.nats import NatsServer
from tests.servers.pubsub import PubSubEmulator
from tests.servers.tape_server import ServerProcess
from tests.servers.tape_worker import WorkerProcess

pytestmark = pytest.mark.timeout(300)

FIVE = [{"n": n} for n in range(5)]
WHOLE: dict[str, Any] = {"batch": len(FIVE)}
"""A poll that has as many waits for no more."""


class Polling(NamedTuple):
    """A system to poll: what an app asks, its credential, and how it is sent to."""

    asked: dict[str, Any]
    credential: dict[str, Any] | None
    send: Callable[[list[Sent]], Awaitable[None]]

    async def send_five(self) -> None:
        await self.send([Sent(orjson.dumps(each)) for each in FIVE])


async def nats_polling(server: NatsServer) -> Polling:
    side = NatsSide(server)
    await side.make(ack_wait=1.0)  # less than what polls wait for
    asked = {**WHOLE, "source": "nats", "auth": "main", "stream": side.stream, "consumer": "tape"}
    return Polling(asked, side.credential, side.send)


@pytest.fixture(params=["nats", "kafka", "pubsub", "file"])
async def polling(request: pytest.FixtureRequest, tmp_path: Path) -> Polling:
    match request.param:
        case "nats":
            server: NatsServer = request.getfixturevalue("nats_server")
            return await nats_polling(server)
        case "kafka":
            broker: KafkaServer = request.getfixturevalue("kafka_server")
            kafka = KafkaSide(broker)
            await asyncio.to_thread(kafka.make)
            at = {"source": "kafka", "auth": "main", "topic": kafka.topic, "group": kafka.topic}
            return Polling({**WHOLE, **at}, kafka.credential, kafka.send)
        case "pubsub":
            emulator: PubSubEmulator = request.getfixturevalue("emulator")
            pubsub = PubSubSide(emulator)
            await pubsub.make()
            at = {"source": "pubsub", "auth": "main", "subscription": pubsub.subscription}
            # The emulator hands messages to pulls that were given up, too: they come again only
            # after their deadline, and many short polls would leave one behind each.
            patient = {**WHOLE, **at, "timeout_ms": 30_000}
            return Polling(patient, {"emulator_host": emulator.host}, pubsub.send)
    folder = tmp_path / "inbox"
    folder.mkdir()
    asked = {**WHOLE, "source": "file", "folder": str(folder)}
    return Polling(asked, None, FileSide(folder).send)


@pytest.fixture
async def client(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tape.AsyncTapeClient]:
    monkeypatch.setattr(polled_sources, "QUIET_S", QUIET_S)
    monkeypatch.setenv("TAPE_WALLET_KEY", environment_of(KEY)["TAPE_WALLET_KEY"])
    async with tape.connect_async(sqlite_url, settings=SETTINGS) as client:
        yield client


async def put(client: tape.AsyncTapeClient, polling: Polling) -> None:
    if polling.credential is not None:
        await client.put_credential("main", polling.credential)


def payloads(done: dict[str, Any]) -> list[Any]:
    """What came: its values in the order of `n`, as partitions have no order among them."""
    return sorted(done["payloads"], key=lambda each: each["n"])


async def all_polled(client: tape.AsyncTapeClient, polling: Polling, count: int) -> list[Any]:
    """What comes until there are so many: what was given back takes its time at the source."""
    found: list[Any] = []
    async with asyncio.timeout(BOUND_S):
        while len(found) < count:
            found += (await client.run(poller, polling.asked))["payloads"]
    return sorted(found, key=lambda each: each["n"])


@pytest.mark.parametrize("app", [poller, blocking_poller], ids=["async", "sync"])
@pytest.mark.parametrize("ack", ["on_success", "auto", "manual"])
async def test_five_are_polled_acknowledged_and_gone(
    client: tape.AsyncTapeClient, polling: Polling, ack: str, app: App[Any]
) -> None:
    """Published 5: count 5, acknowledged, the second poll is empty, the run has its trail."""
    await put(client, polling)
    await polling.send_five()
    asked = {**polling.asked, "ack": ack}
    done = await client.run(app, asked, invocation_id="first")
    assert (done["count"], payloads(done)) == (5, FIVE)
    assert (done["acked"], done["by_hand"]) == (ack == "auto", 5 if ack == "manual" else 0)
    assert len(set(done["places"])) == 5
    again = await client.run(app, {**asked, "timeout_ms": 1_500})
    assert (again["count"], again["places"]) == (0, [])
    (run,) = [r for r in await client.list_runs() if r.invocation_id == "first"]
    assert run.status == tape.RunStatus.TERMINAL
    told = [entry.subject.split("/")[2:4] for entry in await client.read_run(run.run_id)]
    assert told[1] == ["decision", "drawn"]
    assert told[-1] == ["run", "terminal"]


async def test_what_a_failed_run_had_comes_again(
    client: tape.AsyncTapeClient, polling: Polling
) -> None:
    await put(client, polling)
    await polling.send_five()
    with pytest.raises(tape.EffectFailed, match="5 came"):
        await client.run(failing_poller, polling.asked)
    assert await all_polled(client, polling, 5) == FIVE
    assert (await client.run(poller, {**polling.asked, "timeout_ms": 1_500}))["count"] == 0


async def test_a_run_that_waits_gives_back_and_acknowledges_at_its_end(
    client: tape.AsyncTapeClient, polling: Polling
) -> None:
    """What others have sent meanwhile is left to the next poll."""
    await put(client, polling)
    await polling.send_five()
    running = asyncio.create_task(client.run(waiting_poller, polling.asked, invocation_id="waits"))
    async with asyncio.timeout(BOUND_S):
        while not await client.list_runs(status="waiting"):  # noqa: ASYNC110 - the store is asked
            await asyncio.sleep(0.05)
    await polling.send([Sent(orjson.dumps({"n": 5}))])
    (run,) = await client.list_runs(status="waiting")
    await client.send_signal(run.run_id, "go on")
    assert payloads(await running) == FIVE
    found: list[Any] = []
    async with asyncio.timeout(BOUND_S):
        while {"n": 5} not in found:
            found += (await client.run(poller, polling.asked))["payloads"]
    # The run looks for its own no longer than a poll does. What the emulator has handed to a pull
    # that was given up may come later than that, and so once more.
    again = [each for each in found if each != {"n": 5}]
    assert found.count({"n": 5}) == 1
    assert not again or (polling.asked["source"] == "pubsub" and all(e in FIVE for e in again))


async def test_a_batch_leaves_the_rest(client: tape.AsyncTapeClient, polling: Polling) -> None:
    await put(client, polling)
    await polling.send_five()
    counts, seen = [], []
    for _ in range(3):
        done = await client.run(poller, {**polling.asked, "batch": 2})
        counts.append(done["count"])
        seen += done["payloads"]
    assert counts == [2, 2, 1]
    assert sorted(each["n"] for each in seen) == [0, 1, 2, 3, 4]


async def test_a_wrong_login_or_name_is_told(
    client: tape.AsyncTapeClient, nats_server: NatsServer
) -> None:
    polling = await nats_polling(nats_server)
    with pytest.raises(tape.EffectFailed, match="NoCredential"):
        await client.run(poller, polling.asked)
    await put(client, polling)
    with pytest.raises(tape.EffectFailed, match="has no consumer nobody"):
        await client.run(poller, {**polling.asked, "consumer": "nobody"})


async def test_a_worker_at_a_server_polls_with_a_credential_of_the_wallet(
    sqlite_url: str, polling: Polling, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAPE_WALLET_KEY", environment_of(KEY)["TAPE_WALLET_KEY"])
    with ServerProcess(sqlite_url) as server:
        async with tape.connect_async(server.url) as client:
            await put(client, polling)
            await polling.send_five()
            with polling_worker(server.url, tmp_path):
                first = await client.start_run(poller, polling.asked)
                done = await ended(client, first)
                assert (done["count"], payloads(done)) == (5, FIVE)
                second = await client.start_run(poller, {**polling.asked, "timeout_ms": 1_500})
                assert (await ended(client, second))["count"] == 0


class Kill(NamedTuple):
    boundary: str
    is_recorded: bool
    has_ended: bool = False


AFTER_FETCH = Kill("after poll", is_recorded=False)
BEFORE_RECORD = Kill("before RecordDecision", is_recorded=False)
AFTER_RECORD = Kill("after RecordDecision", is_recorded=True)
BEFORE_ACK = Kill("before ack", is_recorded=True)
AFTER_ACK = Kill("after ack", is_recorded=True)


@pytest.mark.parametrize(
    ("ack", "kill"),
    [
        ("auto", AFTER_FETCH),
        ("auto", BEFORE_ACK),
        ("on_success", AFTER_RECORD),
        ("on_success", BEFORE_ACK._replace(has_ended=True)),
        *(
            pytest.param(*given, marks=pytest.mark.middle)
            for given in (
                ("auto", BEFORE_RECORD),
                ("auto", AFTER_RECORD),
                ("auto", AFTER_ACK),
                ("on_success", AFTER_FETCH),
                ("on_success", AFTER_ACK._replace(has_ended=True)),
                ("manual", AFTER_RECORD),
                ("manual", BEFORE_ACK),
            )
        ),
    ],
    ids=lambda given: given if isinstance(given, str) else given.boundary.replace(" ", "-"),
)
async def test_a_worker_killed_between_two_steps_loses_nothing(
    client: tape.AsyncTapeClient,
    sqlite_url: str,
    nats_server: NatsServer,
    tmp_path: Path,
    ack: str,
    kill: Kill,
) -> None:
    """A real worker, a real NATS, kill -9. The run goes on with what is recorded; what was not
    acknowledged comes again, under the same places.
    """
    polling = await nats_polling(nats_server)
    await put(client, polling)
    await polling.send_five()
    asked = {**polling.asked, "ack": ack}
    run = await client.start_run(poller, asked)
    with polling_worker(sqlite_url, tmp_path, kill.boundary) as killed:
        await until(lambda: killed.has_ended)
    recorded = [
        entry for entry in await client.read_run(run.run_id)
        if entry.subject.startswith("/tape/decision/drawn/")
    ]  # fmt: skip
    assert bool(recorded) is kill.is_recorded
    left = await client.get_run(run.run_id)
    assert left is not None
    assert bool(left.ended_at_ms) is kill.has_ended
    with polling_worker(sqlite_url, tmp_path):
        done = await ended(client, run)
        come = done["places"]
        if kill.is_recorded:
            assert payloads(done) == FIVE
        seen = await poll_until_drained(client, asked, {*come}, ack)
    assert len({*come} | seen) == 5
    if kill.boundary == "after ack":
        assert seen == set()
    elif (ack == "on_success" and kill.has_ended) or ack == "manual":
        assert done["by_hand"] == 0
        assert seen == {*come}  # nobody was left to acknowledge them
    elif kill.is_recorded:
        assert seen == set()  # the worker that went on had them delivered again at the end


async def poll_until_drained(
    client: tape.AsyncTapeClient, asked: dict[str, Any], come: set[str], ack: str
) -> set[str]:
    """Poll until each message has come to some run, and no more come after the time in which NATS
    delivers again; the places of what came.
    """
    seen: set[str] = set()
    empty = 0
    async with asyncio.timeout(BOUND_S):
        while empty < 2 or len(come | seen) < 5:
            run = await client.start_run(poller, {**asked, "timeout_ms": 1_500})
            places = (await ended(client, run))["places"]
            empty = 0 if places else empty + 1
            seen |= {*places}
    return seen


def polling_worker(url: str, folder: Path, boundary: str = "") -> WorkerProcess:
    given = (url, boundary) if boundary else (url,)
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return WorkerProcess(
        "-m", "tests.integration.sources.polling_apps", *given,
        log=folder / "worker.log", folder=ROOT, env={"PYTHONPATH": paths},
    )  # fmt: skip


async def ended(client: tape.AsyncTapeClient, run: tape.Run) -> Any:
    async with asyncio.timeout(BOUND_S):
        return await client.run_result(run.run_id)


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(BOUND_S):
        while not is_so():  # noqa: ASYNC110 - a process is asked
            await asyncio.sleep(0.05)
