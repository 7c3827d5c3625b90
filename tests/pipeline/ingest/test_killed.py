"""kill -9 of drivers and workers during ingest: journal and quarantine are as if undisturbed."""

import os
import random
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import tape
from tests.pipeline.write.killing import Sign, Victims, run_killed
from tests.pipeline.write.looking import looking
from tests.pipeline.write.test_killed import FILES_MTIME, at_random, recording, staged

Rows = list[tuple[str, str]]


def prepare(folder: Path, files: int, rows: int) -> tuple[Rows, Rows]:
    """The input; what it makes of the journal, and of the quarantine."""
    folder.mkdir()
    good: Rows = []
    bad: Rows = []
    for number in range(files):
        file = folder / f"{number}.json"
        lines = [f'{{"row":{row}' + ("}" if row % 100 else "") for row in range(rows)]
        file.write_text("\n".join(lines) + "\n")
        os.utime(file, times=(FILES_MTIME + number,) * 2)
        for row, line in enumerate(lines):
            (good if row % 100 else bad).append((f"file{file}/{row + 1}", line))
    return good, bad


def command(url: str, folder: Path) -> list[str]:
    return [
        "-m", "tape.cli", "pipeline", "ingest", "files", "--store", url, "--path",
        str(folder / "in"), "--checkpoint", str(folder / "point"), "--quarantine",
        str(folder / "bad"), "--event-type", "e", "--max-per-trigger", "1", "--master",
        "local[2,4]", "--json",
    ]  # fmt: skip


def left(url: str, folder: Path) -> tuple[Rows, Rows]:
    with tape.connect(url) as client:
        good = [(entry.idempotency_key, entry.payload_json) for entry in client.follow(live=False)]
    rows = [
        row
        for file in (folder / "bad").rglob("*.parquet")
        for row in pq.ParquetFile(file).read().to_pylist()
    ]
    return good, sorted((row["position"], row["raw"]) for row in rows)


def check(url: str, folder: Path, files: int, kills: Sequence[tuple[Victims, Sign]]) -> None:
    good, bad = prepare(folder / "in", files, rows=6_000)
    assert run_killed(command(url, folder), kills) >= 2
    assert left(url, folder) == (good, sorted(bad))


@pytest.mark.middle
@pytest.mark.timeout(300)
def test_killed_once(sqlite_url: str, tmp_path: Path) -> None:
    tape.connect(sqlite_url).close()
    with looking(sqlite_url) as look:
        check(sqlite_url, tmp_path, 2, [("everything", recording(look))])


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", ["sqlite", "migrated_postgres"])
def test_killed_ten_times(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    url: str = request.getfixturevalue(f"{kind}_url")
    tape.connect(url).close()
    chance = random.Random(kind)
    with looking(url) as look:
        victims: list[Victims] = ["driver", "everything", "workers", "driver", "everything"]
        signs = [recording(look), staged(look), recording(look), staged(look)]
        kills = [
            (victim, signs[n] if n < len(signs) else at_random(look, chance))
            for n, victim in enumerate(victims * 2)
        ]
        check(url, tmp_path, 14, kills)
