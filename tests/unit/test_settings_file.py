"""Settings from a file: which file counts, what it changes, and what is refused and how."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from tape.errors import InvalidArgument
from tape.settings import (
    Limits,
    ReactorSettings,
    ReactorsSettings,
    Settings,
    SqliteSettings,
    WriterSettings,
)
from tape.settings.file import read_settings
from tape.settings.yaml_file import RANGES, range_of, read_yaml

SEED = """
tape:
  reactors:
    recovery:
      lease_ttl_s: 20
      heartbeat_s: 5
  writer: {batch_moves: 500}
  limits: {payload_bytes: 1_024}
"""


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TAPE_CONFIG", raising=False)


def read(text: str, base: Settings | None = None) -> Settings:
    file = Path("desk.yaml")
    file.write_text(text)
    return read_settings(file, base or Settings())


def refused(text: str, base: Settings | None = None) -> InvalidArgument:
    with pytest.raises(InvalidArgument) as caught:
        read(text, base)
    return caught.value


def leaves(section: Any = Settings(), at: str = "tape") -> Iterator[tuple[str, type, float]]:  # noqa: B008
    """Each setting: its key, its kind, its default."""
    kinds = get_type_hints(type(section))
    for field in fields(section):
        value, key = getattr(section, field.name), f"{at}.{field.name}"
        if is_dataclass(value):
            yield from leaves(value, key)
        else:
            yield key, kinds[field.name], value


LEAVES = {key: (kind, default) for key, kind, default in leaves()}
FLAGS = [key for key, (kind, _default) in LEAVES.items() if kind is bool]
NUMBERS = {key: told for key, told in LEAVES.items() if told[0] in (int, float)}


def nested(key: str, value: str) -> str:
    """The document that says one setting."""
    first, *rest = reversed(key.split("."))
    text = f"{{{first}: {value}}}"
    for name in rest:
        text = f"{{{name}: {text}}}"
    return text


def test_a_heartbeat_is_a_third_of_the_ttl_unless_it_is_said() -> None:
    assert ReactorSettings(lease_ttl_s=30).heartbeat_every_s == 10
    assert ReactorSettings(lease_ttl_s=30, heartbeat_s=4).heartbeat_every_s == 4


def test_without_a_file_nothing_changes() -> None:
    base = Settings(limits=Limits(payload_bytes=7))
    assert read_settings(None) == Settings()
    assert read_settings(None, base) is base


def test_a_file_changes_what_it_names() -> None:
    assert read(SEED) == Settings(
        reactors=ReactorsSettings(recovery=ReactorSettings(20.0, 5.0)),
        writer=WriterSettings(batch_moves=500),
        limits=Limits(payload_bytes=1024),
    )


def test_the_rest_stays_as_the_base_has_it() -> None:
    base = Settings(limits=Limits(payload_bytes=7, json_depth=9), sqlite=SqliteSettings(readers=2))
    assert read(SEED, base) == replace(
        read(SEED), limits=Limits(payload_bytes=1024, json_depth=9), sqlite=base.sqlite
    )


@pytest.mark.parametrize(
    "text", ["", "# nothing\n", "tape:\n", "tape: {}", "tape:\n  writer:\n    # batch_moves: 1\n"]
)
def test_what_says_nothing_changes_nothing(text: str) -> None:
    assert read(text) == Settings()


def test_the_named_file_then_the_environment_then_this_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for number, name in enumerate(("named.yaml", "environment.yaml", "tape.yaml"), start=1):
        Path(name).write_text(f"tape: {{limits: {{shards: {number}}}}}")
    assert read_settings(None).limits.shards == 3
    monkeypatch.setenv("TAPE_CONFIG", "environment.yaml")
    assert read_settings(None).limits.shards == 2
    assert read_settings(Path("named.yaml")).limits.shards == 1
    monkeypatch.setenv("TAPE_CONFIG", "")
    assert read_settings(None).limits.shards == 3


def test_a_file_that_was_named_has_to_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidArgument, match=r"nowhere\.yaml: cannot be read: No such file"):
        read_settings(Path("nowhere.yaml"))
    with pytest.raises(InvalidArgument, match="Is a directory"):
        read_settings(Path())
    monkeypatch.setenv("TAPE_CONFIG", "gone.yaml")
    with pytest.raises(InvalidArgument, match=r"gone\.yaml: .* TAPE_CONFIG"):
        read_settings(None)


@pytest.mark.parametrize("key", FLAGS)
def test_each_flag_can_be_said(key: str) -> None:
    for text, expected in (("true", True), ("false", False)):
        said: dict[str, object] = {k: value for k, _kind, value in leaves(read(nested(key, text)))}
        assert said[key] is expected
    for text in ("'true'", "1", "yes", "", "[true]"):
        assert "is not true or false" in str(refused(nested(key, text)))


@pytest.mark.parametrize("key", [key for key in LEAVES if key not in (*NUMBERS, *FLAGS)])
def test_each_text_can_be_said(key: str) -> None:
    kind, _default = LEAVES[key]
    text, expected = ("a.b", "a.b") if kind is str else ("[a.>, b]", ("a.>", "b"))
    said: dict[str, object] = {k: value for k, _kind, value in leaves(read(nested(key, text)))}
    assert said[key] == expected
    assert refused(nested(key, "{a: 1}")).field == key
    assert refused(nested(key, "")).field == key


@pytest.mark.parametrize("key", NUMBERS)
def test_each_number_can_be_said(key: str) -> None:
    kind, default = LEAVES[key]
    allowed = range_of(key)
    another = default + 1 if allowed.holds(default + 1) else kind(allowed.most)
    said = {k: value for k, _kind, value in leaves(read(nested(key, str(another))))}
    assert said == {k: value for k, (_kind, value) in LEAVES.items()} | {key: another}
    assert type(said[key]) is kind
    assert read(nested(key, str(default))) == Settings(), "the default is within the range"
    for beyond in ("-1", str(range_of(key).most + 1), "nan"):
        assert refused(nested(key, beyond)).field == key


def test_eachrange_of_is_that_of_a_setting() -> None:
    used = {id(range_of(key)) for key in NUMBERS}
    assert [end for end in RANGES if not any(key.endswith(end) for key in NUMBERS)] == []
    assert used == {id(allowed) for allowed in RANGES.values()}


def test_numbers_are_those_of_python() -> None:
    assert read("tape: {limits: {shards: 010}}").limits.shards == 10
    assert read("tape: {writer: {queue_wait_s: 1e2}}").writer.queue_wait_s == 100.0
    assert "1:30 is not a number" in str(refused("tape: {writer: {queue_wait_s: 1:30}}"))


WRONG = [
    ("tape: {writer: {batch_move: 1}}", "tape.writer.batch_move",
     "there is no such key; did you mean batch_moves? known here: queue_moves, queue_bytes, "),
    ("tape: {zzz: 1}", "tape.zzz", "there is no such key; known here: limits, writer, postgres, "),
    ("tapes: {}", "tapes", "did you mean tape? known here: tape"),
    ("tape: {? [a] : 1}", "tape.a list", "there is no such key"),
    ("tape: {<<: {writer: {}}}", "tape.<<", "there is no such key"),
    ("tape: 5", "tape", "5 is not a section; known here: limits"),
    ("tape: {writer: [1]}", "tape.writer", "a list is not a section; known here: queue_moves"),
    ("- tape", "desk.yaml", "a list is not a section; known here: tape"),
    ("tape: {limits: {shards: }}", "tape.limits.shards", "an empty value is not a whole number"),
    ("tape: {limits: {shards: '5'}}", "tape.limits.shards", "5 in quotes is not a whole number"),
    ("tape: {limits: {shards: 5.0}}", "tape.limits.shards", "5.0 is not a whole number"),
    ("tape: {limits: {shards: yes}}", "tape.limits.shards", "yes is not a whole number"),
    ("tape: {limits: {shards: {a: 1}}}", "tape.limits.shards", "a mapping is not a whole number"),
    ("tape: {limits: {shards: [1]}}", "tape.limits.shards", "a list is not a whole number"),
    ("tape: {limits: {shards: !mine 5}}", "tape.limits.shards", "is not a whole number"),
    ("tape: {limits: {shards: 0}}", "tape.limits.shards", "0 is out of range; from 1 to 2"),
    ("tape: {limits: {shards: " + "9" * 5000 + "}}", "tape.limits.shards", "9… is not a whole"),
    ("tape: {writer: {queue_wait_s: .inf}}", "tape.writer.queue_wait_s", ".inf is not a number"),
    ("tape: {writer: {queue_wait_s: -1}}", "tape.writer.queue_wait_s", "0 or from 0.001 to 604800"),
    ("tape: {sqlite: {poll_s: 0}}", "tape.sqlite.poll_s", "0 is out of range; from 0.001 to"),
    ("tape: {limits: {shards: 5, shards: 5}}", "tape.limits.shards", "is listed twice"),
    ("tape: {writer: {}, writer: {}}", "tape.writer", "is listed twice"),
    ("tape: {}\ntape: {}", "tape", "is listed twice; remove one (desk.yaml, line 2)"),
    ("tape: {reactors: {agent: {heartbeat_s: 30}}}", "tape.reactors.agent.heartbeat_s",
     "heartbeat_s is 30 and must be below two thirds of lease_ttl_s, which is 30"),
    ("tape: {reactors: {outbox: {lease_ttl_s: 5, heartbeat_s: 8}}}",
     "tape.reactors.outbox.heartbeat_s", "heartbeat_s is 8 and must be below two thirds of"),
    ("tape: {reactors: {outbox: {heartbeat_s: 20}}}",
     "tape.reactors.outbox.heartbeat_s", "or a lease is given up before it is renewed"),
    ("tape: {reactors: {backoff_first_s: 11}}", "tape.reactors.backoff_first_s", "only 10"),
    ("tape: {reactors: {backoff_most_s: 0.5}}", "tape.reactors.backoff_most_s",
     "backoff_first_s is 1 and backoff_most_s only 0.5"),
    ("tape: {stream: {subjects: [a, {b: 1}]}}", "tape.stream.subjects[1]", "is not a text"),
    ("tape: {outbox: {nats: 'nats://me:secret@host'}}", "tape.outbox.nats", "contains a login"),
    ("tape: {outbox: {keep_s: 10}}", "tape.outbox",
     "keep_s of tape.outbox is 10 and must not be below duplicate_window_s of tape.stream, which"),
    ("tape: {stream: {duplicate_window_s: 90000}}", "tape.stream", "is 86400 and must not be"),
    ("tape: {stream: {subjects: a}}", "tape.stream.subjects", "a is not a list of texts"),
    ("tape: {", "desk.yaml", "is not YAML: line 1, column 8: "),
    ("tape:\n\twriter:", "desk.yaml", "is not YAML: line 2, column 1: "),
    ("tape: {}\n---\ntape: {}", "desk.yaml", "but found another document"),
    ("tape: *nobody", "desk.yaml", "found undefined alias"),
    ("\x07", "desk.yaml", "is not YAML: unacceptable character"),
    ("[" * 3000, "desk.yaml", "nested too deeply"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "field", "says"), WRONG, ids=[text[:40] for text, *_ in WRONG])
def test_what_is_refused(text: str, field: str, says: str) -> None:
    fault = refused(text)
    assert fault.field == field
    assert says in str(fault)


def test_a_refusal_says_in_which_line() -> None:
    fault = refused("tape:\n  writer:\n    # fewer\n    batch_moves: few\n")
    assert str(fault).endswith("(desk.yaml, line 4)")


def test_the_base_can_be_at_odds_with_the_file() -> None:
    base = Settings(reactors=ReactorsSettings(agent=ReactorSettings(heartbeat_s=10.0)))
    fault = refused("tape: {reactors: {agent: {lease_ttl_s: 6}}}", base)
    assert fault.field == "tape.reactors.agent.lease_ttl_s"


def test_an_alias_that_holds_itself_ends() -> None:
    assert refused("tape: &all {reactors: *all}").field == "tape.reactors.reactors"


def test_yaml_is_loaded_only_for_a_file() -> None:
    code = (
        "import sys, tape.cli.target\n"
        "from tape.settings.file import read_settings\n"
        "read_settings(None)\n"
        "assert 'yaml' not in sys.modules\n"
        "open('tape.yaml', 'w').close()\n"
        "read_settings(None)\n"
        "assert 'yaml' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_key_that_is_gone_is_told_of_and_does_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "old.yaml"
    file.write_text("tape:\n  reactors:\n    timers: {lease_ttl_s: 30}\n    runs: 7\n")
    assert read_yaml(file, Settings()) == Settings(reactors=ReactorsSettings(runs=7))
    (warning,) = caplog.messages
    assert f"tape.reactors.timers ({file}, line 3) no longer has an effect" in warning
