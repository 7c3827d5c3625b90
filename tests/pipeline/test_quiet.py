"""A job in a process of its own: what it prints, and that Java prints nothing."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tape

JOBS = """
store: sqlite:tape.db
jobs:
  - archive: {lake: lake}
  - ingest: {source: files, format: parquet, path: in, checkpoint: c, quarantine: q}
"""


@pytest.mark.middle
@pytest.mark.timeout(300)
def test_standard_error_has_what_is_wrong_and_nothing_else(tmp_path: Path) -> None:
    with tape.connect(f"sqlite:{tmp_path / 'tape.db'}") as client:
        client.record("x")
    (tmp_path / "jobs.yaml").write_text(JOBS)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.parquet").write_bytes(b"PAR1 this is no Parquet PAR1")
    env = {name: text for name, text in os.environ.items() if not name.startswith("TAPE_")}
    command = [sys.executable, "-m", "tape.cli", "pipeline", "run", "jobs.yaml"]
    done = subprocess.run(
        [*command, "--master", "local[2]"], cwd=tmp_path, env=env, capture_output=True, text=True,
        check=False, timeout=280,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    told = done.stdout.splitlines()
    assert told[0].startswith("archive of sqlite:tape.db: done in ")
    assert told[1:4] == ["  archived       1", "  files          1", "  deleted        0"]
    progress = re.compile(r"archive: [\d,]+ of [\d,]+ entries")
    (said,) = (line for line in done.stderr.splitlines() if not progress.fullmatch(line))
    assert said.startswith("error: Spark failed: ")
    assert "a.parquet" in said
