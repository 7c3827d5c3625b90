"""Listings where there is no terminal: a row is a line, however long; dates can be read."""

import os
import pty
import re
import subprocess
from pathlib import Path

import pytest

import tape as tape_package
from tape.model.reaction import HandlerKind, NewReaction
from tests.integration.cli.command import TAPE, clean_environment, tape
from tests.integration.grpc.listening import document, hand_over

LONG = "a-name-that-is-longer-than-any-terminal-is-wide-" * 5
DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3})?[+-]\d\d:\d\d")

LISTINGS = [
    ("reactions list", 1, 8),
    ("tasks list", 0, 6),
    ("dlq list", 0, 6),
    ("runs", 1, 6),
    ("runs list", 1, 6),
    ("runs waiting --longer-than 0", 1, 6),
    ("drainers subscriptions", 1, 6),
    ("subscriptions list", 1, 10),
    ("dlq list --subscription inbox", 2, 6),
    ("runs list --subscription inbox", 0, 6),
    (f"values list {LONG}", 1, 5),
    ("values namespaces", 1, 1),
    (f"sessions list {LONG} ada", 1, 4),
    ("sessions apps", 1, 1),
    ("migrate --status", 20, 4),
]


@pytest.fixture
def store(sqlite_url: str) -> list[str]:
    with tape_package.connect(sqlite_url) as client:
        pattern = f"/tape/event/recorded/{LONG}/**"
        client.register_reaction(NewReaction(LONG, pattern, HandlerKind.TASK))
        client.subscribe_events("order.*", LONG, subscription_id=LONG)
        client.set_value(LONG, LONG, LONG, writer=LONG)
        client.create_session(LONG, "ada", LONG, state={"a": LONG})
        client.start_run(LONG)
        client.register_subscription(document())
        client.move_subscription("inbox", "activate")
        client._portal.run(lambda: hand_over(client._client, b"a\nb", LONG.encode()))
    return ["--store", sqlite_url]


@pytest.mark.parametrize(("command", "rows", "columns"), LISTINGS)
def test_a_row_is_a_line(
    command: str, rows: int, columns: int, store: list[str], tmp_path: Path
) -> None:
    done = tape(*command.split(), *store, folder=tmp_path, COLUMNS="40")
    assert done.code == 0, done.err
    header, *lines = done.out.splitlines()
    assert len(header.split()) >= columns
    assert len(lines) == rows
    assert all(line == line.rstrip() for line in lines)


def test_each_check_of_the_doctor_is_a_line(store: list[str], tmp_path: Path) -> None:
    checks = len(tape("doctor", "--json", *store, folder=tmp_path).records)
    done = tape("doctor", *store, folder=tmp_path, COLUMNS="40")
    assert len(done.out.splitlines()) == checks + 1


@pytest.mark.parametrize(
    ("command", "dates"),
    [
        ("runs list", 1),
        ("runs waiting --longer-than 0", 1),
        (f"values list {LONG}", 1),
        (f"values history {LONG} {LONG}", 1),
        (f"sessions list {LONG} ada", 1),
        (f"reactions show {LONG}", 1),
        ("tail --last 1 --no-follow", 1),
        ("show 1", 1),
    ],
)
def test_dates_can_be_read(command: str, dates: int, store: list[str], tmp_path: Path) -> None:
    done = tape(*command.split(), *store, folder=tmp_path)
    assert done.code == 0, done.err
    assert len(DATE.findall(done.out)) >= dates
    told = re.sub(r"^payload .*$", "", done.out, flags=re.MULTILINE)  # shown as it was written
    assert not re.search(r"\b1[6-9]\d{11}\b", told)  # milliseconds since 1970


def test_a_terminal_folds(store: list[str], tmp_path: Path) -> None:
    """What is wider than the terminal takes several lines there, and is all there."""
    ours, theirs = pty.openpty()
    environment = clean_environment(COLUMNS="60", TERM="dumb")
    command = [*TAPE, "values", "namespaces", *store]
    process = subprocess.Popen(command, stdout=theirs, cwd=tmp_path, env=environment)
    os.close(theirs)
    text = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
        text += part
    os.close(ours)
    assert process.wait(30) == 0
    lines = text.decode().split()
    assert lines[0] == "NAMESPACE"
    assert "".join(lines[1:]) == LONG
    assert len(lines) > 2
