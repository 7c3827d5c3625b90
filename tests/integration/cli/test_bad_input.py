"""Wrong input: one line that says what is wrong and where, and exit code 2; failures: 1.

These call the command line in this process, which is what `tape` does, to keep the table cheap.
"""

import shutil
from pathlib import Path

import pytest

from tape.cli.root import run
from tape.errors import InvalidArgument

WRONG = [
    (["nope"], "No such command 'nope'"),
    (["tail", "--nope"], "No such option"),
    (["tail", "--from", "yesterday"], "'yesterday' is neither a number, start nor now"),
    (["tail", "--limit", "0"], "0 is not in the range"),
    (["tail", "--store", ""], "is empty"),
    (["tail", "--store", "mysql:x"], "'mysql' is not a kind of URL"),
    (["tail", "--store", "sqlite:"], "names no file"),
    (["tail", "--store", "sqlite:a.db", "--url", "tape://h:1"], "exclude each other"),
    (["tail", "--no-follow", "--from", "9", "--store", "sqlite:a.db"], "9 is beyond the end of"),
    (["tail", "--store", "sqlite:no/such/folder.db"], "no store at sqlite:no/such/folder.db; "),
    (["record"], "give an EVENT_TYPE"),
    (["record", "", "--store", "sqlite:a.db"], "EVENT_TYPE"),
    (["record", "x", "--entity", "order"], "--entity is TYPE/ID"),
    (["record", "x", "--payload", '{"a":', "--store", "sqlite:a.db"], "--payload at position 5"),
    (["record", "x", "--schema-version", "0", "--store", "sqlite:a.db"], "--schema-version"),
    (["record", "x", "--key", "k" * 600, "--store", "sqlite:a.db"], "--key"),
    (["record", "x", "--payload", " "], "the payload is empty"),
    (["record", "workflow.mine", "--store", "sqlite:a.db"], "EVENT_TYPE: types that begin with"),
    (["record", "x", "--batch", "f"], "--batch takes each event whole"),
    (["values", "set", "n", "k", "{", "--store", "sqlite:a.db"], "JSON at position 1"),
    (["values", "set", "n", "k", "", "--store", "sqlite:a.db"], "JSON: "),
    (["values", "set", "n", "", "1", "--store", "sqlite:a.db"], "KEY"),
    (["values", "set", "n", "k", "1", "--if-version", "-2"], "-2 is not in the range"),
    (["migrate", "--store", "redis:x"], "'redis' is not a store"),
    (["doctor", "--store", "redis:x"], "'redis' is not a store"),
    (["demo", "--events", "3"], "3 is not in the range"),
    (["serve", "--url", "tape://h:1"], "a server has a store"),
    (["serve", "--tokens", "missing"], "does not exist"),
    (["serve", "--tokens", "foreign.txt", "--store", "sqlite:a.db"], "a role is read, write or"),
    (["serve", "--tokens", "empty.txt", "--store", "sqlite:a.db"], "the file has none"),
    (["serve", "--store", "sqlite:a.db", "--grpc", "nowhere"], "nowhere"),
]

FAILED = [
    (["dlq", "replay", "nosuch", "--all", "--store", "sqlite:a.db"], "no reaction has the id"),
    (["dlq", "drop", "nosuch", "--all", "--yes", "--store", "sqlite:a.db"], "no reaction has the"),
    (["dlq", "list", "nosuch", "--store", "sqlite:a.db"], "no reaction has the id 'nosuch'"),
    (["tasks", "show", "x", "--store", "sqlite:a.db"], "no task x"),
    (["values", "get", "n", "k", "--store", "sqlite:a.db"], "no value n/k"),
    (["values", "get", "n", "\x1b[31m", "--store", "sqlite:a.db"], r"no value n/\x1b[31m"),
    (["values", "delete", "n", "k", "--store", "sqlite:a.db"], "no value n/k"),
    (["sessions", "show", "a", "u", "s", "--store", "sqlite:a.db"], "no session a/u/s"),
    (["record", "x", "--payload", "@missing.json"], "missing.json: No such file"),
    (["record", "--batch", "missing.ndjson"], "missing.ndjson: No such file"),
    (["record", "x", "--store", "sqlite:foreign.txt"], "is not a usable SQLite database"),
    (["record", "x", "--url", "tape://127.0.0.1:1"], "127.0.0.1:1"),
    (["serve", "--store", "sqlite:a.db", "--grpc", "0.0.0.0:0"], "give tokens"),
]


