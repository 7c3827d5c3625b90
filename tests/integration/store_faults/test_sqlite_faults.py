"""A SQLite file whose disk is full, that cannot be written, or that somebody else is writing."""

import asyncio
import contextlib
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tape.bus import Bus
from tape.errors import StoreFailed, StoreFull, StoreUnavailable, TapeError
from tape.model.event import NewEvent
from tape.programs.connect import open_bus
from tape.settings import Settings, SqliteSettings, WriterSettings
from tape.stores.by_url import open_store
from tape.stores.sqlite.store import SqliteStore
from tests.integration.store_faults.load import everything, load

LARGE = [NewEvent("large", '"' + "x" * 800_000 + '"')]
QUICK = Settings(
    sqlite=SqliteSettings(busy_s=0.2, poll_s=0.05), writer=WriterSettings(retry_for_s=0.3)
)

HOLD_THE_LOCK = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.readline()
db.execute("ROLLBACK")
"""


async def limit_pages(bus: Bus, more: int) -> None:
    """Let the file grow by so many pages and no further."""
    store = bus._store
    assert isinstance(store, SqliteStore)

    def limit(db: sqlite3.Connection) -> None:
        (pages,) = db.execute("PRAGMA page_count").fetchone()
        db.execute(f"PRAGMA max_page_count = {pages + more}")

    await store._writing.use(limit)


@pytest.fixture
async def bus(sqlite_url: str) -> AsyncIterator[Bus]:
    bus = await open_bus(sqlite_url, QUICK)
    yield bus
    await bus.close()


def is_sound(path: Path) -> bool:
    with contextlib.closing(sqlite3.connect(path)) as db:
        (verdict,) = db.execute("PRAGMA integrity_check").fetchone()
    return bool(verdict == "ok")


async def test_a_full_disk_refuses_writes_until_there_is_space(bus: Bus, tmp_path: Path) -> None:
    await bus.record_events([NewEvent("before")])
    await limit_pages(bus, 5)
    with pytest.raises(StoreFull, match="the disk is full; nothing was written"):
        await bus.record_events([NewEvent("small"), *LARGE])
    assert [entry.event_type for entry in await everything(bus)] == ["before"]
    assert await bus.values.get_value("n", "k") is None
    await limit_pages(bus, 10_000)
    (after,) = await bus.record_events(LARGE)
    assert after.global_seq == 2
    assert [entry.event_type for entry in await everything(bus)] == ["before", "large"]
    assert is_sound(tmp_path / "tape.db")


async def test_a_full_disk_costs_no_acknowledged_write(bus: Bus) -> None:
    """Writers run into the end of the disk and go on when there is room again."""
    told: list[int] = []

    async def write(number: int) -> None:
        for _ in range(5):
            with contextlib.suppress(StoreFull):
                (recorded,) = await bus.record_events([NewEvent("e", '"' + "x" * 20_000 + '"')])
                told.append(recorded.global_seq)

    await limit_pages(bus, 60)
    await asyncio.gather(*map(write, range(8)))
    there = [entry.global_seq for entry in await everything(bus)]
    assert sorted(told) == there
    assert len(there) < 40
    await limit_pages(bus, 10_000)
    await asyncio.gather(*map(write, range(8)))
    assert sorted(told) == [entry.global_seq for entry in await everything(bus)]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=900k", "tape-test", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("making a small disk takes the right to mount")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def remount(folder: Path, mode: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{mode}", str(folder)], check=True)


async def test_a_disk_that_is_really_full(small_disk: Path) -> None:
    bus = await open_bus(f"sqlite:{small_disk / 'tape.db'}", QUICK)
    await bus.record_events([NewEvent("before")])
    with pytest.raises(StoreFull):
        await bus.record_events(LARGE)
    assert [entry.event_type for entry in await everything(bus)] == ["before"]
    await bus.record_events([NewEvent("small")])
    await bus.close()
    assert is_sound(small_disk / "tape.db")


async def test_no_room_for_a_new_journal(small_disk: Path) -> None:
    (small_disk / "ballast").write_bytes(b"x" * 880_000)
    with pytest.raises(StoreFull):
        await open_bus(f"sqlite:{small_disk / 'tape.db'}", QUICK)
    (small_disk / "ballast").unlink()
    bus = await open_bus(f"sqlite:{small_disk / 'tape.db'}", QUICK)
    await bus.record_events([NewEvent("small")])
    await bus.close()


async def test_a_disk_that_became_read_only(small_disk: Path) -> None:
    url = f"sqlite:{small_disk / 'tape.db'}"
    bus = await open_bus(url, QUICK)
    await bus.record_events([NewEvent("before")])
    await bus.close()
    remount(small_disk, "ro")
    reader = await open_bus(url, QUICK)
    assert [entry.event_type for entry in await everything(reader)] == ["before"]
    with pytest.raises(TapeError, match=r"tape\.db"):
        await reader.record_events([NewEvent("refused")])
    await reader.close()
    remount(small_disk, "rw")
    bus = await open_bus(url, QUICK)
    assert [entry.event_type for entry in await everything(bus)] == ["before"]
    await bus.close()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to every file")
async def test_a_file_that_may_not_be_written(bus: Bus, sqlite_url: str, tmp_path: Path) -> None:
    """Whoever may only read can follow; a write is refused by name and changes nothing."""
    await bus.record_events([NewEvent("before")])
    (tmp_path / "tape.db").chmod(0o444)
    reader = await open_bus(sqlite_url, QUICK)
    assert [entry.event_type for entry in await everything(reader)] == ["before"]
    with pytest.raises(StoreFailed, match=r"tape\.db: attempt to write a readonly database"):
        await reader.record_events([NewEvent("refused")])
    assert [entry.event_type for entry in await everything(reader)] == ["before"]
    await reader.close()


@contextlib.asynccontextmanager
async def writing_process(path: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """Another process that holds the write lock until the block ends or its input does."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOLD_THE_LOCK, str(path),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert await process.stdout.readline() == b"held\n"
    try:
        yield process
    finally:
        await process.communicate(b"go\n")


