"""What was mistyped is told with what may have been meant, and by the name that was typed."""

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

import tape
from tape.cli.root import VARIABLES, run
from tape.model.reaction import HandlerKind, NewReaction
from tape.wallet.local_keys import written
from tests.integration.grpc.listening import document
from tests.unit.subscriptions.subscribed import document as nats_document

STORE = ["--store", "sqlite:a.db"]
Said = Callable[..., tuple[int, str, str]]

MEANT = [
    (["recrd", "x"], "No such command 'recrd'. Did you mean 'record'?"),
    (["runs", "lst"], "No such command 'lst'. Did you mean 'list'?"),
    (["outbox", "stream", "aply"], "No such command 'aply'. Did you mean 'apply'?"),
    (["pipeline", "audti"], "No such command 'audti'. Did you mean 'audit'?"),
    (["tail", "--lsat", "3"], "No such option"),
    (["tail", "--lsat", "3"], "Did you mean '--last'"),
    (["reactions", "show", "large-order"], "no reaction large-order. Did you mean 'large-orders'?"),
    (["reactions", "deregister", "lage-orders"], "Did you mean 'large-orders'?"),
    (["dlq", "list", "large-order"], "Did you mean 'large-orders'?"),
    (["dlq", "replay", "large-order", "--all"], "Did you mean 'large-orders'?"),
    (["tasks", "list", "--reaction", "large-order"], "Did you mean 'large-orders'?"),
    (["drain", "workflow_runer"], "Did you mean 'workflow_runner'?"),
    (["drainers", "resume", "workflow_runer"], "Did you mean 'workflow_runner'?"),
    (["drainers", "unsubscribe", "checkout:order"], "Did you mean 'checkout:order.*'?"),
    (["subscriptions", "show", "inbx"], "no subscription 'inbx'. Did you mean 'inbox'?"),
    (["subscriptions", "activate", "in-box"], "Did you mean 'inbox'?"),
    (["subscriptions", "remove", "inbox2"], "no subscription 'inbox2'. Did you mean 'inbox'?"),
    (["subscriptions", "actvate", "inbox"], "Did you mean 'activate'?"),
    (["dlq", "list", "--subscription", "inbx"], "Did you mean 'inbox'?"),
    (["dlq", "replay", "--subscription", "inbx", "large-order"], "Did you mean 'inbox'?"),
    (["runs", "list", "--subscription", "inbx"], "nothing here is named 'inbx'. Did you mean 'in"),
    (["subscriptions", "activate", "mail"], "no credential 'nats_mail': put it there by"),
    (["subscriptions", "activate", "mail"], "Did you mean 'nats_main'?"),
    (["wallet", "delete", "nats_mian"], "no credential 'nats_mian'. Did you mean 'nats_main'?"),
    (["wallet", "rotate", "nats_mian", "--retire"], "Did you mean 'nats_main'?"),
    (["runs", "list", "--pool", "lanes"], "nothing here is named 'lanes'. Did you mean 'lines'?"),
    (["runs", "list", "--app", "checkout", "--pool", "lanes"], "Did you mean 'lines'?"),
    (["runs", "show", "{run}"], "Did you mean '{whole}'?"),
    (["runs", "cancel", "{run}"], "Did you mean '{whole}'?"),
    (["values", "get", "deks", "fx"], "no value deks/fx. Did you mean 'desk'?"),
    (["values", "get", "desk", "fxx"], "no value desk/fxx. Did you mean 'fx'?"),
    (["sessions", "show", "shpo", "ada", "s1"], "Did you mean 'shop'?"),
    (["runs", "list", "--app", "chekout"], "nothing here is named 'chekout'. Did you mean 'checko"),
    (["values", "list", "deks"], "note: nothing here is named 'deks'. Did you mean 'desk'?"),
    (["sessions", "list", "shpo", "ada"], "nothing here is named 'shpo'. Did you mean 'shop'?"),
    (["drainers", "subscriptions", "workflow_runer"], "Did you mean 'workflow_runner'?"),
]

