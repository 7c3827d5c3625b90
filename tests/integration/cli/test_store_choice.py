"""Which store a command works on, and that none makes one which is meant to look at it.

Every command is in one of the tables below, so a new one must be put into its class.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import click
import psycopg
import pytest

from tape.cli.root import run, tape
from tests.integration.cli.command import start
from tests.integration.cli.subscribing import SubscribeDesk

SERVER = "tape://prod.example:7878"

# They look at a store or work through it, and go through a server as well.
THROUGH = {
    "tail": "--no-follow",
    "values get": "n k",
    "values set": "n k 1",
    "values delete": "n k",
    "values list": "n",
    "values namespaces": "",
    "values watch": "n k --limit 1",
    "values history": "n k",
    "sessions list": "a u",
    "sessions apps": "",
    "show": "1",
    "sessions show": "a u s",
    "reactions list": "",
    "reactions show": "r",
    "reactions register": "r --pattern /** --task",
    "reactions deregister": "r",
    "tasks list": "",
    "tasks show": "r/0/1",
    "dlq list": "r",
    "dlq show": "r/0/1",
    "dlq replay": "r --all",
    "dlq drop": "r --all --yes",
    "drain": "",
    "drainers list": "",
    "drainers skip": "d e --reason r",
    "drainers resume": "d",
    "drainers subscriptions": "",
    "drainers subscribe": "x.* app",
    "drainers unsubscribe": "s",
    "runs list": "",
    "runs waiting": "",
    "runs show": "r",
    "runs tail": "r",
    "runs start": "app",
    "runs signal": "r g",
    "runs cancel": "r",
    "runs resume": "r",
    "replay": "r -m json",
    "relay": "--sink log: --no-follow",
    "outbox status": "",
    "outbox skip": "1 --reason r",
    "subscriptions list": "",
    "subscriptions show": "s",
    "subscriptions register": f"{__file__}",
    "subscriptions activate": "s",
    "subscriptions pause": "s",
    "subscriptions resume": "s",
    "subscriptions drain": "s",
    "subscriptions deactivate": "s",
    "subscriptions remove": "s",
    "wallet put": f"a --file {__file__}",
    "wallet list": "",
    "wallet rotate": "a --retire",
    "wallet rewrap": "",
    "wallet delete": "a",
}
# They open a store themselves; True where that changes a journal.
OPENS = {
    "outbox relay": ("", True),
    "prune": ("--lake lake --older-than 0s --grace 0s", True),
    "pipeline ingest": ("files --path . --checkpoint c --quarantine q", True),
    "pipeline archive": ("--lake lake", False),
    "pipeline backfill": ("r", True),
    "pipeline rollup": ("--out out", True),
    "pipeline audit": ("", False),
    "pipeline run": ("jobs.yaml", True),
}
CREATES = {"serve", "worker", "subscribe", "migrate", "record"}
# Doctor looks at what there is and says so; the others have no store, or one of their own.
APART = {
    "doctor", "config show", "config check", "schema check", "schema record", "schema show",
    "schema subscription", "outbox stream show", "outbox stream apply", "demo", "bench",
    "wallet init",
}  # fmt: skip


def commands(group: click.Group, path: str = "") -> Iterator[str]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        where = f"{path} {name}".strip()
        if isinstance(command, click.Group):
            yield from commands(command, where)
        else:
            yield where


def typed(command: str) -> list[str]:
    options = THROUGH[command] if command in THROUGH else OPENS[command][0]
    return [*command.split(), *options.split()]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made_store: Path) -> Path:
    """With a store under the default name, which nobody asks for here."""
    for name in [name for name in os.environ if name.startswith("TAPE_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    shutil.copy(made_store, "tape.db")
    Path("jobs.yaml").write_text("jobs: [audit]")
    return tmp_path


def refused(arguments: list[str], capfd: pytest.CaptureFixture[str]) -> str:
    """What it says; nothing is made or touched by it."""
    before = {file.name: file.read_bytes() for file in Path().iterdir()}
    assert run(arguments) == 2, arguments
    printed = capfd.readouterr()
    assert printed.out == ""
    assert {file.name: file.read_bytes() for file in Path().iterdir()} == before
    return printed.err


def test_every_command_has_its_class() -> None:
    known = [*THROUGH, *OPENS, *CREATES, *APART]
    assert sorted(commands(tape)) == sorted(known)


def test_what_looks_creates_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    for command in [*THROUGH, *OPENS]:
        said = refused([*typed(command), "--store", "sqlite:none.db"], capfd)
        assert said.startswith("error: no store at sqlite:none.db; `tape serve`, "), command
    Path("empty.db").touch()
    assert "no store at sqlite:empty.db" in refused(["tail", "--store", "sqlite:empty.db"], capfd)


def test_what_looks_leaves_a_database_as_it_is(
    postgres_url: str, capfd: pytest.CaptureFixture[str]
) -> None:
    for command in [*THROUGH, *OPENS]:
        said = refused([*typed(command), "--store", postgres_url], capfd)
        assert said.startswith("error: no store at postgres://127.0.0.1:"), command
    with psycopg.connect(postgres_url) as database:
        found = database.execute("SELECT count(*) FROM pg_tables WHERE tablename ~ '^tape_'")
        assert found.fetchone() == (0,)


@pytest.mark.parametrize("command", [*OPENS, "migrate"])
def test_what_needs_a_store_refuses_a_server(
    command: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = [command] if command == "migrate" else typed(command)
    needs = f"error: tape {command} works on a store, not through a server: give --store (or TAPE_"
    both = ["--url", SERVER, "--store", "sqlite:none.db"]
    for said, name in (
        (refused([*arguments, "--url", SERVER], capfd), "--url"),
        (refused([*arguments, *both], capfd), "--url"),
    ):
        assert said.startswith(needs)
        assert f"; {name} names {SERVER}" in said
    monkeypatch.setenv("TAPE_URL", SERVER)
    said = refused(arguments, capfd)
    assert said.startswith(needs)
    assert f"; TAPE_URL names {SERVER}" in said


@pytest.mark.parametrize(("command", "changes"), [(name, OPENS[name][1]) for name in OPENS])
def test_a_store_beside_a_server_in_the_environment(
    command: str,
    changes: bool,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TAPE_STORE", "sqlite:of-environment.db")
    assert "no store at sqlite:of-environment.db" in refused(typed(command), capfd)
    monkeypatch.setenv("TAPE_URL", SERVER)
    said = refused(typed(command), capfd)
    if changes:
        assert "TAPE_STORE names sqlite:of-environment.db and TAPE_URL tape://prod" in said
        assert f"say with --store which one tape {command} is to change" in said
    else:
        assert "no store at sqlite:of-environment.db" in said
    said = refused([*typed(command), "--store", "sqlite:typed.db"], capfd)
    assert "no store at sqlite:typed.db" in said


def test_migrating_beside_a_server_in_the_environment(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAPE_STORE", "sqlite:new.db")
    monkeypatch.setenv("TAPE_URL", SERVER)
    assert "which may be two journals" in refused(["migrate", "--post"], capfd)
    assert run(["migrate"]) == 0
    assert capfd.readouterr().err == "created sqlite:new.db\n"


def test_the_store_of_a_file_counts_more_than_the_environment(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("jobs.yaml").write_text("store: sqlite:declared.db\njobs: [audit]")
    monkeypatch.setenv("TAPE_URL", SERVER)
    monkeypatch.setenv("TAPE_STORE", "sqlite:of-environment.db")
    assert "no store at sqlite:declared.db" in refused(["pipeline", "run", "jobs.yaml"], capfd)
    typed_one = ["pipeline", "run", "jobs.yaml", "--store", "sqlite:typed.db"]
    assert "no store at sqlite:typed.db" in refused(typed_one, capfd)
    assert "works on a store" in refused(["pipeline", "run", "jobs.yaml", "--url", SERVER], capfd)


@pytest.mark.parametrize(
    "arguments",
    [["migrate"], ["record", "x"], ["record", "--batch", "lines"]],
    ids=" ".join,
)
def test_what_creates_says_so_once(arguments: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    Path("lines").write_text('{"event_type": "x"}\n')
    for said in ("created sqlite:new.db\n", ""):
        run([*arguments, "--store", "sqlite:new.db"])
        printed = capfd.readouterr().err
        assert printed.partition("error:")[0] == said
    assert Path("new.db").exists()


def test_a_worker_says_that_it_creates(tmp_path: Path) -> None:
    """In a process of its own, where nothing is declared that it could work for."""
    worker = start("worker", "-m", "json", "--store", "sqlite:made.db", folder=tmp_path)
    _, err = worker.communicate(timeout=60)
    assert err.startswith("created sqlite:made.db\n")
    assert (tmp_path / "made.db").exists()


def test_a_subscription_says_that_it_creates(tmp_path: Path) -> None:
    desk = SubscribeDesk(tmp_path, "sqlite:made.db")
    assert desk.subscribe("--once").err == "created sqlite:made.db\n"
    assert desk.subscribe("--once").err == ""
    desk.store = "sqlite:new.db"
    desk.write(change=lambda text: text.replace("source: file", "source: flie"))
    assert desk.subscribe("--once").code == 2
    assert not (tmp_path / "new.db").exists()


def test_an_event_that_is_refused_creates_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    said = refused(["record", "x", "--payload", "{", "--store", "sqlite:new.db"], capfd)
    assert said.startswith("error: --payload at position 1")


def test_a_server_creates_its_store_whatever_clients_are_told(tmp_path: Path) -> None:
    arguments = ("serve", "--store", "sqlite:new.db", "--grpc", "127.0.0.1:0", "--no-http")
    serving = start(*arguments, folder=tmp_path, TAPE_URL=SERVER)
    assert serving.stdout is not None
    assert serving.stdout.readline().startswith("grpc 127.0.0.1:")
    serving.terminate()
    assert serving.communicate(timeout=30)[1] == "created sqlite:new.db\n"