async def test_who_finds_the_file_locked_waits_and_then_says_so(bus: Bus, tmp_path: Path) -> None:
    await bus.record_events([NewEvent("before")])
    async with writing_process(tmp_path / "tape.db"):
        started = time.monotonic()
        with pytest.raises(StoreUnavailable, match="another process has been writing"):
            await bus.record_events([NewEvent("a")])
        assert 0.2 <= time.monotonic() - started < 20
        assert [e.event_type for e in await everything(bus)] == ["before"], "readers go on"
    await bus.record_events([NewEvent("b")])
    assert [entry.event_type for entry in await everything(bus)] == ["before", "b"]


async def test_who_finds_the_file_locked_goes_on_when_it_is_free(
    sqlite_url: str, tmp_path: Path
) -> None:
    patient = Settings(sqlite=SqliteSettings(busy_s=0.05), writer=WriterSettings(retry_for_s=30))
    bus = await open_bus(sqlite_url, patient)
    async with writing_process(tmp_path / "tape.db"):
        recording = asyncio.create_task(bus.record_events([NewEvent("a")]))
        done, _ = await asyncio.wait([recording], timeout=0.3)
        assert not done
    (recorded,) = await asyncio.wait_for(recording, 10)
    assert recorded.global_seq == 1
    await bus.close()


async def test_a_writer_that_died_with_the_lock_leaves_it_free(bus: Bus, tmp_path: Path) -> None:
    async with writing_process(tmp_path / "tape.db") as process:
        process.kill()
        await process.wait()
        await bus.record_events([NewEvent("a")])


async def test_a_reader_in_a_long_transaction_holds_nobody_up(bus: Bus, tmp_path: Path) -> None:
    await bus.record_events([NewEvent("before")])
    with contextlib.closing(sqlite3.connect(tmp_path / "tape.db", isolation_level=None)) as db:
        db.execute("BEGIN")
        assert db.execute("SELECT count(*) FROM tape_journal").fetchone() == (1,)
        await bus.record_events(LARGE)  # who were held up would be refused
        assert db.execute("SELECT count(*) FROM tape_journal").fetchone() == (1,)


async def test_two_stores_on_one_file_under_load(sqlite_url: str) -> None:
    settings = Settings(sqlite=SqliteSettings(poll_s=0.02))
    buses = [Bus(await open_store(sqlite_url, settings), settings) for _ in range(2)]
    async with load(buses, writers=8) as told:
        await told.more(300)
    for bus in buses:
        await bus.close()
    assert not told.refused
