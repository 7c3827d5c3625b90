"""The import rules are code: a planted violation of each is found."""

import shutil
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PLANTED = {
    "model/entry.py": "import time",
    "journal/batch.py": "import tape.predicates",
    "bus.py": "import sqlite3",
    "stores/head.py": "import grpc",
    "ports/store.py": "import tape.testing.postgres",
    "api/auth.py": "import tape.client.face",
    "reactions/__init__.py": "import httpx",
}
BROKEN = {
    "The model is pure: no I/O, no clock, no threads BROKEN",
    "Downward only (DESIGN section 10) BROKEN",
    "Database drivers stay in stores BROKEN",
    "Broker clients stay in brokers BROKEN",
    "gRPC stays in wire, api and client BROKEN",
    "Nothing ships that leans on the testing kit BROKEN",
}
EXPLAINED = ("tape.journal is not allowed to import tape.predicates", "tape.api is not allowed")


def test_planted_violations_are_found(tmp_path: Path) -> None:
    package = tmp_path / "tape"
    shutil.copytree(REPOSITORY / "src" / "tape", package, ignore=shutil.ignore_patterns("*.pyc"))
    for name, line in PLANTED.items():
        module = package / name
        module.write_text(f"{module.read_text()}\n{line}\n")
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [linter, "--no-cache", "--config", REPOSITORY / "pyproject.toml"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    judged = {line.partition(" (1 ignored")[0] for line in done.stdout.splitlines()}
    assert {line for line in judged if line.endswith("BROKEN")} == BROKEN
    for sentence in EXPLAINED:
        assert sentence in done.stdout
