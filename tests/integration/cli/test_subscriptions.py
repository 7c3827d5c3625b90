"""Subscriptions and their dead letters through the command."""

import json
import subprocess
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

import tape as tape_package
from tape.model.listening import HoldSubscription
from tests.integration.cli.command import Done, start, tape
from tests.integration.grpc.listening import ORIGIN, document, hand_over
from tests.servers.tape_server import ServerProcess

BODY = b"\xff\x00no"


@pytest.fixture
def command(sqlite_url: str, tmp_path: Path) -> Any:
    def typed(*arguments: str, stdin: str = "") -> Done:
        return tape(*arguments, "--store", sqlite_url, folder=tmp_path, stdin=stdin)

    return typed


def handed_over(url: str, *bodies: bytes) -> int:
    """The token under which a listener has handed these over."""
    with tape_package.connect(url) as client:
        return client._portal.run(lambda: hand_over(client._client, *bodies))


def letting_go(url: str, token: int, last_error: str = "") -> None:
    with tape_package.connect(url) as client:
        request = HoldSubscription(
            "inbox", "me", 60_000, token, letting_go=True, last_error=last_error
        )
        operations = client._client._operations.subscriptions
        client._portal.run(lambda: operations.hold_subscription(request))


def test_a_document_is_registered_from_a_file_and_from_standard_input(
    command: Any, tmp_path: Path
) -> None:
    (tmp_path / "inbox.yaml").write_text(document())
    made = command("subscriptions", "register", "inbox.yaml")
    assert made.out == (
        "inbox is registered; `tape subscriptions activate inbox` lets listeners work\n"
    )
    again = command("subscriptions", "register", "-", stdin=document())
    assert again.out == "inbox is registered; revision 1 says the same\n"
    changed = document(limits="{max_in_flight: 5}")
    (record,) = command("subscriptions", "register", "-", "--json", stdin=changed).records
    assert (record["is_new"], record["is_changed"], record["revision"]) == (False, True, 2)
    assert record["spec"]["limits"] == {"max_in_flight": 5}
    assert record["backlog"] is None
    said = command("subscriptions", "register", "-", stdin=document())
    assert said.out == "inbox is registered, now by revision 3\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (document().replace("mode: pull", "mode: push"), "error: spec.mode: "),
        (document().replace("pattern:", "patern:"), "error: spec.patern: "),
        (document().replace("file", "flie"), "error: spec.source: "),
    ],
)
def test_a_refusal_is_one_line_with_the_line_of_the_fault(
    command: Any, text: str, said: str
) -> None:
    refused = command("subscriptions", "register", "-", stdin=text)
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.startswith(said)
    assert "line " in refused.err
    assert len(refused.err.splitlines()) == 1
    assert command("subscriptions", "list", "--json").records == []


def test_what_is_no_file_and_no_text(command: Any, tmp_path: Path) -> None:
    missing = command("subscriptions", "register", "none.yaml")
    assert (missing.code, missing.err) == (1, "error: none.yaml: No such file or directory\n")
    (tmp_path / "latin.yaml").write_bytes(b"kind: \xe9\n")
    latin = command("subscriptions", "register", "latin.yaml")
    assert (latin.code, latin.err) == (2, "error: latin.yaml: is not UTF-8\n")


def test_it_is_moved_through_its_states(command: Any) -> None:
    command("subscriptions", "register", "-", stdin=document())
    refused = command("subscriptions", "pause", "inbox")
    assert (refused.code, refused.err) == (
        1, "error: subscription 'inbox' is registered: to pause it, it must be active\n",
    )  # fmt: skip
    for verb, state in (
        ("activate", "active"),
        ("pause", "paused"),
        ("resume", "active"),
        ("drain", "deactivated"),
        ("activate", "active"),
        ("deactivate", "deactivated"),
    ):
        assert command("subscriptions", verb, "inbox").out == f"inbox is {state}\n"
    (record,) = command("subscriptions", "activate", "inbox", "--json").records
    assert (record["name"], record["state"]) == ("inbox", "active")
    refused = command("subscriptions", "remove", "inbox")
    assert refused.err == "error: subscription 'inbox' is active: deactivate it first\n"
    command("subscriptions", "drain", "inbox", "--wait")
    (removed,) = command("subscriptions", "remove", "inbox", "--json").records
    assert removed == {"name": "inbox", "deleted": True}
    again = command("subscriptions", "remove", "inbox")
    assert (again.code, again.err) == (1, "error: no subscription 'inbox'\n")