def _name(parameter: list[str] | str) -> str:
    return "" if isinstance(parameter, str) else " ".join(parameter)[:40]


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, made_store: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("TAPE_URL", "TAPE_STORE", "TAPE_TOKEN", "TAPE_TOKENS"):
        monkeypatch.delenv(name, raising=False)
    Path("foreign.txt").write_text("not a database " * 100)
    Path("empty.txt").write_text("# nobody yet\n")
    shutil.copy(made_store, "a.db")


def _said(arguments: list[str], capfd: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = run(arguments)
    printed = capfd.readouterr()
    assert printed.out == ""
    return code, printed.err


@pytest.mark.parametrize(("arguments", "message"), WRONG, ids=_name)
def test_wrong_input_is_refused(
    arguments: list[str], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    code, err = _said(arguments, capfd)
    assert err.startswith("error: ")
    assert message in err.splitlines()[0]
    assert code == 2


@pytest.mark.parametrize(("arguments", "message"), FAILED, ids=_name)
def test_what_fails_says_so_in_one_line(
    arguments: list[str], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    code, err = _said(arguments, capfd)
    assert err.startswith("error: ")
    assert message in err
    assert len(err.splitlines()) == 1
    assert code == 1


def test_a_caret_stands_under_the_fault(capfd: pytest.CaptureFixture[str]) -> None:
    where = 'payload.a == "ü" &&\n  payload.b +'
    _code, err = _said(["tail", "--store", "sqlite:a.db", "--where", where], capfd)
    _message, line, caret = err.splitlines()
    assert line == "    payload.b +"
    assert caret.index("^") >= line.index("+")


def test_long_input_is_cut_around_the_fault(capfd: pytest.CaptureFixture[str]) -> None:
    pattern = "/tape/event/recorded/" + "a" * 500 + "*" + "b" * 500
    _code, err = _said(["tail", "--store", "sqlite:a.db", pattern], capfd)
    _message, line, caret = err.splitlines()
    assert line[caret.index("^")] == "*"
    assert len(line) < 110


def test_nothing_is_made_by_looking(capfd: pytest.CaptureFixture[str]) -> None:
    run(["doctor", "--store", "sqlite:never.db"])
    run(["migrate", "--status", "--store", "sqlite:never.db"])
    printed = capfd.readouterr()
    assert "no store at sqlite:never.db" in printed.out
    assert "no store at sqlite:never.db yet: tape migrate creates it" in printed.err
    assert not Path("never.db").exists()


def test_verbose_shows_where_it_happened() -> None:
    with pytest.raises(InvalidArgument):
        run(["--verbose", "tail", "--store", "sqlite:a.db", "/tape/"])


def test_an_absent_default_server_is_explained(capfd: pytest.CaptureFixture[str]) -> None:
    assert "tape serve" not in _said(["record", "x", "--url", "tape://127.0.0.1:1"], capfd)[1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tape.programs.connect.DEFAULT_URL", "tape://127.0.0.1:1")
        assert "start one with: tape serve" in _said(["record", "x"], capfd)[1]


def test_an_empty_text_of_tokens_is_not_none(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAPE_TOKENS", "")
    code, err = _said(["serve", "--store", "sqlite:new.db"], capfd)
    assert code == 2
    assert err.startswith("error: --tokens: tokens are required but the text is empty")
    assert not Path("new.db").exists()
