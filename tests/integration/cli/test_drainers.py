"""Drainers and event subscriptions through the command."""

import json
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cli.command import Done, start, tape


@pytest.fixture
def command(sqlite_url: str, tmp_path: Path) -> Any:
    def typed(*arguments: str, stdin: str = "") -> Done:
        return tape(*arguments, "--store", sqlite_url, folder=tmp_path, stdin=stdin)

    return typed


SUBSCRIBE = (
    "drainers", "subscribe", "price.*", "repricing", "--id", "prices", "--begun",
    "--input", "n=$.payload.n", "--input", "unit=literal:EUR",
)  # fmt: skip


def test_subscribing_and_taking_back(command: Any) -> None:
    made = command(*SUBSCRIBE, "--where", "payload.n != 5", "--drainer", "desk", "--pool",
                   "gpu", "--json")  # fmt: skip
    (record,) = made.records
    assert record["input_mapper"] == {"n": "$.payload.n", "unit": "literal:EUR"}
    assert (record["enabled"], record["awaits_end"], record["pool"]) == (True, False, "gpu")
    said = command("drainers", "subscribe", "*", "log", "--disabled")
    assert said.out == "log:* is subscribed: * → log\n"
    listed = command("drainers", "subscriptions", "--json").records
    assert [row["subscription_id"] for row in listed] == ["log:*", "prices"]
    assert command("drainers", "subscriptions", "desk", "--json").records == [record]
    table = command("drainers", "subscriptions").out.splitlines()
    assert table[0].split() == ["SUBSCRIPTION", "DRAINER", "EVENTS", "WHERE", "APP", "STATE"]
    assert table[2].endswith("repricing in gpu  enabled, begun only")
    assert command("drainers", "unsubscribe", "log:*").out == "log:* is unsubscribed\n"
    again = command("drainers", "unsubscribe", "log:*")
    assert (again.code, again.err) == (1, "error: no event subscription log:*\n")


def test_draining_a_failure_and_helping(command: Any) -> None:
    command(*SUBSCRIBE)
    for payload in ('{"n":1}', "{}", '{"n":3}'):
        assert command("record", "price.changed", "--payload", payload).code == 0
    told = command("tail", "--no-follow", "--json").records
    (event,) = [entry for entry in told if entry["payload"] == {}]
    halted = command("drain")
    assert halted.code == 1
    assert halted.out == "workflow_runner: 1 event passed, dispatched to 1 run\n"
    assert halted.err.startswith(
        f"error: drainer workflow_runner is halted at event {event['event_id']}: input_mapper.n:"
    )
    (state,) = command("drainers", "list", "--json").records
    assert (state["halted_on_event_id"], state["failed_total"]) == (event["event_id"], 1)
    assert state["attempts"]["failed"] == {"prices": 1}
    assert event["event_id"] in command("drainers", "list").out
    assert command("drainers", "resume").out == "workflow_runner is resumed\n"
    again = command("drainers", "resume")
    assert (again.code, again.err) == (1, "error: drainer 'workflow_runner' is not halted\n")
    (report,) = command("drain", "--json").records
    assert (report["halted_on_event_id"], report["processed"]) == (event["event_id"], 0)
    wrong = command("drainers", "skip", "workflow_runner", "other", "--reason", "why")
    assert (wrong.code, "is halted on event" in wrong.err) == (1, True)
    skipped = command(
        "drainers", "skip", "workflow_runner", event["event_id"], "--reason", "no number",
        "--by", "ada", "--json",
    )  # fmt: skip
    assert skipped.records[0]["skipped_total"] == 1
    done = command("drain")
    assert (done.code, done.out.splitlines()[-1][:17]) == (0, "workflow_runner: ")
    told = command("tail", "/tape/drainer/**", "--no-follow", "--json").records
    assert [r["subject"].split("/")[3] for r in told] == [
        "subscribed", "halted", "resumed", "halted", "skipped",
    ]  # fmt: skip
    assert (told[-1]["payload"]["by"], told[-1]["payload"]["reason"]) == ("ada", "no number")
    assert told[2]["payload"]["by"]  # the user's own name


def test_following(command: Any, sqlite_url: str, tmp_path: Path) -> None:
    command(*SUBSCRIBE)
    following = start("drain", "--follow", "--json", "--store", sqlite_url, folder=tmp_path)
    assert following.stdout is not None
    try:
        assert json.loads(following.stdout.readline())["processed"] == 0
        for n in (1, 2):
            command("record", "price.changed", "--payload", f'{{"n":{n}}}')
            while not (report := json.loads(following.stdout.readline()))["processed"]:
                pass
            assert (report["processed"], report["dispatched"]) == (1, 1)
        following.send_signal(signal.SIGINT)
        assert following.wait(30) == 0
    finally:
        following.kill()
        following.communicate()


def test_who_follows_sees_a_resume_and_a_skip(
    command: Any, sqlite_url: str, tmp_path: Path
) -> None:
    """And does not wait for the time at which it would try again."""
    settings = tmp_path / "slow.yaml"
    settings.write_text("tape: {drainers: {retry_s: 600}}")
    command(*SUBSCRIBE)
    command("record", "price.changed", "--payload", "{}")
    following = start(
        "drain", "--follow", "--json", "--store", sqlite_url, "--config", str(settings),
        folder=tmp_path,
    )  # fmt: skip
    assert following.stdout is not None
    watchdog = threading.Timer(110, following.kill)
    watchdog.start()
    try:
        event_id = json.loads(following.stdout.readline())["halted_on_event_id"]
        assert command("drainers", "resume").code == 0
        assert json.loads(following.stdout.readline())["halted_on_event_id"] == event_id
        skip = ("drainers", "skip", "workflow_runner", event_id, "--reason", "no number")
        assert command(*skip).code == 0
        assert json.loads(following.stdout.readline())["halted_on_event_id"] == ""
        following.send_signal(signal.SIGINT)
        assert following.wait(30) == 0
    finally:
        watchdog.cancel()
        following.kill()
        following.communicate()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("pri?e", "app"), "GLOB at position 3: '?' is not allowed in a glob"),
        (("a", "app", "--where", "payload.n >"), "--where at position"),
        (("a", "app", "--input", "n=$.nowhere"), "--input n at position 2: an event has no"),
        (("a", "app", "--input", "n"), "--input 'n' is not of the form NAME=RECIPE"),
        (("a",), "Missing argument 'APP'"),
    ],
)
def test_a_bad_subscription(command: Any, arguments: tuple[str, ...], message: str) -> None:
    done = command("drainers", "subscribe", *arguments)
    assert done.code == 2
    assert done.err.startswith(f"error: {message}")


def test_a_fault_is_pointed_at(command: Any) -> None:
    done = command("drainers", "subscribe", "pri?e", "app")
    assert done.err.splitlines()[1:] == ["  pri?e", "     ^"]
    missing = command("drainers", "skip", "d", "e")
    assert (missing.code, "Missing option '--reason'" in missing.err) == (2, True)


def test_what_is_not_there(command: Any) -> None:
    done = command("drain", "typo")
    assert (done.code, done.err) == (
        1, "error: no event subscription names the drainer 'typo'\n",
    )  # fmt: skip
    assert command("drainers", "list", "--json").records == []
