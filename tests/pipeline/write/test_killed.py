"""kill -9 of drivers and workers while a stream is written: the journal is as if undisturbed.

The rows have no idempotency key, so nothing but the epochs keeps them from being there twice.
"""

import os
import random
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tape
from tests.pipeline.write.killing import Sign, Victims, run_killed
from tests.pipeline.write.looking import Look, looking

DRIVER = str(Path(__file__).with_name("crash_driver.py"))
FILES_MTIME = 1_700_000_000


def prepare(folder: Path, files: int, rows: int) -> list[tuple[str, str]]:
    """The input, and what it makes of the journal."""
    folder.mkdir()
    expected: list[tuple[str, str]] = []
    for number in range(files):
        ids = [f"{number}-{row}" for row in range(rows)]
        texts = [f'{{"row":{row}}}' for row in range(rows)]
        table = pa.table({"event_type": ["e"] * rows, "entity_id": ids, "payload_json": texts})
        pq.write_table(table, folder / f"{number}.parquet")
        os.utime(folder / f"{number}.parquet", times=(FILES_MTIME + number,) * 2)
        expected += zip(ids, texts, strict=True)
    return expected


def written(url: str) -> list[tuple[str, str]]:
    with tape.connect(url) as client:
        return [(entry.entity_id, entry.payload_json) for entry in client.follow(live=False)]


def staged(look: Look) -> Sign:
    """Something is staged that nobody has registered yet."""
    return lambda: (
        look("SELECT count(*) FROM tape_write_chunks") > 0
        and not look("SELECT count(*) FROM tape_write_lists")
    )


def recording(look: Look) -> Sign:
    """An epoch is registered and recorded in part."""
    return lambda: (
        look("SELECT count(*) FROM tape_writes WHERE 0 < recorded AND recorded < chunks") > 0
    )


def at_random(look: Look, chance: random.Random) -> Sign:
    """Some time after anything is staged."""
    wait_s = chance.uniform(0, 3)
    since: list[float] = []

    def sign() -> bool:
        if not since and look("SELECT count(*) FROM tape_write_chunks") > 0:
            since.append(time.monotonic())
        return bool(since) and time.monotonic() - since[0] > wait_s

    return sign


@pytest.mark.middle
@pytest.mark.timeout(600)
def test_killed_once(sqlite_url: str, tmp_path: Path) -> None:
    expected = prepare(tmp_path / "in", files=2, rows=9_000)
    tape.connect(sqlite_url).close()
    command = [DRIVER, sqlite_url, str(tmp_path / "in"), str(tmp_path / "checkpoint")]
    with looking(sqlite_url) as look:
        assert run_killed(command, [("driver", recording(look))]) >= 2
        assert look("SELECT count(*) FROM tape_write_chunks") == 0
    assert written(sqlite_url) == expected


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", ["sqlite", "migrated_postgres"])
def test_killed_ten_times(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    url: str = request.getfixturevalue(f"{kind}_url")
    expected = prepare(tmp_path / "in", files=14, rows=9_000)
    tape.connect(url).close()
    command = [DRIVER, url, str(tmp_path / "in"), str(tmp_path / "checkpoint")]
    chance = random.Random(kind)
    with looking(url) as look:
        victims: list[Victims] = ["driver", "everything", "workers", "driver", "everything"]
        signs = [recording(look), recording(look), staged(look), staged(look)]
        kills = [
            (victim, signs[n] if n < len(signs) else at_random(look, chance))
            for n, victim in enumerate(victims * 2)
        ]
        assert run_killed(command, kills) > 5
        assert look("SELECT count(*) FROM tape_write_chunks") == 0
    assert written(url) == expected
