"""`tape wallet`: keys are made, values are read and never printed."""

import io
import json
import os
import pty
import subprocess
from pathlib import Path

import pytest

from tape.cli import wallet as wallet_command
from tests.integration.cli.command import TAPE, Done, clean_environment, tape

CANARY = "canary-91b2-secret"
LOGIN = json.dumps({"user": "tape", "password": CANARY})


class Desk:
    """A store, and a key file beside it."""

    def __init__(self, folder: Path, store: str) -> None:
        self.folder = folder
        self.key = folder / "wallet.key"
        self.environment = {"TAPE_STORE": store, "TAPE_WALLET_KEY_FILE": str(self.key)}

    def wallet(self, *arguments: str, stdin: str = "") -> Done:
        done = tape("wallet", *arguments, folder=self.folder, stdin=stdin, **self.environment)
        assert CANARY not in done.out + done.err
        return done


@pytest.fixture
def desk(tmp_path: Path, sqlite_url: str) -> Desk:
    desk = Desk(tmp_path, sqlite_url)
    assert desk.wallet("init").code == 0
    return desk


def test_a_key_is_made_once(tmp_path: Path, sqlite_url: str) -> None:
    desk = Desk(tmp_path, sqlite_url)
    made = desk.wallet("init")
    key_id = desk.key.read_text().split()[1].rstrip(",")
    assert (made.code, made.out, made.err) == (0, f"{desk.key}: {key_id}\n", "")
    assert desk.key.stat().st_mode & 0o777 == 0o600
    again = desk.wallet("init")
    assert again.code == 2
    assert f"{desk.key} is there already" in again.err
    assert "--add" in again.err
    (other,) = desk.wallet("init", "--file", "other.key", "--json").records
    assert other.keys() == {"file", "key_id"}
    assert (tmp_path / "other.key").exists()
    nowhere = tape("wallet", "init", folder=tmp_path)
    assert (nowhere.code, "give --file, or set TAPE_WALLET_KEY_FILE" in nowhere.err) == (2, True)


def test_values_are_read_from_standard_input_and_from_files(desk: Desk) -> None:
    (state,) = desk.wallet("put", "nats_main", "--json", stdin=LOGIN + "\n").records
    assert (state["version"], state["form"], state["opened"]) == (1, "object", 0)
    assert desk.wallet("put", "nats_main", "--json", stdin=LOGIN).records == [state]
    (desk.folder / "login.json").write_text(f"{LOGIN} ")
    said = desk.wallet("put", "nats_main", "--file", "login.json")
    assert said.out == f"nats_main is at version 2 (sealed under {state['key_id']})\n"
    (text,) = desk.wallet("put", "hook", "--text", "--json", "--file", "-", stdin=LOGIN).records
    assert text["form"] == "text"
    rotated = desk.wallet("rotate", "hook", stdin=CANARY)
    assert rotated.out.startswith("hook is at version 2, and 1 is still good (sealed under key-")
    retired = desk.wallet("rotate", "hook", "--retire")
    assert retired.out.startswith("hook: only version 2 is good")
    listed = desk.wallet("list", "--json").records
    assert [(each["alias"], each["version"]) for each in listed] == [("hook", 2), ("nats_main", 2)]


@pytest.mark.parametrize(
    ("typed", "kept"),
    [("x", "x"), ("x\n", "x"), ("x\r\n", "x"), ("x\n\n", "x\n"), ("x\r", "x\r"), ("\nx", "\nx")],
)
def test_one_newline_at_the_end_is_dropped(typed: str, kept: str) -> None:
    assert wallet_command._text(io.BytesIO(typed.encode())) == kept


def test_a_value_that_is_typed_is_not_echoed(desk: Desk) -> None:
    terminal, their_side = pty.openpty()
    with subprocess.Popen(
        [*TAPE, "wallet", "put", "typed"],
        cwd=desk.folder,
        env=clean_environment(**desk.environment),
        stdin=their_side,
        stdout=their_side,
        stderr=their_side,
        start_new_session=True,
    ) as process:
        os.close(their_side)
        shown = b""
        while b"value:" not in shown:
            shown += os.read(terminal, 1_000)
        os.write(terminal, f"{CANARY}\n".encode())
        try:
            while more := os.read(terminal, 1_000):
                shown += more
        except OSError:
            pass  # the other side is closed
        assert process.wait(60) == 0
    os.close(terminal)
    assert b"typed is at version 1" in shown
    assert CANARY.encode() not in shown


