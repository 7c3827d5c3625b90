"""The server as an operator meets it."""

import signal
import socket
import sys
from pathlib import Path

import httpx
import pytest

from tests.integration.cli.command import start, tape
from tests.servers.tape_server import ServerProcess

APP = """
import tape

@tape.app("checkout")
def checkout(ctx): ...
"""
INBOX = """
apiVersion: tape/v1
kind: Subscription
metadata: {name: inbox, path: subscriptions/inbox}
spec: {source: file, mode: pull, activation: continuous, folder: inbox, dispatch: {playbook: x}}
"""
HEALTH = {"TAPE_HEALTH": "0.0.0.0:0"}
ANYWHERE = ("--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_says_where_it_is_and_ends_when_asked(
    number: signal.Signals, sqlite_url: str, tmp_path: Path
) -> None:
    with start("serve", "--store", sqlite_url, *ANYWHERE, folder=tmp_path) as server:
        assert server.stdout is not None
        kind, address = server.stdout.readline().split()
        assert kind == "grpc"
        assert not address.endswith(":0")
        kind, http = server.stdout.readline().split()
        assert kind == "http"
        assert httpx.get(f"http://{http}/readyz", timeout=60).status_code == 200
        done = tape("record", "x", "--url", f"tape://{address}", folder=tmp_path)
        assert (done.code, done.err) == (0, "")
        server.send_signal(number)
        out, err = server.communicate(timeout=30)
    assert (server.returncode, out, err) == (0, "", "")


@pytest.mark.parametrize("how", ["option", "environment"])
def test_health_is_told_after_the_other_doors(how: str, sqlite_url: str, tmp_path: Path) -> None:
    typed, env = (("--health", "0.0.0.0:0"), {}) if how == "option" else ((), HEALTH)
    with start("serve", "--store", sqlite_url, *ANYWHERE, *typed, folder=tmp_path, **env) as server:
        assert server.stdout is not None
        said = [server.stdout.readline().split() for _ in range(3)]
        assert [name for name, _ in said] == ["grpc", "http", "health"]
        host, _, port = said[2][1].rpartition(":")
        assert host == "0.0.0.0"
        assert httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=60).json() == {
            "status": "ready"
        }
        assert httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=60).status_code == 404
        server.terminate()
        out, err = server.communicate(timeout=30)
    assert (server.returncode, out, err) == (0, "", "")


@pytest.mark.parametrize("command", ["serve", "worker", "subscribe"])
def test_a_port_of_health_in_use_names_where_it_was_said(
    command: str, sqlite_url: str, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(APP)
    (tmp_path / "inbox.yaml").write_text(INBOX)
    words = {
        "serve": ("serve", *ANYWHERE),
        "worker": ("worker", "-m", "shop"),
        "subscribe": ("subscribe", "inbox.yaml"),
    }[command]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        arguments = (*words, "--store", sqlite_url)
        typed = tape(*arguments, "--health", address, folder=tmp_path)
        meant = tape(*arguments, folder=tmp_path, TAPE_HEALTH=address)
    for done, said in ((typed, "--health"), (meant, "TAPE_HEALTH")):
        assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1)
        assert done.err.startswith(f"error: {said}: cannot listen on {address}: it is in use")


def test_health_that_is_no_address_is_refused(sqlite_url: str, tmp_path: Path) -> None:
    for nonsense in ("8080", "", "0.0.0.0:99999"):
        done = tape(
            "serve", "--store", sqlite_url, *ANYWHERE, "--health", nonsense, folder=tmp_path
        )
        assert (done.code, done.out) == (2, "")
        assert f"--health: {nonsense!r} is not HOST:PORT" in done.err


def test_tokens_from_a_file_have_roles(sqlite_url: str, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("# who may\nread only-r3ad\nwrite wr1te\n")
    arguments = ("serve", "--store", sqlite_url, *ANYWHERE, "--tokens", str(tokens))
    with start(*arguments, folder=tmp_path) as server:
        assert server.stdout is not None
        url = f"tape://{server.stdout.readline().split()[1]}"
        record = ("record", "x", "--url", url)
        assert "token is required" in tape(*record, folder=tmp_path).err
        assert "role write" in tape(*record, folder=tmp_path, TAPE_TOKEN="only-r3ad").err
        assert tape(*record, folder=tmp_path, TAPE_TOKEN="wr1te").code == 0
        server.terminate()
        assert server.wait(30) == 0


@pytest.mark.parametrize("door", ["grpc", "http"])
def test_an_address_in_use_is_one_line_that_names_the_flag(
    door: str, sqlite_url: str, tmp_path: Path
) -> None:
    arguments = ("serve", "--store", sqlite_url, *ANYWHERE)
    with ServerProcess(sqlite_url) as server:
        taken = {"grpc": server.url.removeprefix("tape://"), "http": server.http}[door]
        done = tape(*arguments, f"--{door}", taken, folder=tmp_path)
        (tmp_path / "shop.py").write_text(APP)
        worker = ("worker", "-m", "shop", "--http", taken)
        other = tape(*worker, *arguments[1:3], folder=tmp_path)
        by = f"process {server.pid} ({Path(sys.executable).name} -m tape.cli serve)"
    assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1)
    assert f"--{door}: cannot listen on {taken}: it is in use by {by}; name another" in done.err
    assert f"--http: cannot listen on {taken}: it is in use by {by}" in other.err


def test_without_http(sqlite_url: str, tmp_path: Path) -> None:
    arguments = ("serve", "--store", sqlite_url, "--grpc", "127.0.0.1:0", "--no-http")
    with start(*arguments, folder=tmp_path) as server:
        assert server.stdout is not None
        assert server.stdout.readline().startswith("grpc ")
        server.terminate()
        out, err = server.communicate(timeout=30)
    assert (server.returncode, out, err) == (0, "", "")


def test_without_a_server_the_error_says_what_to_do(tmp_path: Path) -> None:
    done = tape("record", "x", "--url", "tape://127.0.0.1:1", folder=tmp_path)
    assert done.code == 1
    assert len(done.err.splitlines()) == 1
