"""What the design was proven by, played again: six messages with headers, batches, repeats, a rate.

A server listens to a real NATS, and workers of two pools run what becomes of the messages.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import tape
from tape.client import AsyncTapeClient
from tape.subscriptions.operations import SubscriptionView
from tests.integration.docs.pages import ROOT
from tests.integration.sources.far_sides import NatsSide
from tests.integration.subscriptions.listened import (
    ENVIRONMENT,
    LOOK_S,
    activate,
    all_runs,
    entries,
    gave,
    given,
    publish,
    settings_file,
    told,
    until_begun,
    until_done,
    until_view,
)
from tests.integration.telemetry.listening_desk import scraped
from tests.servers.nats import NatsServer
from tests.servers.tape_server import ServerProcess
from tests.servers.tape_worker import WorkerProcess

POOL = "iot"
WRONG_CLOCK = ROOT / "tests" / "crash" / "wrong_clock"
TRACED = {
    "directives": [
        {"header": "x-route", "controls": "dispatch.playbook", "allowed": ["keep", "alarm"]},
        {"header": "x-idempotency-key", "controls": "idempotency_key"},
    ],
    "trace": {"propagate": "w3c"},
}
pytestmark = pytest.mark.timeout(300)


class Traced(NamedTuple):
    """A message with a trace of its own."""

    number: int
    more: bytes = b""

    @property
    def trace_id(self) -> str:
        return f"{self.number:032x}"

    @property
    def traceparent(self) -> str:
        return f"00-{self.trace_id}-{self.number:016x}-01"

    @property
    def sent(self) -> tuple[bytes, Any]:
        return f"traceparent: {self.traceparent}\r\n".encode() + self.more, {"n": self.number}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("server")
    store, config = f"sqlite:{folder / 'tape.db'}", settings_file(folder)
    with ServerProcess(store, "--config", config, env=ENVIRONMENT) as process:
        yield process


@pytest.fixture(scope="module", autouse=True)
def _workers(server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One of the pool, and one of everybody's, which has the same apps."""
    log = tmp_path_factory.mktemp("workers") / "log"
    apps = "tests.integration.subscriptions.desk_apps"
    command = ["-m", "tape.cli", "worker", "-m", apps, "--url", server.url]

    def worker(pool: str) -> WorkerProcess:
        env = {"WORKS_IN": pool, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
        return WorkerProcess(*command, "--pool", pool, log=log, folder=ROOT, env=env)

    with worker(POOL), worker("default"):
        yield


@pytest.fixture
async def client(server: ServerProcess) -> AsyncIterator[AsyncTapeClient]:
    async with tape.connect_async(server.url) as opened:
        yield opened


@pytest.fixture
async def side(nats_server: NatsServer) -> NatsSide:
    return await made(nats_server)


async def expect_traces(client: AsyncTapeClient, name: str, sent: list[Traced]) -> None:
    """In every run: in its input, in its first entry, and told to its app."""
    runs = await all_runs(client, name)
    by_number = {message.number: message for message in sent}
    seen = []
    for run in runs:
        what = await given(client, run)
        message = by_number[what["payload"]["n"]]
        assert what["message"]["trace"]["traceparent"] == message.traceparent
        entries = await client.read_run(run.run_id)
        assert {entry.trace_id for entry in entries} == {message.trace_id}
        assert gave(run)["trace"]["traceparent"] == message.traceparent
        seen.append(message.number)
    assert sorted(seen) == sorted(by_number)


async def test_phase_2(client: AsyncTapeClient, side: NatsSide) -> None:
    """6 messages, 6 runs of the pool, all completed by it; 2 redirected; 6 traces; a whole life."""
    dispatch = {"playbook": "keep", "execution_pool": POOL}
    await activate(client, side, "readings", dispatch=dispatch, headers=TRACED)
    sent = [Traced(n, b"X-Route: alarm\r\n" if n in (2, 5) else b"") for n in range(1, 7)]
    await publish(side.server, side, [message.sent for message in sent[:3]])
    await until_begun(client, "readings", 3)
    await client.move_subscription("readings", "pause")
    await until_view(client, "readings", lambda view: not view.is_held)
    await publish(side.server, side, [message.sent for message in sent[3:]])
    assert len(await all_runs(client, "readings")) == 3
    await client.move_subscription("readings", "resume")
    runs = await until_done(client, "readings", 6)
    assert len(runs) == 6
    assert {run.pool for run in runs} == {POOL}
    outputs = [gave(run) for run in runs]
    assert {output["worked_in"] for output in outputs} == {POOL}
    numbers = [(await given(client, run))["payload"]["n"] for run in runs]
    assert {n for n, run in zip(numbers, runs, strict=True) if run.app_name == "alarm"} == {2, 5}
    assert Counter(output["app"] for output in outputs) == {"keep": 4, "alarm": 2}
    await expect_traces(client, "readings", sent)
    await client.move_subscription("readings", "drain")
    await until_view(client, "readings", lambda view: view.subscription.state == "deactivated")
    words = [word for word, _payload in await told(client, "readings")]
    assert [word for word in words if not word.startswith("message_")] == [
        "registered", "activated", "paused", "resumed", "draining", "deactivated",
    ]  # fmt: skip
    redirected = await told(client, "readings", "message_directives_applied")
    assert sorted(payload["run_id"] for _word, payload in redirected) == sorted(
        run.run_id for run in runs if run.app_name == "alarm"
    )


async def test_phase_7_batches_keep_their_traces(
    client: AsyncTapeClient, side: NatsSide, server: ServerProcess
) -> None:
    """12 messages wait; dispatched in batches of 5 at most, they are 12 runs with 12 traces."""
    sent = [Traced(n) for n in range(101, 113)]
    await publish(side.server, side, [message.sent for message in sent])
    dispatch = {
        "playbook": "keep", "execution_pool": POOL, "batch_dispatch": True, "batch_max": 5,
    }  # fmt: skip
    await activate(client, side, "batched", dispatch=dispatch, headers=TRACED)
    runs = await until_done(client, "batched", 12)
    assert len(runs) == 12
    assert {run.pool for run in runs} == {POOL}
    await expect_traces(client, "batched", sent)
    shown = await asyncio.to_thread(scraped, server.http)
    batches, messages = (
        shown[f'tape_subscription_{name}_total{{subscription="batched"}}']
        for name in ("batch_dispatch", "batch_messages")
    )
    assert messages == 12
    assert 12 / 5 <= batches < 12  # how large each is, `tests/unit/subscriptions` looks at


def keyed(*keys: str) -> list[tuple[bytes, Any]]:
    return [(f"x-idempotency-key: {key}\r\n".encode(), {"key": key}) for key in keys]


async def test_phase_7_a_repeat_within_its_window(client: AsyncTapeClient, side: NatsSide) -> None:
    await activate(client, side, "windowed", headers=TRACED, dedup={"window_secs": 3600})
    await publish(side.server, side, keyed("a", "a", "b"))
    view = await until_view(client, "windowed", is_idle_after(3))
    assert (view.listener.accepted, view.listener.deduplicated) == (2, 1)
    runs = await all_runs(client, "windowed")
    assert len(runs) == 2
    ((_word, payload),) = await told(client, "windowed", "message_deduplicated")
    first = next(run for run in runs if run.run_id == payload["run_id"])
    assert ((await given(client, first))["payload"], payload["key"]) == ({"key": "a"}, "a")


async def test_phase_7_a_repeat_without_a_window(client: AsyncTapeClient, side: NatsSide) -> None:
    await activate(client, side, "plain", headers=TRACED)
    await publish(side.server, side, keyed("a", "a"))
    assert len(await until_begun(client, "plain", 2)) == 2
    assert await told(client, "plain", "message_deduplicated") == []


async def test_phase_7_a_repeat_after_its_window(
    side: NatsSide, sqlite_url: str, tmp_path: Path
) -> None:
    """The server is started again with a clock that is two hours ahead."""
    config = settings_file(tmp_path)
    ahead = {"WRONG_BY_S": "7200", "PYTHONPATH": f"{WRONG_CLOCK}:{ROOT / 'src'}"}
    for env, sent, accepted, deduplicated in (({}, ("a", "a"), 1, 1), (ahead, ("a",), 2, 1)):
        with ServerProcess(sqlite_url, "--config", config, env=ENVIRONMENT | env) as server:
            async with tape.connect_async(server.url) as client:
                if not env:
                    window = {"window_secs": 3600}
                    await activate(client, side, "windowed", headers=TRACED, dedup=window)
                await publish(side.server, side, keyed(*sent))
                view = await until_view(client, "windowed", is_idle_after(accepted + deduplicated))
                counts = view.listener
                assert (counts.accepted, counts.deduplicated) == (accepted, deduplicated)
                assert len(await all_runs(client, "windowed")) == accepted


def is_idle_after(count: int) -> Callable[[SubscriptionView], bool]:
    return lambda view: view.listener.accepted + view.listener.deduplicated >= count


async def test_phase_7_a_rate(client: AsyncTapeClient, nats_server: NatsServer) -> None:
    """10 at once at 2 a second take 9 halves of a second, whoever waits for whom: none is lost, and
    the journal says once that the rate held something up."""
    both = (messages_wait_first(client, nats_server), listener_waits_first(client, nats_server))
    for name, begin_ms in await asyncio.gather(*both):
        runs = await until_begun(client, name, 10)
        assert len(runs) == 10
        assert len(await told(client, name, "rate_limited")) == 1
        elapsed_ms = runs[-1].started_at_ms - begin_ms
        print(f"{name}: {elapsed_ms} ms by the store's clock")
        assert elapsed_ms >= 4_500
        # Busy cores take their time to begin: that is not the rate's.
        assert runs[-1].started_at_ms - runs[0].started_at_ms <= 5_500


BURST = [(b"", {"n": number}) for number in range(10)]
TWO_A_SECOND = {"max_dispatch_per_sec": 2}


async def messages_wait_first(client: AsyncTapeClient, server: NatsServer) -> tuple[str, int]:
    """The subscription, and since when it may begin runs, by the store's clock."""
    side = await made(server)
    await publish(server, side, BURST)
    await activate(client, side, "messages-first", limits=TWO_A_SECOND)
    (activated,) = await entries(client, "/tape/subscription/activated/messages-first")
    return "messages-first", activated.ts_ms


async def listener_waits_first(client: AsyncTapeClient, server: NatsServer) -> tuple[str, int]:
    """Likewise."""
    side = await made(server)
    one_fetch = {"timeout_ms": 5000}
    await activate(client, side, "listener-first", limits=TWO_A_SECOND, runtime=one_fetch)
    while not await waiting_fetches(side):  # noqa: ASYNC110 - NATS is asked
        await asyncio.sleep(LOOK_S)
    since_ms = begin_ms = await store_clock(client)
    while begin_ms - since_ms < 700:  # what it was granted meanwhile is worth another message
        await asyncio.sleep(LOOK_S)
        begin_ms = await store_clock(client)
    await publish(server, side, BURST)
    return "listener-first", begin_ms


async def made(server: NatsServer) -> NatsSide:
    side = NatsSide(server)
    await side.make(ack_wait=30)
    return side


async def waiting_fetches(side: NatsSide) -> int:
    async with side.client() as nats:
        found = await nats.jetstream().consumer_info(side.stream, "tape")
        return found.num_waiting or 0


async def store_clock(client: AsyncTapeClient) -> int:
    """In milliseconds."""
    recorded = await client.record("clock.asked", {})
    async with client.follow(live=False, after=recorded.global_seq - 1) as found:
        return (await anext(aiter(found))).ts_ms
