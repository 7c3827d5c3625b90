"""The import rules are code: they name every room, and a planted violation of each is found."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[2]
CONTRACTS = {
    contract["name"]: contract
    for contract in tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"][
        "importlinter"
    ]["contracts"]
}
LAYERS = "Downward only (DESIGN section 10)"
LAYERS_OF_RUNS = "Runs: driving knows neither reactors nor looking"
# By rule, the rooms that are excepted from it.
MAY = {
    "Database drivers stay in stores": {"stores"},
    "gRPC stays in wire, api and client": {"wire", "api", "client"},
    "Web frameworks stay in api": {"api"},
    "Broker clients stay in brokers and sources": {"brokers", "sources"},
    "The HTTP client stays in brokers": {"brokers"},
    "Encryption stays in the wallet": {"wallet"},
    "Nothing ships that leans on the testing kit": {"cli"},  # `tape doctor` imports all of tape
    "Spark stays in the pipeline": {"pipeline", "spark", "predicates"},
}
ONE_ROOM = {"The model is pure: no I/O, no clock, no threads"}
PLANTED = {
    "model/entry.py": "import time",
    "journal/batch.py": "import tape.predicates",
    "bus/bus.py": "import sqlite3",
    "brokers/webhook.py": "import cryptography",
    "stores/head.py": "import grpc",
    "ports/store.py": "import tape.testing.runs",
    "api/auth.py": "import tape.client.face",
    "reactions/__init__.py": "import httpx",
    "subscriptions/__init__.py": "import nats",
    "runs/driving/pen.py": "import tape.runs.looking.timeline",
}
BROKEN = {
    "The model is pure: no I/O, no clock, no threads BROKEN",
    "Downward only (DESIGN section 10) BROKEN",
    "Database drivers stay in stores BROKEN",
    "Broker clients stay in brokers and sources BROKEN",
    "The HTTP client stays in brokers BROKEN",
    "Encryption stays in the wallet BROKEN",
    "gRPC stays in wire, api and client BROKEN",
    "Nothing ships that leans on the testing kit BROKEN",
    "Runs: driving knows neither reactors nor looking BROKEN",
}
EXPLAINED = ("tape.journal is not allowed to import tape.predicates", "tape.api is not allowed")


def copy_of_the_package(folder: Path) -> Path:
    package = folder / "tape"
    shutil.copytree(REPOSITORY / "src" / "tape", package, ignore=shutil.ignore_patterns("*.pyc"))
    return package


def lint_imports(folder: Path) -> "subprocess.CompletedProcess[str]":
    linter = Path(sys.executable).with_name("lint-imports")
    return subprocess.run(
        [linter, "--no-cache", "--config", REPOSITORY / "pyproject.toml"],
        cwd=folder,
        env={"PYTHONPATH": str(folder), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_room_that_the_layers_forget_fails_the_build(tmp_path: Path) -> None:
    (copy_of_the_package(tmp_path) / "attic.py").write_text("")
    done = lint_imports(tmp_path)
    assert done.returncode == 1, done.stderr
    assert "not listed as layers" in done.stdout
    assert "attic" in done.stdout


def test_planted_violations_are_found(tmp_path: Path) -> None:
    package = copy_of_the_package(tmp_path)
    for name, line in PLANTED.items():
        module = package / name
        module.write_text(f"{module.read_text()}\n{line}\n")
    done = lint_imports(tmp_path)
    assert done.returncode == 1, done.stderr
    judged = {line.partition(" (1 ignored")[0] for line in done.stdout.splitlines()}
    assert {line for line in judged if line.endswith("BROKEN")} == BROKEN
    for sentence in EXPLAINED:
        assert sentence in done.stdout


@pytest.mark.parametrize(
    "client", ["google.pubsub_v1", "google.auth", "google.api_core.exceptions"]
)
@pytest.mark.parametrize(("room", "may"), [("brokers", True), ("sources", True), ("wire", False)])
def test_googles_client_stays_in_brokers_and_sources(client: str, room: str, may: bool) -> None:
    """Its name is not its own, so ruff looks after it and not the import rules."""
    ruff = Path(sys.executable).with_name("ruff")
    done = subprocess.run(
        [ruff, "check", "--select", "TID251", "--stdin-filename", f"src/tape/{room}/a.py", "-"],
        cwd=REPOSITORY, input=f"import {client}\n", capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode == 0) == may, done.stdout
    assert may or "brokers and sources only" in done.stdout


def modules_of(folder: Path) -> set[str]:
    """The modules and packages in a folder, by name."""
    return {
        path.stem
        for path in folder.iterdir()
        if (path.suffix == ".py" and path.stem != "__init__") or (path / "__init__.py").is_file()
    }


ROOMS = modules_of(REPOSITORY / "src" / "tape")


def test_the_layers_name_every_room_once() -> None:
    layers: list[str] = CONTRACTS[LAYERS]["layers"]
    named = [room for layer in layers for room in re.split(r" \| ", layer)]
    assert sorted(named) == sorted(ROOMS - {"testing"})


def test_every_rule_is_looked_at_here() -> None:
    assert CONTRACTS.keys() == {LAYERS, LAYERS_OF_RUNS, *MAY, *ONE_ROOM}


@pytest.mark.parametrize("name", MAY)
def test_a_rule_holds_for_every_room_that_is_not_excepted(name: str) -> None:
    contract: dict[str, Any] = CONTRACTS[name]
    named = {module.removeprefix("tape.") for module in contract["source_modules"]}
    expected = ROOMS - MAY[name] - {"testing"}
    if "predicates" in MAY[name]:
        parts = modules_of(REPOSITORY / "src" / "tape" / "predicates")
        expected |= {f"predicates.{part}" for part in parts if "spark" not in part}
    assert named - {"pyspark_tape"} == expected