FLAGS = [
    (["record", "x", "--entity", "order/" + "7" * 600], "--entity: "),
    (["record", "x", "--key", "k" * 600], "--key: "),
    (["record", "x", "--payload", '{"a":'], "--payload at position 5: "),
    (["record", "x", "--schema-version", "0"], "--schema-version: "),
    (["record", ""], "EVENT_TYPE: "),
    (["tail", "--where", "payload.a +"], "--where at position "),
    (["tail", "/tape/**/x"], "PATTERN"),
    (["tail", "--type", "order.?"], "--type at position 6: '?' is not allowed in a glob"),
    (["tail", "--type", "order.*", "--where", "payload.a +"], "--where at position "),
    (["tail", "--no-follow", "--from", "9999"], "--from: 9999 is beyond the end"),
    (["values", "set", "n", "k", "{"], "JSON at position 1: "),
    (["values", "set", "n", "", "1"], "KEY: "),
    (["reactions", "register", "r", "--task", "--pattern", "x"], "--pattern"),
    (["reactions", "register", "r", "--task", "--pattern", "/**", "--where", "("], "--where at"),
    (["reactions", "register", "r", "--publish", "no:where", "--pattern", "/**"], "--publish: "),
    (["reactions", "register", "r", "--task", "--pattern", "/**", "--num-shards", "-1"],
     "--num-shards: "),
    (["drainers", "subscribe", "a.?", "app"], "GLOB at position 2: "),
    (["drainers", "subscribe", "a.*", "app", "--where", "("], "--where at position "),
    (["drainers", "subscribe", "a.*", "app", "--input", "x=$.nope"], "--input x"),
    (["runs", "start", "app", "--input", "{"], "--input at position 1: "),
    (["runs", "start", "app", "--user", "u" * 600], "--user: "),
    (["runs", "signal", "r", "gate", "{"], "JSON at position 1: "),
    (["relay", "--sink", "nats://127.0.0.1:4222"], "--sink: names no subject"),
    (["worker", "--bridge", "nats://127.0.0.1:4222"], "--bridge: names no subject"),
    (["serve", "--grpc", "nowhere"], "--grpc: 'nowhere' is not HOST:PORT"),
    (["serve", "--http", "nowhere", "--grpc", "127.0.0.1:0"], "--http: 'nowhere' is not HOST:PORT"),
]  # fmt: skip


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory, made_store: Path) -> tuple[Path, str]:
    """A store with something of each kind, and the id of its run."""
    file = tmp_path_factory.mktemp("filled") / "a.db"
    shutil.copy(made_store, file)
    key = {"TAPE_WALLET_KEY": written(b"k" * 32)}
    with mock.patch.dict(os.environ, key), tape.connect(f"sqlite:{file}") as client:
        new = NewReaction("large-orders", "/tape/event/**", HandlerKind.TASK)
        client.register_reaction(new)
        client.subscribe_events("order.*", "checkout", subscription_id="checkout:order.*")
        client.register_subscription(document())
        client.register_subscription(nats_document("mail", auth="nats_mail"))
        client.put_credential("nats_main", "x", form="text")
        client.set_value("desk", "fx", 1.1)
        client.create_session("shop", "ada", "s1")
        run_id = client.start_run("checkout", pool="lines").run_id
    return file, run_id


@pytest.fixture
def said(
    filled: tuple[Path, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Said:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("TAPE_")]:
        monkeypatch.delenv(name)
    for part in filled[0].parent.iterdir():
        shutil.copy(part, tmp_path)

    def call(*arguments: str) -> tuple[int, str, str]:
        code = run([*arguments, *STORE])
        printed = capfd.readouterr()
        return code, printed.out, printed.err

    return call


def _name(parameter: list[str] | str) -> str:
    return "" if isinstance(parameter, str) else " ".join(parameter)[:50]


@pytest.mark.parametrize(("arguments", "message"), MEANT, ids=_name)
def test_what_may_have_been_meant(
    arguments: list[str], message: str, said: Said, filled: tuple[Path, str]
) -> None:
    whole = filled[1]
    words = [word.format(run=whole[:-3]) if "{run}" in word else word for word in arguments]
    code, _out, err = said(*words)
    assert message.format(whole=whole) in err
    assert len(err.splitlines()) == 1
    assert code == 0 if err.startswith("note: ") else code in (1, 2)


def test_what_nothing_is_like_is_not_guessed(said: Said) -> None:
    assert "Did you mean" not in said("reactions", "show", "quite-another")[2]
    assert "Did you mean" not in said("frobnicate")[2]


@pytest.mark.parametrize(("arguments", "message"), FLAGS, ids=_name)
def test_an_error_names_what_was_typed(arguments: list[str], message: str, said: Said) -> None:
    code, _out, err = said(*arguments)
    assert err.startswith(f"error: {message}"), err
    assert code == 2


def test_an_environment_variable(said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAPE_STOER", "sqlite:b.db")
    monkeypatch.setenv("TAPE_OF_MINE", "x")
    _code, _out, err = said("values", "list", "desk")
    assert err == "note: TAPE_STOER is set, and Tape does not read it. Did you mean TAPE_STORE?\n"


def test_every_variable_is_known() -> None:
    sources = Path(tape.__file__ or "").parent
    read = re.compile(r"\bTAPE_[A-Z_]+[A-Z]")
    found = {name for file in sources.rglob("*.py") for name in read.findall(file.read_text())}
    assert found - {"TAPE_COMPLETE"} == set(VARIABLES)


def test_a_setting(said: Said) -> None:
    Path("tape.yaml").write_text("tape:\n  limts:\n    payload_bytes: 5\n")
    code, _out, err = said("values", "list", "desk")
    assert "tape.limts: there is no such key; did you mean limits?" in err
    assert code == 2
