"""Durable runs through the command: each word of it, on a file and through a server."""

import asyncio
import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen
from typing import IO

import pytest

import tape as tape_package
from tape.cli.root import run
from tape.model.lease import Taker
from tape.programs.run_control import recover_once
from tape.runs.driving.run_here import new_run
from tests.integration.cli import desk_apps
from tests.integration.cli.command import Done, start, tape

ROOT = Path(__file__).parents[3]
MODULE = desk_apps.__name__
Typed = Callable[..., Done]


@pytest.fixture
def typed(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Typed:
    """The command on a file, in this process to keep it cheap."""
    for name in ("TAPE_URL", "TAPE_TOKEN", "TAPE_CONFIG", "DESK_CHANGED"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TAPE_STORE", sqlite_url)
    monkeypatch.setenv("COLUMNS", "200")

    def typed(*arguments: str) -> Done:
        capfd.readouterr()
        code = run(arguments)
        return Done(code, *capfd.readouterr())

    return typed


@contextmanager
def running(*arguments: str, folder: Path) -> Iterator[tuple["Popen[str]", IO[str]]]:
    """A command in a process of its own, which does not outlive a test that fails."""
    process = start(*arguments, folder=folder)
    try:
        assert process.stdout is not None
        yield process, process.stdout
    finally:
        process.kill()
        process.communicate()


def started(typed: Typed, app: str = "pay", cents: int = 100, *options: str) -> str:
    made = typed("runs", "start", app, "--input", json.dumps({"cents": cents}), "--json", *options)
    assert made.code == 0, made.err
    (record,) = made.records
    run_id: str = record["run_id"]
    return run_id


def waiting(typed: Typed, cents: int = 100) -> str:
    run_id = started(typed, cents=cents)
    assert recover_once()
    assert status(typed, run_id) == "waiting"
    return run_id


def status(typed: Typed, run_id: str) -> str:
    (record,) = typed("runs", "show", run_id, "--json").records
    word: str = record["status"]
    return word


def test_a_listing_newest_first(typed: Typed) -> None:
    first, second = started(typed), started(typed, "note", 1, "--pool", "night")
    recover_once()
    third = started(typed, "note")
    listed = [record["run_id"] for record in typed("runs", "--json").records]
    assert listed == [third, second, first]
    assert typed("runs", "list", "--json").records == typed("runs", "--json").records

    def ids(*options: str) -> list[str]:
        return [record["run_id"] for record in typed("runs", *options, "--json").records]

    assert ids("--status", "waiting") == [first]
    assert ids("--app", "note") == [third, second]
    assert ids("--pool", "night") == [second]
    assert ids("--app", "note", "--status", "runnable", "--pool", "shared") == [third]
    assert ids("--limit", "2") == [third, second]
    assert ids("--limit", "2", "--after", second) == [first]


def test_a_listing_for_people(typed: Typed) -> None:
    run_id = waiting(typed)
    header, row = typed("runs").out.splitlines()
    assert header.split() == ["RUN", "APP", "STATUS", "STARTED", "TOOK", "ABOUT"]
    assert row.split()[:3] == [run_id, "pay", "waiting"]
    assert row.rstrip().endswith("gate approve")
    started(typed)
    page = typed("runs", "list", "--limit", "1")
    assert len(page.out.splitlines()) == 2
    assert "continue the list with --after" in page.err
    assert typed("runs", "--status", "stuck").out.split() == header.split()


def test_success_is_done_for_people_and_terminal_in_json(typed: Typed) -> None:
    run_id = started(typed, "note")
    recover_once()
    for word in ("done", "terminal"):
        _header, row = typed("runs", "--status", word).out.splitlines()
        assert row.split()[:3] == [run_id, "note", "done"]
        (record,) = typed("runs", "--status", word, "--json").records
        assert record["status"] == "terminal"
    assert "status      done\n" in typed("runs", "show", run_id).out
    assert status(typed, run_id) == "terminal"
    for shown in (typed("runs", "--help").out, typed("runs", "--status", "ended").err):
        assert "done" in shown
        assert "terminal" not in shown
    with tape_package.connect(os.environ["TAPE_STORE"]) as client:
        assert client.list_runs(status="done") == client.list_runs(status="terminal") != []
        with pytest.raises(tape_package.InvalidArgument, match=r"'ended' is not one of .*done"):
            client.list_runs(status="ended")


def test_what_waits_for_a_worker(typed: Typed) -> None:
    begun = typed("runs", "start", "nosuchapp")
    assert (begun.code, begun.out.split()[1:4]) == (0, ["is", "runnable:", "nosuchapp"])
    assert begun.err == (
        "note: no worker has taken a run of nosuchapp yet: it waits for a worker with that app in "
        "pool shared\n"
    )
    run_id = begun.out.split()[0]
    assert "waits for a worker with nosuchapp in pool shared" in typed("runs").out
    assert typed("runs", "waiting").out.split() == [
        "APP", "POOL", "WAITING", "RUNNING", "SINCE", "FIRST",
    ]  # fmt: skip
    (group,) = typed("runs", "waiting", "--longer-than", "0", "--json").records
    assert {**group, "since_ms": 0} == {
        "pool": "shared", "app_name": "nosuchapp", "waiting": 1, "running": 0, "run_id": run_id,
        "since_ms": 0,
    }  # fmt: skip
    told = typed("runs", "waiting", "--longer-than", "0").out.splitlines()[1].split()
    assert (told[:4], told[-1]) == (["nosuchapp", "shared", "1", "0"], run_id)


def test_an_app_that_was_run_before_is_not_remarked_on(typed: Typed) -> None:
    waiting(typed)
    assert typed("runs", "start", "pay").err == ""


def test_starting_again_under_the_same_name_finds_the_run(typed: Typed) -> None:
    names = ("--user", "ada", "--session", "s1", "--invocation", "order-7")
    first = started(typed, "pay", 1, *names)
    assert started(typed, "pay", 1, *names) == first
    (record,) = typed("runs", "--json").records
    assert (record["user_id"], record["session_id"], record["invocation_id"]) == (
        "ada", "s1", "order-7",
    )  # fmt: skip
    said = typed("runs", "start", "note")
    assert said.out.split()[1:] == ["is", "runnable:", "note", "in", "pool", "shared"]


PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_a_run_for_each_key(typed: Typed) -> None:
    keyed = ("--dedup-key", "order-7", "--dedup-window", "60")
    first = started(typed, "pay", 1, *keyed)
    assert started(typed, "pay", 2, *keyed) == first
    assert started(typed, "pay", 1, "--dedup-key", "order-8", "--dedup-window", "0.5") != first
    for alone in (keyed[:2], keyed[2:]):
        refused = typed("runs", "start", "pay", *alone)
        assert refused.code == 2
        assert "--dedup-key and --dedup-window go together" in refused.err
    refused = typed("runs", "start", "pay", *keyed[:3], "0")
    assert refused.code == 2
    assert "dedup: 0 s is not in 0.001..2678400" in refused.err


def test_a_run_in_the_trace_of_somebody(typed: Typed) -> None:
    started(typed, "pay", 1, "--traceparent", PARENT)
    (entry,) = typed("tail", "/tape/run/**", "--from", "start", "--no-follow", "--json").records
    assert (entry["trace_id"], entry["payload"]["trace"]["traceparent"]) == (
        "4bf92f3577b34da6a3ce929d0e0e4736", PARENT,
    )  # fmt: skip
    refused = typed("runs", "start", "pay", "--traceparent", "of-mine")
    assert refused.code == 2
    assert "is no W3C traceparent" in refused.err


def test_input_from_a_file(typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "order.json").write_text('{"cents": 42}\n')
    made = typed("runs", "start", "pay", "--input", f"@{tmp_path / 'order.json'}", "--json")
    run_id = made.records[0]["run_id"]
    assert '{"cents":42}' in typed("runs", "show", run_id).out


def test_what_happened_in_a_run(typed: Typed) -> None:
    run_id = waiting(typed)
    shown = typed("runs", "show", run_id).out
    head, _, lines = shown.partition("\n\n")
    assert f"run         {run_id}" in head
    assert "app         pay in pool shared" in head
    assert "status      waiting for gate approve" in head
    assert "lease       free; the last token was 1" in head
    assert "budget      0 of 5 USD and 0 tokens are spent" in head
    words = [line.split(maxsplit=3)[3] for line in lines.splitlines()]
    assert words[0] == 'begun: pay in pool shared  {"cents":100}'
    assert words[1].startswith("lease granted to ")
    assert words[2:] == [
        "budget of 5 USD set",
        'effect wire begun  (100, to="DE1")',
        words[4],
        "obligation: reverse undoes effect 4",
        'reaches gate approve  {"cents":100}',
        words[7],
    ]
    assert words[4].startswith("effect wire (4) confirmed after ")
    assert words[4].endswith('ms  {"id":"w100","to":"DE1"}')
    assert words[7].startswith("waits for gate approve, released by ")


def test_a_run_as_one_object(typed: Typed) -> None:
    run_id = waiting(typed)
    typed("runs", "signal", run_id, "approve", '{"ok": true}')
    recover_once()
    (record,) = typed("runs", "show", run_id, "--json").records
    assert (record["status"], record["outcome"]) == ("terminal", {"wire": "w100", "noted": 500})
    assert record["budget"] == {
        "usd_cap": 5.0, "token_cap": 0, "usd_spent": 0.0, "tokens_spent": 0,
    }  # fmt: skip
    (child,) = record["children"]
    assert (child["app_name"], child["parent_run_id"], child["outcome"]) == ("note", run_id, 500)
    assert [line["seq"] for line in record["timeline"]] == list(range(1, record["seq_cursor"] + 1))
    assert record["timeline"][-1]["what"] == "run terminal"
    assert record["next"] == []
    head = typed("runs", "show", run_id).out
    assert f"child       {child['run_id']} note in pool shared: done" in head
    assert 'result      {"wire":"w100","noted":500}' in head
    assert f"parent      {run_id}" in typed("runs", "show", child["run_id"]).out


def test_long_payloads_are_cut_unless_all_is_asked_for(typed: Typed) -> None:
    run_id = started(typed, "note", 1, "--input", json.dumps("y" * 400))
    assert "y" * 400 not in typed("runs", "show", run_id).out
    assert "y…" in typed("runs", "show", run_id).out
    assert "y" * 400 in typed("runs", "show", run_id, "--full").out


def test_a_word_for_a_gate(typed: Typed) -> None:
    run_id = waiting(typed)
    sent = typed("runs", "signal", run_id, "approve", '{"ok": true}')
    assert sent.out == f"gate approve is open: {run_id} is runnable\n"
    again = typed("runs", "signal", run_id, "approve", "{}")
    assert (again.code, again.out) == (1, "")
    assert (
        again.err
        == f"error: gate approve of run {run_id!r} is open already: only the first signal counts\n"
    )
    recover_once()
    ended = typed("runs", "signal", run_id, "other")
    assert (ended.code, ended.err) == (1, f"error: run {run_id!r} is done\n")
    refused = typed("runs", "signal", run_id, "other", "--json")
    assert (refused.code, refused.records[0]["accepted"]) == (1, False)


def test_cancelling(typed: Typed) -> None:
    fresh = started(typed)
    assert typed("runs", "cancel", fresh, "--reason", "typo").out == f"{fresh} is cancelled\n"
    again = typed("runs", "cancel", fresh)
    assert (again.code, again.err) == (1, f"error: run {fresh!r} is cancelled\n")
    run_id = waiting(typed)
    said = typed("runs", "cancel", run_id, "--reason", "too late")
    assert said.out == (f"{run_id} is compensating: its effects are compensated, then it ends\n")
    recover_once()
    shown = typed("runs", "show", run_id).out
    assert "status      cancelled" in shown
    assert "cancel      too late" in shown
    assert "compensation reverse (6) done after" in shown


def test_a_run_that_somebody_drives(typed: Typed, sqlite_url: str) -> None:
    run_id = asyncio.run(_held(sqlite_url))
    assert "desk-1 (recovery) with token 1, 59" in typed("runs").out
    assert "lease       desk-1 (recovery) with token 1, 59" in typed("runs", "show", run_id).out
    busy = typed("runs", "resume", run_id)
    assert (busy.code, busy.err) == (1, f"error: run {run_id!r} is being driven by 'desk-1'\n")
    told = typed("runs", "cancel", run_id, "--reason", "too late")
    assert told.out == f"{run_id} will be cancelled: desk-1 drives it and is told so\n"
    assert typed("runs", "cancel", run_id, "--reason", "really").out == told.out
    assert "cancellation requested: too late" in typed("runs", "show", run_id).out


async def _held(url: str) -> str:
    """A run whose driver is busy for the next hour."""
    async with tape_package.connect_async(url) as client:
        bus = client._operations
        begun = await bus.runs.begin_run(new_run("pay"), Taker("desk-1", "recovery", 3_600_000))
        return begun.run.run_id


def test_a_run_that_is_stuck_because_its_code_changed(
    typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = waiting(typed)
    typed("runs", "signal", run_id, "approve", '{"ok": true}')
    monkeypatch.setenv("DESK_CHANGED", "1")
    recover_once()
    shown = typed("runs", "show", run_id).out
    assert "status      stuck" in shown
    assert "error       Diverged: step 1: the journal has effect pending wire (seq 4)" in shown
    assert f"next        see where the code and the journal part: tape replay {run_id} -m" in shown
    assert f"then: tape runs resume {run_id}" in shown
    assert typed("runs", "show", run_id, "--json").records[0]["next"]
    monkeypatch.setenv("FORCE_COLOR", "1")
    for arguments in (["runs"], ["runs", "show", run_id]):
        assert "\x1b[31m" in typed(*arguments).out
    monkeypatch.delenv("FORCE_COLOR")
    monkeypatch.delenv("DESK_CHANGED")
    assert typed("runs", "resume", run_id).out == f"{run_id} is runnable\n"
    recover_once()
    assert status(typed, run_id) == "terminal"
    ended = typed("runs", "resume", run_id)
    assert (ended.code, ended.err) == (1, f"error: run {run_id!r} is done\n")


def test_what_to_do_about_a_compensation_that_fails(typed: Typed) -> None:
    run_id = waiting(typed, cents=13)
    typed("runs", "signal", run_id, "approve", '{"ok": false, "by": "ada"}')
    recover_once()
    shown = typed("runs", "show", run_id).out
    assert "status      stuck, then failed" in shown
    assert "error       ValueError: refused by ada" in shown
    assert f"find out why reverse of {run_id}/decision-0/wire/0 keeps failing" in shown
    assert f"tape runs cancel {run_id}" not in shown
    assert typed("runs", "cancel", run_id).code == 1
    assert typed("runs", "resume", run_id).out == f"{run_id} is compensating\n"


def test_what_to_do_about_an_effect_in_doubt(typed: Typed) -> None:
    run_id = started(typed, "doubt")
    recover_once()
    shown = typed("runs", "show", run_id).out
    assert "status      stuck" in shown
    assert "error       Odd: the bank cannot tell" in shown
    assert f"next        find out what became of {run_id}/decision-0/doubtful/0" in shown
    assert f"or give it up and undo what it did: tape runs cancel {run_id}" in shown
    assert typed("runs", "cancel", run_id).out == f"{run_id} is cancelled\n"


def test_following_a_run_to_its_end(typed: Typed, sqlite_url: str, tmp_path: Path) -> None:
    run_id = waiting(typed)
    arguments = ("runs", "tail", run_id, "--store", sqlite_url)
    with running(*arguments, folder=tmp_path) as (following, out):
        so_far = [out.readline() for _ in range(8)]
        assert "waits for gate approve" in so_far[-1]
        typed("runs", "signal", run_id, "approve", '{"ok": true}')
        recover_once()
        rest = out.read().splitlines()
        assert following.wait(30) == 0
    assert "gate approve opened after" in rest[0]
    assert " done after" in rest[-1]
    ended = typed("runs", "tail", run_id, "--after", "8", "--json")
    assert [record["seq"] for record in ended.records] == list(range(9, 9 + len(rest)))


def test_following_ends_with_ctrl_c(typed: Typed, sqlite_url: str, tmp_path: Path) -> None:
    run_id = waiting(typed)
    arguments = ("runs", "tail", run_id, "--store", sqlite_url)
    with running(*arguments, folder=tmp_path) as (following, out):
        assert "begun: pay" in out.readline()
        following.send_signal(signal.SIGINT)
        assert following.wait(30) == 0
        assert following.stderr is not None
        assert following.stderr.read() == ""


def test_replaying(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = waiting(typed)
    entries = typed("runs", "show", run_id, "--json").records
    waits = typed("replay", run_id, "-m", MODULE)
    assert waits.out == (
        "replayed 2 steps: the code does what the journal records, and waits for gate approve\n"
    )
    typed("runs", "signal", run_id, "approve", '{"ok": true}')
    ahead = typed("replay", run_id, "-m", MODULE)
    assert (ahead.code, ahead.err) == (0, "")
    assert ahead.out == (
        "replayed 2 steps: the journal ends at seq 10, then the code starts a run of note\n"
    )
    recover_once()
    (same,) = typed("replay", run_id, "-m", MODULE, "--json").records
    assert (same["verdict"], same["steps"], same["app"]) == ("same", 4, "pay")
    monkeypatch.setenv("DESK_CHANGED", "1")
    other = typed("replay", run_id, "-m", MODULE)
    assert (other.code, other.out) == (1, "")
    assert other.err == (
        "error: replayed 0 steps, then the code does something else: step 1: the journal has "
        "effect pending wire (seq 4), the code does effect pending audit\n"
    )
    diverged = typed("replay", run_id, "-m", MODULE, "--json")
    assert (diverged.code, diverged.records[0]["verdict"]) == (1, "diverged")
    assert diverged.records[0]["seq"] == 4
    before = entries[0]["timeline"]
    after = typed("runs", "show", run_id, "--json").records[0]["timeline"]
    assert after[: len(before)] == before


@pytest.fixture
def server(sqlite_url: str, tmp_path: Path) -> Iterator[str]:
    arguments = ("serve", "--grpc", "127.0.0.1:0", "--no-http", "--store", sqlite_url)
    with running(*arguments, folder=tmp_path) as (process, out):
        yield "tape://" + out.readline().split()[1]
        process.terminate()
        assert process.wait(30) == 0


def test_through_a_server(server: str) -> None:
    def typed(*arguments: str) -> Done:
        return tape(*arguments, "--url", server, folder=ROOT)

    arguments = ("worker", "-m", MODULE, "--pool", "night", "--url", server)
    with running(*arguments, folder=ROOT) as (worker, out):
        assert out.readline() == "app pay version 1 in pool night\n"
        day = started(typed, "note", 1, "--input", '"a"')
        done = typed("runs", "start", "note", "--input", '"abc"', "--pool", "night", "--wait")
        assert (done.code, done.out) == (0, "3\n")
        failed = typed("runs", "start", "note", "--input", "5", "--pool", "night", "--wait")
        assert (failed.code, failed.out) == (1, "")
        assert "is failed: object of type 'int' has no len()" in failed.err
        run_id = started(typed, "pay", 100, "--pool", "night")
        told = _followed_and_refused(typed, run_id, server)
        assert "compensation reverse (6) done" in told
        assert "ValueError: refused by ada" in told
        assert "raises ValueError: refused by ada" in typed("replay", run_id, "-m", MODULE).out
        assert "status      failed" in typed("runs", "show", run_id).out
        (left,) = typed("runs", "--status", "runnable", "--json").records
        assert left["run_id"] == day, "a worker of another pool leaves it alone"
        assert typed("runs", "cancel", day).out == f"{day} is cancelled\n"
        missing = typed("runs", "resume", "nope")
        assert (missing.code, missing.err) == (1, "error: no run has the id 'nope'\n")
        worker.terminate()
        assert worker.wait(30) == 0


def _followed_and_refused(typed: Typed, run_id: str, server: str) -> str:
    """What is told of a run from where somebody says no to its end."""
    with running("runs", "tail", run_id, "--url", server, folder=ROOT) as (following, out):
        while "waits for gate approve" not in out.readline():
            assert following.poll() is None
        word = typed("runs", "signal", run_id, "approve", '{"ok":false,"by":"ada"}')
        assert word.code == 0, word.err
        told = out.read()
        assert following.wait(60) == 0
    return told


WRONG = [
    (["runs", "--status", "lost"], "'lost' is not one of"),
    (["runs", "--limit", "0"], "0 is not in the range"),
    (["runs", "--status", "stuck", "list"], "--status comes after list"),
    (["runs", "--json", "show", "x"], "--json comes after show"),
    (["runs", "nope"], "No such command 'nope'"),
    (["runs", "start"], "Missing argument 'APP'"),
    (["runs", "start", ""], "APP: must not be empty"),
    (["runs", "start", "pay", "--input", '{"a":'], "input at position 5"),
    (["runs", "start", "pay", "--input", "[" * 90], "input at position 90"),
    (["runs", "start", "pay", "--input", " "], "input: is empty"),
    (["runs", "start", "pay", "--invocation", "k" * 600], "--invocation"),
    (["runs", "signal", "r"], "Missing argument 'GATE'"),
    (["runs", "signal", "r", "g", "yes"], "JSON at position 0"),
    (["runs", "signal", "r", ""], "GATE: must not be empty"),
    (["runs", "show", ""], "RUN: must not be empty"),
    (["replay", "r"], "Missing option '-m'"),
    (["replay", "r", "-m", "no_such_module"], "there is no module 'no_such_module'"),
]
FAILED = [
    (["runs", "show", "r"], "no run has the id 'r'"),
    (["runs", "tail", "r"], "no run has the id 'r'"),
    (["runs", "signal", "r", "g"], "no run has the id 'r'"),
    (["runs", "cancel", "r"], "no run has the id 'r'"),
    (["runs", "resume", "r"], "no run has the id 'r'"),
    (["replay", "r", "-m", MODULE], "no run has the id 'r'"),
    (["runs", "start", "pay", "--input", "@missing.json"], "missing.json: No such file"),
]


def _name(parameter: list[str] | str | int) -> str:
    return " ".join(parameter)[:40] if isinstance(parameter, list) else ""


@pytest.mark.parametrize(
    ("arguments", "message", "code"),
    [(*case, 2) for case in WRONG] + [(*case, 1) for case in FAILED],
    ids=_name,
)
def test_what_is_refused(typed: Typed, arguments: list[str], message: str, code: int) -> None:
    said = typed(*arguments)
    assert said.err.startswith("error: ")
    assert message in said.err.splitlines()[0]
    assert (said.code, said.out) == (code, "")


def test_code_without_the_app_of_the_run(typed: Typed) -> None:
    run_id = started(typed, "elsewhere")
    said = typed("replay", run_id, "-m", MODULE)
    assert said.code == 2
    assert "the run is of app 'elsewhere'" in said.err
    assert tape_package.RunStatus.RUNNABLE.name.lower() == status(typed, run_id)