def test_they_are_listed_and_shown(command: Any, sqlite_url: str) -> None:
    command("subscriptions", "register", "-", stdin=document("a"))
    command("subscriptions", "register", "-", stdin=document())
    command("subscriptions", "activate", "inbox")
    token = handed_over(sqlite_url, b"{}", BODY)
    table = command("subscriptions", "list").out.splitlines()
    assert table[0].split("  ")[0] == "NAME"
    assert table[1].split() == ["a", "registered", "file", "pull", "1", "0", "0", "0"]
    assert table[2].split() == ["inbox", "active", "file", "pull", "1", "1", "1", "0", "me"]
    records = command("subscriptions", "list", "--json").records
    assert [record["name"] for record in records] == ["a", "inbox"]
    assert records[1]["runtime"]["owner"] == "me"
    shown = command("subscriptions", "show", "inbox").out
    facts, _blank, text = shown.partition("\n\n")
    said = dict(line.split("  ", 1) for line in facts.splitlines())
    assert said["source"].strip() == "file pull continuous"
    assert said["accepted"].strip() == said["dead lettered"].strip() == "1"
    assert said["listener"].strip().startswith("me, ")
    assert json.loads(text)["metadata"]["name"] == "inbox"
    assert command("subscriptions", "show", "inbox", "--json").records == [records[1]]
    (run,) = command("runs", "list", "--subscription", "inbox", "--json").records
    assert (run["user_id"], run["session_id"]) == ("subscription", "inbox")
    letting_go(sqlite_url, token)


def test_last_errors_are_notes_and_no_rows(command: Any, sqlite_url: str) -> None:
    command("subscriptions", "register", "-", stdin=document())
    command("subscriptions", "activate", "inbox")
    token = handed_over(sqlite_url, b"{}")
    letting_go(sqlite_url, token, last_error="[red]the folder\nis away[/red]")
    listed = command("subscriptions", "list")
    assert len(listed.out.splitlines()) == 2
    assert listed.err == "note: inbox: [red]the folder is away[/red]\n"
    assert command("subscriptions", "list", "--json").err == ""


def test_dead_letters_are_looked_at_and_settled(command: Any, sqlite_url: str) -> None:
    command("subscriptions", "register", "-", stdin=document())
    command("subscriptions", "activate", "inbox")
    handed_over(sqlite_url, BODY, b"2\nx", b"3x")
    dlq = ("--subscription", "inbox")
    letters = command("dlq", "list", *dlq, "--json").records
    assert [letter["place"] for letter in letters] == [f"{ORIGIN}/{n}" for n in (1, 2, 3)]
    assert letters[0]["body"] == b64encode(BODY).decode()
    assert letters[0]["headers"] == {"x-a": ["\ufffd", "1"]}
    assert len(command("dlq", "list", *dlq, "--limit", "2", "--json").records) == 2
    table = command("dlq", "list", *dlq).out.splitlines()
    assert table[1].split()[:3] == [letters[0]["id"], "not_json", "1"]
    assert len(table) == 4
    first, second, third = (letter["id"] for letter in letters)
    assert command("dlq", "show", first, *dlq, "--json").records == [letters[0]]
    shown = command("dlq", "show", first, *dlq).out.splitlines()
    assert f"place        {ORIGIN}/1" in shown
    assert shown[-2:] == ["body         4 bytes, in base64", b64encode(BODY).decode()]
    assert "header       x-a: 1" in shown
    assert command("dlq", "show", second, *dlq).out.splitlines()[-1] == "2\\nx"
    missing = command("dlq", "show", "none", *dlq)
    assert (missing.code, missing.err) == (
        1, "error: no dead letter none of subscription inbox\n",
    )  # fmt: skip

    refused = command("dlq", "replay", first, *dlq)
    assert refused.code == 1
    assert refused.err.startswith("error: none of these is a dead letter of that subscription")
    assert command("dlq", "drop", first, *dlq, stdin="y\n").out == "1 dead letter dropped\n"
    lenient = document().replace("{playbook:", "{payload_from: message.body, playbook:")
    command("subscriptions", "register", "-", stdin=lenient)
    assert command("dlq", "replay", second, *dlq).out == "1 dead letter replayed\n"
    assert command("dlq", "replay", "--all", *dlq, "--json").records == [{"count": 1}]
    assert third
    assert command("dlq", "drop", "--all", "--yes", *dlq).out == "0 dead letters dropped\n"
    assert command("dlq", "list", *dlq, "--json").records == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["list", "orders", "--subscription", "s"], "give REACTION or --subscription"),
        (["replay"], "give REACTION or --subscription"),
        (["drop", "--all"], "give REACTION or --subscription"),
        (["replay", "--subscription", "s"], "give IDs or --all"),
        (["drop", "x", "--all", "--subscription", "s"], "give IDs or --all"),
        (["drop", "--all", "--subscription", "inbox"], "nobody answered; give --yes"),
    ],
)
def test_what_is_meant_has_to_be_clear(command: Any, arguments: list[str], said: str) -> None:
    refused = command("dlq", *arguments)
    assert refused.code == 2
    assert said in refused.err


def test_draining_is_waited_for(sqlite_url: str, tmp_path: Path) -> None:
    """Through a server, while a listener still has something in hand."""
    with ServerProcess(sqlite_url) as server:
        with tape_package.connect(server.url) as client:
            client.register_subscription(document())
            client.move_subscription("inbox", "activate")
        token = handed_over(server.url, b"{}")
        words = ("subscriptions", "drain", "inbox", "--wait", "--url", server.url)
        with start(*words, folder=tmp_path) as draining:
            assert draining.stderr is not None
            assert draining.stderr.readline() == "inbox: 0 in hand, by me\n"
            with pytest.raises(subprocess.TimeoutExpired):
                draining.wait(timeout=0.2)
            letting_go(server.url, token)
            out, err = draining.communicate(timeout=30)
        assert (draining.returncode, out, err) == (0, "inbox is deactivated\n", "")
