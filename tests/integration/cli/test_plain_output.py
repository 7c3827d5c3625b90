"""Names and errors that somebody chose cannot forge a log line or steer a terminal."""

import json
import logging
import sqlite3
from io import StringIO
from pathlib import Path

import pytest

from tape.cli.logs import PlainLines
from tape.model.json_text import terminal_safe
from tests.integration.cli.command import tape

NASTY = "a\x1b[2Jb\rc\nERROR:root:forged\x7f\x9b31m\u202e\u2066\u2028d"
CONTROLS = {chr(n) for n in (*range(32), *range(0x7F, 0xA0))} - {"\n"}
BIDI = set("\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def logged(log: logging.Logger, text: str, *, failing: bool = False) -> str:
    out = StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(PlainLines(logging.BASIC_FORMAT))
    log.addHandler(handler)
    if failing:
        log.error("it failed", exc_info=ValueError(text))
    else:
        log.warning("run %s failed", text)
    log.removeHandler(handler)
    return out.getvalue()


def test_a_log_line_stays_one_line() -> None:
    text = logged(logging.getLogger("tape.test"), NASTY)
    assert text.count("\n") == 1
    assert not set(text) & (CONTROLS | BIDI)
    assert r"run a\x1b[2Jb\rc\nERROR:root:forged\x7f\x9b31m\u202e" in text


def test_a_traceback_keeps_its_lines_and_forges_none() -> None:
    text = logged(logging.getLogger("tape.test"), NASTY, failing=True)
    first, *others = text.splitlines()
    assert first == "ERROR:tape.test:it failed"
    assert others
    assert all(line.startswith("    ") for line in others)
    assert "    ERROR:root:forged" in text
    assert not set(text) & (CONTROLS | BIDI)


def test_json_for_programs_is_the_same_value_without_what_steers() -> None:
    steering = "".join(sorted(BIDI | {chr(n) for n in range(0x7F, 0xA0)}))
    for text in (steering, "plain", "ä€🎉", '"\\'):
        shown = terminal_safe(json.dumps({"t": text}, ensure_ascii=False))
        assert json.loads(shown) == {"t": text}
        assert not set(shown) & (CONTROLS | BIDI)


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_values_are_shown_plainly(sqlite_url: str, tmp_path: Path, form: tuple[str, ...]) -> None:
    store = ("--store", sqlite_url)
    text = json.dumps({"t": NASTY}, ensure_ascii=False)
    assert tape("values", "set", "n", "k", text, *store, folder=tmp_path).code == 0
    for command in (("values", "get", "n", "k"), ("tail", "--no-follow")):
        done = tape(*command, *form, *store, folder=tmp_path)
        assert (done.code, done.err) == (0, "")
        assert not set(done.out) & (CONTROLS | BIDI)


def test_the_log_is_plain_json(sqlite_url: str, tmp_path: Path) -> None:
    store = ("--store", sqlite_url)
    text = json.dumps({"t": NASTY}, ensure_ascii=False)
    assert tape("record", "a.b", "--payload", text, *store, folder=tmp_path).code == 0
    done = tape("relay", "--sink", "log:", "--no-follow", *store, folder=tmp_path)
    assert done.code == 0
    assert not set(done.out) & (CONTROLS | BIDI)
    assert json.loads(done.out)["data"] == {"t": NASTY}


def test_names_are_no_markup(sqlite_url: str, tmp_path: Path) -> None:
    name = "[/a] :smile: [red]\x9b"
    done = tape("runs", "start", name, "--pool", name, "--store", sqlite_url, folder=tmp_path)
    assert done.code == 0
    shown = name.replace("\x9b", "\\x9b")
    assert f"no worker has taken a run of {shown} yet" in done.err
    assert f"in pool {shown}" in done.err
    assert shown in done.out


def test_an_unexpected_failure_with_verbose_is_plain_too(tmp_path: Path) -> None:
    done = tape("tail", "--store", f"sqlite:no/{NASTY}/x.db", "--verbose", folder=tmp_path)
    assert done.code == 1
    assert "Traceback" in done.err
    assert not set(done.err) & (CONTROLS | BIDI)


def test_the_files_of_a_journal_are_its_owners(tmp_path: Path) -> None:
    path = tmp_path / "tape.db"
    assert tape("record", "x", "--store", f"sqlite:{path}", folder=tmp_path).code == 0
    with sqlite3.connect(path) as db:
        db.execute("SELECT count(*) FROM sqlite_master")
        modes = {each.name: oct(each.stat().st_mode & 0o777) for each in tmp_path.glob("tape.db*")}
    assert len(modes) >= 1
    assert set(modes.values()) == {"0o600"}
