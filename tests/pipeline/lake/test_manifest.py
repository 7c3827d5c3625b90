"""The log of a lake: whole commits, one by each number, and cheap to read."""

import json
import threading
from pathlib import Path

import pytest

from tape.errors import InvalidArgument, StoreMismatch, VersionMismatch
from tape.pipeline.jobs.archive.writing import small_groups
from tape.pipeline.lake.files import delete_orphans
from tape.pipeline.lake.log import WHOLE_EVERY, LakeLog, now_ms
from tape.pipeline.lake.manifest import (
    EMPTY,
    Commit,
    Lake,
    LakeFile,
    appended,
    compacted,
    follow,
    forgotten,
    from_record,
    to_record,
    whole,
)


def a_file(after: int, through: int, name: str = "", rows: int = 0) -> LakeFile:
    path = f"data/{name or f'{after}-{through}'}.parquet"
    rows = rows or through - after
    return LakeFile(path, after, through, rows, 10, after + 1, through, f"id{through}", 7)


def grown(*ends: int) -> Lake:
    lake, after = EMPTY, 0
    for end in ends:
        lake = follow(lake, step(lake, after, end))
        after = end
    return lake


def step(lake: Lake, after: int, through: int, name: str = "") -> Commit:
    files = [a_file(after, through, name)]
    return appended(
        lake, files, after=after, through=through, first_event_id=f"id{after + 1}", at_ms=1
    )


def touched(log: LakeLog, commit: Commit) -> Commit:
    (log.path / "data").mkdir(parents=True, exist_ok=True)
    for file in commit.add:
        (log.path / file.path).write_bytes(b"0123456789")
    return commit


def test_steps_follow_one_another() -> None:
    lake = grown(10, 25, 40)
    assert (lake.after, lake.through, lake.journal, lake.number) == (0, 40, "id1", 3)
    assert [file.after for file in lake.between(10, 26)] == [10, 25]
    with pytest.raises(VersionMismatch, match="another archive run"):
        step(lake, 25, 40)
    empty = follow(
        lake, appended(lake, [], after=40, through=60, first_event_id="", at_ms=1)
    )  # a range without entries has no file
    assert (empty.through, len(empty.files), empty.seam) == (60, 3, lake.files[-1])


def test_compaction_keeps_what_it_replaced_until_it_is_forgotten() -> None:
    lake = grown(10, 25, 40)
    old, new = lake.files[:2], a_file(0, 25, "large")
    smaller = follow(lake, compacted(lake, old, [new], at_ms=99))
    assert [file.path for file in smaller.files] == ["data/large.parquet", lake.files[2].path]
    assert dict(smaller.removed) == {file.path: 99 for file in old}
    with pytest.raises(VersionMismatch, match="compacted"):
        compacted(smaller, old, [new], at_ms=99)
    clean = follow(smaller, forgotten(smaller, [old[0].path], at_ms=100))
    assert dict(clean.removed) == {old[1].path: 99}


def test_a_commit_comes_back_as_it_was() -> None:
    lake = grown(10, 25)
    commit = compacted(lake, lake.files, [a_file(0, 25, "large")], at_ms=99)
    for one in (commit, whole(lake, commit)):
        record = json.loads(json.dumps(to_record(one)))
        assert from_record(record, one.number) == one
        assert follow(lake, from_record(record, one.number)) == follow(lake, commit)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"format": 2}, "upgrade"),
        ({"number": 7}, "says that it is 7"),
        ({"layout": "iceberg"}, "iceberg"),
        ({"through": None, "surprise": 1}, "surprise"),
        ({"add": [{"path": "x"}]}, "damaged"),
    ],
)
def test_what_is_no_commit_is_refused(change: dict[str, object], why: str) -> None:
    record = to_record(step(EMPTY, 0, 10)) | change
    with pytest.raises(StoreMismatch, match=why):
        from_record(json.loads(json.dumps(record, default=vars)), 1)


def test_a_gap_in_the_files_is_refused() -> None:
    lake = grown(10)
    overlapping = Commit(2, 1, "id1", "parquet", 0, 30, add=(a_file(8, 30),))
    with pytest.raises(StoreMismatch, match="does not go on"):
        follow(lake, overlapping)
    with pytest.raises(StoreMismatch, match="does not follow"):
        follow(lake, Commit(4, 1, "id1", "parquet", 0, 10))


