"""What people type by mistake gets a sentence that says what to write."""

from importlib.metadata import metadata
from pathlib import Path
from typing import Any

import pytest

import tape
from tape.cli.doctor.installation import EXTRAS
from tape.errors import InvalidArgument
from tape.runs.declare import Apps


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
