"""A store that can only be read: on a read-only mount, for root and everybody."""

import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import tape as package
from tests.integration.cli.command import Done

NAMESPACE = ("unshare", "--mount", "--map-root-user") if os.geteuid() else ("unshare", "--mount")
MOUNT = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" "$1" && shift && exec "$@"'
Mounted = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def mounted(tmp_path_factory: pytest.TempPathFactory) -> Mounted:
    """Runs a command with a folder mounted read-only, seen by that command alone."""

    def run(folder: Path, *command: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*NAMESPACE, "sh", "-c", MOUNT, "sh", str(folder), *command],
            capture_output=True, text=True, timeout=60, check=False, cwd="/",
        )  # fmt: skip

    tried = tmp_path_factory.mktemp("tried")
    if shutil.which("unshare") is None or run(tried, "true").returncode:
        pytest.skip("nothing can be mounted here")
    assert run(tried, "touch", str(tried / "x")).returncode
    return run


@pytest.fixture(params=["closed", "open"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A store that was closed, without a log; and one that a program works on meanwhile."""
    path = tmp_path / "store" / "tape.db"
    path.parent.mkdir()
    with package.connect(f"sqlite:{path}") as client:
        client.record("order.placed", {"n": 1})
        client.start_run("app")
        if request.param == "open":
            yield path
    if request.param == "closed":
        assert [found.name for found in path.parent.iterdir()] == ["tape.db"]
        yield path


# One process for all commands: starting one for each costs more than they do.
EACH = """
import contextlib, io, json, sys
from tape.cli.root import run
for arguments in json.loads(sys.argv[1]):
    out, err = (io.TextIOWrapper(io.BytesIO(), write_through=True) for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(arguments)
    print(json.dumps([code, *(each.buffer.getvalue().decode() for each in (out, err))]))
"""


def typed(mounted: Mounted, store: Path, *commands: str) -> list[Done]:
    lines = [[*command.split(), "--store", f"sqlite:{store}"] for command in commands]
    ended = mounted(store.parent, sys.executable, "-c", EACH, json.dumps(lines))
    assert ended.returncode == 0, ended.stderr
    return [Done(*json.loads(line)) for line in ended.stdout.splitlines()]


def test_it_is_read_and_not_written(mounted: Mounted, store: Path) -> None:
    before = sorted(found.name for found in store.parent.iterdir())
    tail, runs, doctor, *refused = typed(
        mounted, store, "tail --no-follow --json", "runs list --json", "doctor --json",
        "record order.placed", "values set n k 1",
    )  # fmt: skip
    assert (tail.code, tail.err) == (0, "")
    assert tail.records[0]["event_type"] == "order.placed"
    assert [run["status"] for run in runs.records] == ["runnable"]
    assert doctor.code == 0, doctor.out
    assert "can only be read here" in doctor.out
    for done in refused:
        assert (done.code, done.out) == (1, "")
        assert done.err == (
            f"error: {store} can only be read: it, its folder or its file system is read-only; "
            "nothing was written\n"
        )
    assert sorted(found.name for found in store.parent.iterdir()) == before


def test_a_log_without_its_index_is_refused(mounted: Mounted, tmp_path: Path) -> None:
    """As in a copy of the files of a program that was killed: to leave out the log would lie."""
    folder = tmp_path / "copy"
    folder.mkdir()
    live = tmp_path / "tape.db"
    with package.connect(f"sqlite:{live}") as client:
        client.record("order.placed")
        for name in ("tape.db", "tape.db-wal"):
            shutil.copy(tmp_path / name, folder / name)
    path = folder / "tape.db"
    (refused,) = typed(mounted, path, "tail --no-follow")
    assert (refused.code, refused.out) == (1, "")
    assert "it has a log (-wal) without its index (-shm); copy both files" in refused.err


def test_spark_reads_it(mounted: Mounted, store: Path) -> None:
    """As its workers do: through a driver of their own."""
    program = (
        "import sys; from pathlib import Path; from tape.stores.sqlite.bulk import SqliteReader; "
        "reader = SqliteReader(Path(sys.argv[1])); print(reader.bounds().head); reader.close()"
    )
    read = mounted(store.parent, sys.executable, "-c", program, str(store))
    assert (read.stdout, read.stderr) == ("2\n", "")


def test_a_store_that_lacks_a_migration_is_refused(mounted: Mounted, tmp_path: Path) -> None:
    path = tmp_path / "tape.db"
    with package.connect(f"sqlite:{path}") as client:
        client.info()
    with contextlib.closing(sqlite3.connect(path)) as file, file:
        file.execute("DELETE FROM tape_schema_steps")
    for refused in typed(mounted, path, "tail --no-follow", "record order.placed"):
        assert refused.code == 1
        assert "lacks migrations" in refused.err
        assert "tape migrate" in refused.err
