"""`tape relay` and `run_outbox_relay` as users meet them."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tape
from tape.errors import InvalidArgument
from tape.reactors import relay_outbox, run_outbox_relay
from tape.sinks import LogSink
from tests.integration.cli.command import clean_environment, start
from tests.integration.cli.command import tape as run_tape
from tests.servers.tape_server import ServerProcess


def record(url: str, *events: tuple[str, int]) -> None:
    with tape.connect(url) as client:
        client.record_many([tape.event(kind, {"n": number}) for kind, number in events])


def relayed(out: str) -> list[int]:
    return [json.loads(line)["data"]["n"] for line in out.splitlines()]


def test_what_is_there_and_then_what_came(sqlite_url: str, tmp_path: Path) -> None:
    record(sqlite_url, ("a", 1), ("b", 2))
    command = ("relay", "--store", sqlite_url, "--sink", "log:", "--no-follow")
    assert relayed(run_tape(*command, folder=tmp_path).out) == [1, 2]
    assert relayed(run_tape(*command, folder=tmp_path).out) == []
    record(sqlite_url, ("c", 3))
    done = run_tape(*command, folder=tmp_path)
    assert relayed(done.out) == [3]
    assert "tapeattempt" not in done.out  # the relay before it had come to its end
    assert json.loads((tmp_path / "tape-relay.cursor").read_text()) == {"last_global_seq": 3}


def test_a_part_of_the_journal(sqlite_url: str, tmp_path: Path) -> None:
    record(sqlite_url, ("a", 1), ("b", 2), ("b", 3))
    done = run_tape(
        "relay", "--store", sqlite_url, "--sink", "log:", "--no-follow", "--cursor", "mine",
        "--pattern", "/tape/event/recorded/b/**", "--where", "payload.n > 2", folder=tmp_path,
    )  # fmt: skip
    assert relayed(done.out) == [3]
    assert json.loads((tmp_path / "mine").read_text()) == {"last_global_seq": 3}


def test_from_a_server(sqlite_url: str, tmp_path: Path) -> None:
    record(sqlite_url, ("a", 1), ("b", 2))
    with ServerProcess(sqlite_url) as server:
        done = run_tape(
            "relay", "--url", server.url, "--sink", "log:", "--no-follow", folder=tmp_path
        )
    assert relayed(done.out) == [1, 2]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ((), "Missing option '--sink'"),
        (("--sink", "nope"), "--sink: is not a target"),
        (("--sink", "https://hooks.example/"), "put the secret into TAPE_WEBHOOK_SECRET"),
        (("--sink", "log:", "--pattern", "nope"), "--pattern at position 0"),
        (("--sink", "log:", "--where", "payload +"), "--where"),
    ],
)
def test_bad_input_is_one_line_and_changes_nothing(
    sqlite_url: str, tmp_path: Path, options: tuple[str, ...], says: str
) -> None:
    record(sqlite_url, ("a", 1))
    done = run_tape("relay", "--store", sqlite_url, *options, folder=tmp_path)
    assert (done.code, done.out) == (2, "")
    assert says in done.err.splitlines()[0]
    assert not (tmp_path / "tape-relay.cursor").exists()


def test_a_cursor_of_another_journal_is_refused(sqlite_url: str, tmp_path: Path) -> None:
    record(sqlite_url, ("a", 1))
    cursor = tmp_path / "tape-relay.cursor"
    for text in ('{"last_global_seq": 7000}', '{"name": "x"}'):
        cursor.write_text(text)
        done = run_tape("relay", "--store", sqlite_url, "--sink", "log:", folder=tmp_path)
        assert (done.code, done.out) == (2, "")
        assert "is beyond the end of this journal" in done.err or "is not a relay's" in done.err
        assert json.loads(cursor.read_text()) == json.loads(text)


def test_a_pipe_that_nobody_reads_ends_it(sqlite_url: str, tmp_path: Path) -> None:
    record(sqlite_url, ("a", 1), ("a", 2))
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "tape.cli", "relay", "--store", sqlite_url, "--sink", "log:"],
        stdout=writing, stderr=subprocess.PIPE, cwd=tmp_path, env=clean_environment(),
        timeout=30, check=False,
    )  # fmt: skip
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads((tmp_path / "tape-relay.cursor").read_text()) == {"last_global_seq": 0}


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_regularly(sqlite_url: str, tmp_path: Path, how: signal.Signals) -> None:
    record(sqlite_url, ("a", 1))
    process = start("relay", "--store", sqlite_url, "--sink", "log:", folder=tmp_path)
    assert process.stdout is not None
    assert relayed(process.stdout.readline()) == [1]
    process.send_signal(how)
    assert process.communicate(timeout=30) == ("", "")
    assert process.returncode == 0
    assert json.loads((tmp_path / "tape-relay.cursor").read_text()) == {"last_global_seq": 1}


def test_an_old_cursor_is_replaced(
    store_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(store_url, ("a", 1), ("b", 2))
    with tape.connect(store_url) as client:
        first = next(iter(client.follow()))
    cursor = tmp_path / "cursor"
    old = {"from_ts_ms": first.ts_ms + 60_000, "last_run_id": "", "last_seq": 0}
    cursor.write_text(json.dumps(old))
    run_outbox_relay(store_url, sink=LogSink(), cursor_path=cursor, live=False)
    assert relayed(capsys.readouterr().out) == []
    cursor.write_text(json.dumps(old | {"from_ts_ms": first.ts_ms}))
    run_outbox_relay(store_url, sink=LogSink(), cursor_path=cursor, live=False)
    assert relayed(capsys.readouterr().out) == [1, 2]  # nothing says which of them had been sent
    assert json.loads(cursor.read_text()) == {"last_global_seq": 2}


@pytest.mark.parametrize("name", ["where", "predicate"])
def test_only_entries_for_which_a_predicate_holds(
    name: str, sqlite_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(sqlite_url, ("a", 1), ("b", 2))
    only: Any = {name: "event_type == 'b'"}
    run_outbox_relay(
        sqlite_url, sink=LogSink(), cursor_path=tmp_path / "cursor", live=False, **only
    )
    assert relayed(capsys.readouterr().out) == [2]


def test_a_predicate_has_one_name(sqlite_url: str) -> None:
    with pytest.raises(InvalidArgument, match="is another name for where"):
        run_outbox_relay(sqlite_url, sink=LogSink(), where="true", predicate="true", live=False)


async def test_a_relay_needs_a_sink(sqlite_url: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="needs a sink"):
        await relay_outbox(sqlite_url, cursor_path=tmp_path / "cursor")


def test_in_a_thread_it_leaves_signals_alone(
    sqlite_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from threading import Thread

    record(sqlite_url, ("a", 1))
    thread = Thread(
        target=run_outbox_relay,
        args=(sqlite_url,),
        kwargs={"sink": LogSink(), "cursor_path": tmp_path / "cursor", "live": False},
    )
    thread.start()
    thread.join(30)
    assert relayed(capsys.readouterr().out) == [1]