def test_the_key_is_rotated(desk: Desk) -> None:
    desk.wallet("put", "a", stdin="one")
    desk.wallet("rotate", "a", stdin="two")
    old = desk.wallet("list", "--json").records[0]["key_id"]
    new = desk.wallet("init", "--add").out.split()[-1]
    listed = desk.wallet("list").out
    assert listed.count(old) == 2
    assert new not in listed
    assert desk.wallet("rewrap").out == "2 rewrapped\n"
    listed = desk.wallet("list").out
    assert listed.count(new) == 2
    assert old not in listed
    assert desk.wallet("rewrap", "--json").records == [{"rewrapped": 0}]
    kept = [line for line in desk.key.read_text().splitlines() if not line.startswith("#")]
    desk.key.write_text(kept[0] + "\n")  # the old one goes
    assert desk.wallet("rotate", "a", stdin="three").code == 0


@pytest.mark.parametrize(
    ("arguments", "stdin", "code", "said"),
    [
        (("put", "a"), "", 2, "error: the value read from standard input: must not be empty\n"),
        (("rotate", "a", "--file", "-"), "\n", 2, "from standard input: must not be empty\n"),
        (("put", "a", "--file", "/dev/null"), "", 2, "from --file /dev/null: must not be empty"),
        (("put", ""), "x", 2, "ALIAS: must not be empty"),
        (("put", "a", CANARY), "", 2, "give ALIAS alone: the value is read from standard input"),
        (("rotate", "a", CANARY), "", 2, "give ALIAS alone: the value is read from standard"),
        (("put", "a", "--file", "none"), "", 1, "none: No such file or directory"),
        (("put", "a"), CANARY * 5_000, 2, "standard input: 90000 bytes, the limit is 65536"),
        (("rotate", "none"), "x", 1, "the wallet has no credential 'none'"),
        (("rotate", "none", "--retire"), "", 1, "the wallet has no credential 'none'"),
        (("rotate", "a", "--retire", "--text"), "", 2, "--retire reads no value"),
        (("delete", "none"), "", 1, "no credential 'none'"),
    ],
)
def test_what_is_refused(
    desk: Desk, arguments: tuple[str, ...], stdin: str, code: int, said: str
) -> None:
    done = Done(*tape("wallet", *arguments, folder=desk.folder, stdin=stdin, **desk.environment))
    assert (done.code, said in done.err) == (code, True), done.err
    assert CANARY not in done.err
    assert desk.wallet("list", "--json").records == []


def test_what_is_no_text_is_refused_and_not_repeated(desk: Desk) -> None:
    (desk.folder / "value").write_bytes(CANARY.encode() + b"\xff")
    done = desk.wallet("put", "a", "--file", "value")
    assert (done.code, "the value read from --file value: is not UTF-8" in done.err) == (2, True)


def test_without_a_key_it_is_said_what_to_do(desk: Desk) -> None:
    del desk.environment["TAPE_WALLET_KEY_FILE"]
    done = desk.wallet("put", "a", stdin=CANARY)
    assert (done.code, "set TAPE_WALLET_KEY_FILE" in done.err) == (1, True)
    desk.environment["TAPE_WALLET_KEY_FILE"] = str(desk.folder / "none.key")
    done = desk.wallet("put", "a", stdin=CANARY)
    assert (done.code, "tape wallet init --file" in done.err) == (1, True)
    desk.environment["TAPE_WALLET_KEYFILE"] = "x"
    assert "Did you mean TAPE_WALLET_KEY_FILE?" in desk.wallet("list").err
    desk.key.chmod(0o644)
    desk.environment["TAPE_WALLET_KEY_FILE"] = str(desk.key)
    done = desk.wallet("put", "a", stdin=CANARY)
    assert (done.code, f"chmod 600 {desk.key}" in done.err) == (1, True)


def test_deleting(desk: Desk) -> None:
    desk.wallet("put", "a", stdin="x")
    assert desk.wallet("delete", "a").out == "a is deleted\n"
    assert desk.wallet("list", "--json").records == []