def test_reading_is_cheap_and_goes_back_to_a_whole_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = LakeLog(tmp_path / "lake")
    lake = log.begin("parquet")
    for number in range(3 * WHOLE_EVERY + 5):
        lake = log.commit(lake, lambda now, n=number: touched(log, step(now, n, n + 1)))  # type: ignore[misc]
    assert log.read() == lake
    read: list[int] = []
    load = log._load

    def noted(number: int) -> Commit:
        read.append(number)
        return load(number)

    monkeypatch.setattr(log, "_load", noted)
    assert log.read() == lake
    assert len(read) <= WHOLE_EVERY
    log.tidy()
    assert len(list((tmp_path / "lake" / "_tape").iterdir())) <= 3 * WHOLE_EVERY
    assert LakeLog(tmp_path / "lake").read() == lake


def test_of_many_who_commit_at_once_each_number_is_one(tmp_path: Path) -> None:
    log = LakeLog(tmp_path / "lake")
    lake = log.begin("parquet")
    wins: list[str] = []
    refused: list[VersionMismatch] = []

    def archive(name: str) -> None:
        try:
            log.commit(lake, lambda now: touched(log, step(now, 0, 10, name)))
            wins.append(name)
        except VersionMismatch as error:
            refused.append(error)

    threads = [threading.Thread(target=archive, args=(f"t{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(wins), len(refused)) == (1, 7)
    (file,) = log.read().files
    assert file.path == f"data/{wins[0]}.parquet"


def test_an_archive_and_a_compaction_both_get_through(tmp_path: Path) -> None:
    log = LakeLog(tmp_path / "lake")
    lake = log.begin("parquet")
    for end in (10, 20):
        lake = log.commit(lake, lambda now, e=end: touched(log, step(now, e - 10, e)))  # type: ignore[misc]
    log.commit(lake, lambda now: touched(log, step(now, 20, 30)))
    merged = a_file(0, 20, "merged")
    old = lake.files
    log.commit(lake, lambda now: touched(log, compacted(now, old, [merged], at_ms=5)))
    assert [file.path for file in log.read().files] == [merged.path, "data/20-30.parquet"]


def test_a_damaged_log_is_said_to_be_one(tmp_path: Path) -> None:
    log = LakeLog(tmp_path / "lake")
    lake = log.begin("parquet")
    for end in (10, 20, 30):
        lake = log.commit(lake, lambda now, e=end: touched(log, step(now, e - 10, e)))  # type: ignore[misc]
    second = tmp_path / "lake" / "_tape" / f"{2:020d}.json"
    text = second.read_text()
    second.write_text(text[:40])
    with pytest.raises(StoreMismatch, match="damaged"):
        log.read()
    second.unlink()
    with pytest.raises(StoreMismatch, match="lacks a commit"):
        log.read()


def test_a_file_that_is_gone_is_not_committed(tmp_path: Path) -> None:
    log = LakeLog(tmp_path / "lake")
    with pytest.raises(StoreMismatch, match="was removed before"):
        log.commit(log.begin("parquet"), lambda now: step(now, 0, 10))
    assert not log.exists()


def test_orphans_go_when_they_are_old(tmp_path: Path) -> None:
    log = LakeLog(tmp_path / "lake")
    log.commit(log.begin("parquet"), lambda now: touched(log, step(now, 0, 10)))
    stray = tmp_path / "lake" / "data" / "stray.parquet"
    stray.write_bytes(b"")
    (tmp_path / "lake" / "_staging" / "killed").mkdir(parents=True)
    assert delete_orphans(log, now_ms() - 60_000) == 0
    assert stray.exists()
    assert delete_orphans(log, now_ms() + 1_000) == 2
    assert not stray.exists()
    assert (tmp_path / "lake" / log.read().files[0].path).exists()


@pytest.mark.parametrize("path", ["", "s3://bucket/x", "a*b", "x{1}"])
def test_what_is_no_folder_is_refused(path: str) -> None:
    with pytest.raises(InvalidArgument, match="lake"):
        LakeLog(path)


def test_small_neighbours_are_put_together() -> None:
    sizes = [10, 20, 90, 5, 40, 45, 60, 3]
    files, at = [], 0
    for size in sizes:
        files.append(a_file(at, at + size))
        at += size
    groups = small_groups(files, 100)
    assert [[file.rows for file in group] for group in groups] == [[10, 20], [5, 40, 45]]
