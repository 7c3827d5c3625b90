"""What people type by mistake gets a sentence that says what to write."""

import ast
import re
from collections.abc import Callable
from dataclasses import fields
from importlib import import_module
from importlib.metadata import metadata
from pathlib import Path
from typing import Any, cast

import pytest

import tape
from tape import consumers, reactors, worker
from tape.cli.doctor.installation import EXTRAS
from tape.errors import InvalidArgument
from tape.runs.declare import Apps
from tape.settings import Settings


@pytest.mark.parametrize(
    ("mistake", "says"),
    [
        (lambda client: client.record('a', entity_id=7), "must be text, not int: write '7'"),
        (lambda client: client.record(b"order.placed"), "event_type: must be text, not bytes"),
        (lambda client: client.record("a", idempotency_key=5), "idempotency_key: must be text"),
        (lambda client: client.record("a", caused_by=3), "caused_by: must be text, not int"),
        (lambda client: client.set_value("desk", 1, 2), "key: must be text, not int: write '1'"),
        (lambda client: client.get_value(None, "a"), "namespace: must be text, not NoneType"),
        (lambda client: client.follow("/**", where=True), "where: must be text, not bool"),
    ],
)  # fmt: skip
def test_what_must_be_text(sqlite_url: str, mistake: Any, says: str) -> None:
    with tape.connect(sqlite_url) as client:
        with pytest.raises(InvalidArgument) as refused:
            mistake(client)
        assert says in str(refused.value)
        assert client.info().head_global_seq == 0


def test_a_relay_of_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TAPE_STORE", raising=False)
    monkeypatch.setenv("TAPE_URL", "tape://127.0.0.1:7878")
    with pytest.raises(InvalidArgument, match=r"give it the store's URL, .* or set TAPE_STORE"):
        tape.run_relay()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("url", ["sqlite", "sqlite:", "sqlite::memory:"])
def test_a_store_without_a_file(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidArgument, match="names no file"):
        tape.connect(url)
    assert list(tmp_path.iterdir()) == []


async def test_a_connection_that_was_not_entered(sqlite_url: str) -> None:
    client: Any = tape.connect_async(sqlite_url)
    with pytest.raises(AttributeError, match="async with connect_async"):
        await client.record("order.placed")


def test_an_app_without_a_name() -> None:
    bare: Any = tape.app

    async def checkout(ctx: tape.Context, order: Any) -> None: ...

    with pytest.raises(InvalidArgument, match=r'write @tape.app\("checkout"\) above'):
        bare(checkout)


def three(ctx: Any, first: Any, second: Any) -> None: ...
def none() -> None: ...
def by_name(*, ctx: Any) -> None: ...


@pytest.mark.parametrize("function", [three, none, by_name])
def test_an_app_that_cannot_be_called(function: Any) -> None:
    apps = Apps()
    with pytest.raises(InvalidArgument) as refused:
        tape.app("checkout", registry=apps)(function)
    assert f"is called as {function.__name__}(ctx)" in str(refused.value)
    assert apps.apps == {}


@pytest.mark.parametrize("function", [lambda ctx: 1, lambda ctx, order=None: 1, lambda *given: 1])
def test_apps_that_can_be_called(function: Any) -> None:
    assert tape.app("checkout", registry=Apps())(function).function is function


async def test_an_effect_outside_of_a_run_names_what_there_is() -> None:
    @tape.effect(registry=Apps())
    async def charge(cents: int) -> int:
        return cents

    with pytest.raises(InvalidArgument, match=r"client\.run or client\.start_run"):
        await charge(1)
    assert hasattr(tape.TapeClient, "run")
    assert hasattr(tape.TapeClient, "start_run")


def test_doctor_knows_every_extra() -> None:
    provided = set(metadata("tape-bus").get_all("Provides-Extra") or ())
    assert {extra for extra, _module, _purpose in EXTRAS} == provided - {"all"}


BLOCKING = [
    ("run_dispatcher", lambda: tape.reactions.run_dispatcher("sqlite:no.db")),
    ("run_pubsub_bridge", lambda: tape.reactions.run_pubsub_bridge(project="p", topic="t")),
    ("register_all", lambda: tape.reactions.register_all("sqlite:no.db")),
    ("run_reactors", lambda: reactors.run_reactors("sqlite:no.db")),
    ("run_journal_relay", lambda: reactors.run_outbox_relay("sqlite:no.db")),
    ("run_worker", lambda: worker.run_worker(worker.WorkerOptions("sqlite:no.db"))),
    ("tape.run_relay", lambda: tape.run_relay("sqlite:no.db")),
    ("tape.recover_once", lambda: tape.recover_once(url="sqlite:no.db")),
    ("run_consumer", lambda: consumers.run_consumer(cast("Any", None), cast("Any", None))),
]


@pytest.mark.parametrize(("name", "call"), BLOCKING, ids=[name for name, _call in BLOCKING])
async def test_what_blocks_inside_a_running_loop(name: str, call: Callable[[], object]) -> None:
    with pytest.raises(InvalidArgument) as refused:
        call()
    said = str(refused.value)
    assert said.startswith(f"{name} blocks, and an event loop is running here: write `await ")
    instead = named_in(said.partition("write")[2])
    assert instead
    assert {name.split(".")[1] for name in instead} <= tape._homes().keys()


async def test_a_client_that_blocks_inside_a_running_loop(
    sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with tape.connect(sqlite_url) as client:
        assert "write `async with tape.connect_async(url) as client`" in caplog.text
        with pytest.raises(InvalidArgument, match=r"async with .* as client: await client.run\("):
            client.run("checkout")
        with pytest.raises(InvalidArgument, match=r"await client\.run_result"):
            client.run_result("R")
        assert client.info().head_global_seq == 0


def named_in(text: str) -> list[str]:
    """The names of Tape that a text mentions; each must be there."""
    names = re.findall(r"\b(?:tape|client)\.[a-z_]+(?:\.\w+)*", text)
    for name in names:
        first, *rest = name.split(".")
        there: Any = tape if first == "tape" else tape.TapeClient
        if name in FILES or (first == "tape" and rest[0] in SECTIONS):
            continue
        for part in rest:
            if not hasattr(there, part):
                import_module(f"{there.__name__}.{part}")
            there = getattr(there, part)
    return names


FILES = {"tape.yaml", "tape.db", "tape.cli", "tape.events"}
SECTIONS = {field.name for field in fields(Settings)}
SOURCES = Path(tape.__file__ or "").parent
NOT_OURS = {"wire", "__pycache__"}


def test_no_error_names_what_is_not_there() -> None:
    seen = 0
    for file in SOURCES.rglob("*.py"):
        if NOT_OURS & set(file.parts):
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Raise) and node.exc is not None:
                words = [
                    part.value
                    for part in ast.walk(node.exc)
                    if isinstance(part, ast.Constant) and isinstance(part.value, str)
                ]
                seen += len(named_in(" ".join(words)))
    assert seen > 10
    with pytest.raises(ModuleNotFoundError):
        named_in("call tape.run first")
