"""Values and sessions through the command."""

import json
from pathlib import Path

import pytest

import tape as tape_package
from tests.integration.cli.command import Done, start, tape


@pytest.fixture
def store(sqlite_url: str) -> list[str]:
    return ["--store", sqlite_url]


def test_a_value_with_its_versions(store: list[str], tmp_path: Path) -> None:
    def values(*arguments: str, stdin: str = "") -> Done:
        return tape("values", *arguments, *store, folder=tmp_path, stdin=stdin)

    assert values("set", "desk", "fx", "1.10", "--if-version", "0").code == 0
    assert values("set", "desk", "fx", "-", "--writer", "ada", stdin='{"rate": 1.2}').code == 0
    refused = values("set", "desk", "fx", "2", "--if-version", "1")
    assert (refused.code, refused.out) == (1, "")
    assert "expected version 1, it is at version 2" in refused.err
    (now,) = values("get", "desk", "fx", "--json").records
    assert (now["value"], now["version"], now["writer"]) == ({"rate": 1.2}, 2, "ada")
    assert values("get", "desk", "fx").out == '{"rate": 1.2}\n'
    assert [v["key"] for v in values("list", "desk", "--json").records] == ["fx"]
    assert values("delete", "desk", "fx").code == 0
    assert values("list", "desk", "--json").records == []
    changes = values("history", "desk", "fx", "--json").records
    assert [change["version"] for change in changes] == [1, 2, 3]
    assert [change["prev_value"] for change in changes] == [None, 1.1, {"rate": 1.2}]
    assert changes[-1]["deleted"] is True


def test_watch_shows_changes_as_they_come(store: list[str], tmp_path: Path) -> None:
    tape("values", "set", "n", "odd / key", "1", *store, folder=tmp_path)
    arguments = ("values", "watch", "n", "odd / key", "--limit", "2", "--json", *store)
    with start(*arguments, folder=tmp_path) as watch:
        assert watch.stdout is not None
        assert json.loads(watch.stdout.readline())["value"] == 1
        tape("values", "set", "n", "odd / key", "2", *store, folder=tmp_path)
        change = json.loads(watch.stdout.readline())
        assert (change["value"], change["prev_value"]) == (2, 1)
        assert watch.wait(30) == 0


def test_sessions_are_listed_and_shown(store: list[str], sqlite_url: str, tmp_path: Path) -> None:
    with tape_package.connect(sqlite_url) as client:
        client.create_session("app", "ada", "s1", state={"a": 1})
        event = {"id": "m1", "author": "ada", "content": {"text": "hello"}}
        client.append_event("app", "ada", "s1", event, state_delta={"b": 2})
    (listed,) = tape("sessions", "list", "app", "ada", "--json", *store, folder=tmp_path).records
    assert (listed["session_id"], listed["event_count"]) == ("s1", 1)
    (shown,) = tape(
        "sessions", "show", "app", "ada", "s1", "--json", *store, folder=tmp_path
    ).records
    assert shown["state"] == {"a": 1, "b": 2}
    assert shown["events"][0]["content"] == {"text": "hello"}
