"""`tape config`, and the settings file that the other commands obey."""

import json
import re
from dataclasses import asdict
from pathlib import Path

import pytest

from tape.cli.root import run
from tape.programs.worker import WorkerOptions
from tape.settings import DispatcherSettings, ReactorSettings, ReactorsSettings, Settings
from tape.settings.file import read_settings
from tests.integration.cli.command import start, tape
from tests.integration.docs.pages import ROOT, Saved, blocks

FILE = """
tape:
  limits: {payload_bytes: 20, predicate_bytes: 5}
  sqlite: {poll_s: 0.25}
"""
WRONG = "tape: {limits: {payload: 20}}"
REFUSAL = "error: tape.limits.payload: there is no such key; did you mean payload_bytes?"
STORE = ("--store", "sqlite:tape.db")
LONG = ("--payload", '{"text": "more than twenty bytes"}')


def test_the_defaults_are_shown(tmp_path: Path) -> None:
    done = tape("config", "show", folder=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("# the defaults\ntape:\n  limits:\n    payload_bytes: 1048576\n")
    (record,) = tape("config", "show", "--json", folder=tmp_path).records
    assert record == json.loads(json.dumps({"tape": asdict(Settings())}))


def test_what_is_shown_is_a_settings_file(tmp_path: Path) -> None:
    (tmp_path / "tape.yaml").write_text(FILE)
    done = tape("config", "show", folder=tmp_path)
    assert done.out.startswith("# tape.yaml on top of the defaults\n")
    assert "    payload_bytes: 20  # default 1048576\n    json_depth: 64\n" in done.out
    assert "    poll_s: 0.25  # default 0.2\n" in done.out
    shown = tmp_path / "shown.yaml"
    shown.write_text(done.out)
    assert read_settings(shown) == read_settings(tmp_path / "tape.yaml") != Settings()


def test_a_file_is_found_by_option_environment_or_name(tmp_path: Path) -> None:
    for number, name in enumerate(("option.yaml", "environment.yaml", "tape.yaml"), start=1):
        (tmp_path / name).write_text(f"tape: {{limits: {{shards: {number}}}}}")

    def shards(*arguments: str, **env: str) -> int:
        (record,) = tape(*arguments, "--json", folder=tmp_path, **env).records
        found: int = record["tape"]["limits"]["shards"]
        return found

    named = ("--config", "option.yaml")
    assert shards("config", "show") == 3
    assert shards("config", "show", TAPE_CONFIG="environment.yaml") == 2
    assert shards("config", "show", *named, TAPE_CONFIG="environment.yaml") == 1
    assert shards(*named, "config", "show") == 1


def test_a_file_is_checked(tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text(FILE)
    (tmp_path / "tape.yaml").write_text(WRONG)
    done = tape("config", "check", "good.yaml", folder=tmp_path)
    assert done == (0, "good.yaml: in order\n", "")
    done = tape("config", "check", "tape.yaml", folder=tmp_path)
    assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1)
    assert done.err.startswith(REFUSAL)
    assert done.err.endswith("(tape.yaml, line 1)\n")
    done = tape("config", "check", "none.yaml", folder=tmp_path)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: none.yaml: cannot be read: No such file or directory")


@pytest.mark.parametrize(
    "arguments",
    [
        ("config", "show"),
        ("serve", *STORE, "--grpc", "127.0.0.1:0", "--no-http"),
        ("worker", "-m", "json", *STORE),
        ("relay", *STORE, "--sink", "log:", "--no-follow"),
        ("record", "x", *STORE),
        ("tail", *STORE, "--no-follow"),
        ("migrate", *STORE),
        ("doctor", *STORE),
    ],
    ids=lambda arguments: arguments[0],
)
def test_no_command_goes_on_with_a_wrong_file(arguments: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text(WRONG)
    done = tape(*arguments, "--config", "wrong.yaml", folder=tmp_path)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(REFUSAL)
    assert not (tmp_path / "tape.db").exists()


def test_a_server_obeys_the_file(sqlite_url: str, tmp_path: Path) -> None:
    (tmp_path / "server.yaml").write_text(FILE)
    arguments = ("serve", "--store", sqlite_url, "--grpc", "127.0.0.1:0", "--no-http")
    with start(*arguments, "--config", "server.yaml", folder=tmp_path) as server:
        assert server.stdout is not None
        url = f"tape://{server.stdout.readline().split()[1]}"
        done = tape("record", "x", *LONG, "--url", url, folder=tmp_path)
        assert (done.code, done.out) == (2, "")
        assert "the limit is 20" in done.err
        server.terminate()
        out, err = server.communicate(timeout=30)
    assert (server.returncode, out, err) == (0, "", "")


def test_an_embedded_client_and_the_relay_obey_the_file(tmp_path: Path) -> None:
    assert tape("record", "x", *LONG, *STORE, folder=tmp_path).code == 0
    (tmp_path / "tape.yaml").write_text(FILE)
    assert "the limit is 20" in tape("record", "x", *LONG, *STORE, folder=tmp_path).err
    relay = ("relay", *STORE, "--sink", "log:", "--no-follow", "--where", "payload.n > 2")
    done = tape(*relay, folder=tmp_path)
    assert (done.code, done.out) == (2, "")
    assert "the limit is 5" in done.err


def test_what_a_worker_is_told_counts_more_than_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("worker.yaml").write_text(
        "tape: {reactors: {runs: 7}, dispatcher: {concurrency: 5, threads: 6, grace_s: 4}}"
    )
    seen: list[Settings] = []

    def run_worker(options: WorkerOptions, **_callbacks: object) -> None:
        seen.append(options.settings)

    monkeypatch.setattr("tape.cli.worker.run_worker", run_worker)
    named = ("--config", "worker.yaml")
    assert run(["worker", "-m", "json", *named, "--threads", "9", "--grace", "0"]) == 0
    assert run(["worker", "-m", "json"]) == 0
    assert seen == [
        Settings(
            dispatcher=DispatcherSettings(concurrency=5, threads=9, grace_s=0.0),
            reactors=ReactorsSettings(runs=7),
        ),
        Settings(),
    ]


def test_the_files_on_the_page_are_in_order(tmp_path: Path) -> None:
    """All of its YAML, but for what says that it is for another program."""
    written = [
        block for block in blocks(ROOT / "docs/operating.md", {}) if block.language == "yaml"
    ]
    others = [block.reason for block in written if block.mark]
    assert others == ["a part of a manifest for Kubernetes", "a rule for Kubernetes"]
    files = [step for block in written for step in block.steps]
    assert len(files) == len(written) - len(others) > 0
    for file in files:
        assert isinstance(file, Saved)
        (tmp_path / "page.yaml").write_text(file.source)
        assert read_settings(tmp_path / "page.yaml") != Settings()


def test_the_knobs_of_a_lease_are_those_of_the_code() -> None:
    page = (ROOT / "docs/operating.md").read_text()
    table = page[page.index("| knob |") :].split("\n\n")[0]
    reactor = asdict(ReactorSettings())
    shared = {name: value for name, value in asdict(ReactorsSettings()).items()
              if not isinstance(value, dict)}  # fmt: skip
    named = {name for name in re.findall(r"`(\w+)`", table) if name.endswith("_s")}
    assert named == {*reactor, "backoff_first_s", "backoff_most_s"}
    assert named <= {*reactor, *shared}
    assert f"| {reactor['lease_ttl_s']:g} s |" in table
    assert f"{shared['backoff_first_s']:g} to {shared['backoff_most_s']:g} s |" in table
