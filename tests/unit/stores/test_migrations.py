"""Migrations: applied once however many start at once, and never onto what is not ours."""

import asyncio
import contextlib
import sqlite3
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tape.errors import StoreMismatch
from tape.model.run import Run
from tape.settings import Settings
from tape.stores.by_url import MigrationStep, inspect_store, open_store, upgrade_store
from tape.stores.migrations import (
    AppliedMigration,
    Migration,
    load_migrations,
    newer,
    pending,
    record_of,
    refuse_strays,
)
from tape.stores.sqlite.connection import APPLICATION_ID

Execute = Callable[[str], list[Any]]

OPEN_AND_WRITE = """
import asyncio, sys
from tape.programs.connect import open_bus
from tape.model.event import NewEvent

async def main():
    bus = await open_bus(sys.argv[1])
    print("opened", flush=True)
    await bus.record_events([NewEvent("started")])
    await bus.close()

sys.stdin.readline()
asyncio.run(main())
"""


@pytest.fixture
def execute(store_url: str) -> Execute:
    """Runs SQL behind the store's back."""

    def run(sql: str) -> list[Any]:
        if store_url.startswith("sqlite:"):
            path = store_url.removeprefix("sqlite:")
            with contextlib.closing(sqlite3.connect(path)) as db, db:
                return db.execute(sql).fetchall()
        with psycopg.connect(store_url, autocommit=True) as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []

    return run


async def open_and_close(url: str) -> None:
    store = await open_store(url, Settings())
    await store.close()


async def test_processes_that_start_at_once_apply_once(store_url: str, execute: Execute) -> None:
    started = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", OPEN_AND_WRITE, store_url,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )
        for _ in range(6)
    ]  # fmt: skip
    outputs = await asyncio.gather(*(process.communicate(b"go\n") for process in started))
    assert [process.returncode for process in started] == [0] * 6
    assert [output for output, _ in outputs] == [b"opened\n"] * 6
    known = load_migrations("tape.stores." + store_url.partition(":")[0])
    recorded = [
        row
        for table in {record_of(m): None for m in known}
        for row in execute(f"SELECT number, name FROM {table} ORDER BY 1")
    ]
    assert sorted(recorded) == [(m.number, m.name) for m in known]
    assert execute("SELECT count(*) FROM tape_journal") == [(6,)]


async def test_stores_that_open_at_once_apply_once(store_url: str, execute: Execute) -> None:
    await asyncio.gather(*(open_and_close(store_url) for _ in range(6)))
    numbers = execute("SELECT number FROM tape_migrations")
    assert len(numbers) == len(set(numbers)) >= 1


async def test_tables_of_ours_without_a_record_are_refused_by_name(
    store_url: str, execute: Execute
) -> None:
    await open_and_close(store_url)
    execute("DROP TABLE tape_migrations")
    with pytest.raises(StoreMismatch, match="half-applied") as refused:
        await open_and_close(store_url)
    for name in ("tape_journal", "tape_runs", "tape_session_events", "tape_values"):
        assert name in str(refused.value)


async def test_an_empty_record_is_no_record(store_url: str, execute: Execute) -> None:
    await open_and_close(store_url)
    execute("DELETE FROM tape_migrations")
    with pytest.raises(StoreMismatch, match=r"half-applied.*tape_journal"):
        await open_and_close(store_url)


async def test_a_database_of_a_newer_tape_is_refused(store_url: str, execute: Execute) -> None:
    await open_and_close(store_url)
    columns = "number, name, checksum"
    if store_url.startswith("sqlite:"):
        execute(
            f"INSERT INTO tape_migrations ({columns}, applied_at_ms) VALUES (9999, 'f', 'x', 0)"
        )
    else:
        execute(f"INSERT INTO tape_migrations ({columns}) VALUES (9999, 'f', 'x')")
    with pytest.raises(StoreMismatch, match=r"migration 9999 \(f\).*upgrade tape-bus"):
        await open_and_close(store_url)


LATER = "CREATE TABLE tape_later (number INTEGER)"


async def migrated_later(
    url: str, monkeypatch: pytest.MonkeyPatch, *more: Migration, with_post: bool = False
) -> None:
    """As a newer version does it, which knows more steps."""
    package = "tape.stores." + url.partition(":")[0]
    steps = [*load_migrations(package), *more]
    with monkeypatch.context() as patch:
        patch.setattr(f"{package}.migrate.load_migrations", lambda _package: steps)
        await upgrade_store(url, Settings(), with_post=with_post)


async def test_a_pre_step_of_a_newer_tape_is_worked_with_and_listed(
    store_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await migrated_later(store_url, monkeypatch, Migration(9000, "pre", "later", LATER))
    with caplog.at_level("INFO", "tape.migrations"):
        await open_and_close(store_url)
    assert "9000 later" in caplog.text
    store = await open_store(store_url, Settings(), migrating=False)
    await store.close()
    steps = (await inspect_store(store_url, Settings())).steps
    assert steps[-1] == MigrationStep(9000, "pre", "later", applied=True, known=False)
    assert all(step.known and step.applied for step in steps[:-1])
    assert await upgrade_store(store_url, Settings(), with_post=True) == ([], [])


async def test_a_post_step_of_a_newer_tape_is_refused(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    post = Migration(9000, "post", "gone", LATER)
    await open_and_close(store_url)
    await migrated_later(store_url, monkeypatch, post)
    await open_and_close(store_url)
    await migrated_later(store_url, monkeypatch, post, with_post=True)
    with pytest.raises(StoreMismatch, match=r"migration 9000 \(gone\).*upgrade tape-bus"):
        await open_and_close(store_url)


async def test_a_pre_step_with_another_text_is_refused(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = (Migration(9000, "pre", "later", LATER + end) for end in ("", " "))
    await migrated_later(store_url, monkeypatch, one)
    with pytest.raises(StoreMismatch, match="different SQL"):
        await migrated_later(store_url, monkeypatch, other)


async def test_a_migration_with_another_text_is_refused(store_url: str, execute: Execute) -> None:
    await open_and_close(store_url)
    execute("UPDATE tape_migrations SET checksum = 'other' WHERE number = 1")
    with pytest.raises(StoreMismatch, match="different SQL"):
        await open_and_close(store_url)


async def test_opening_without_migrating_changes_nothing(store_url: str, execute: Execute) -> None:
    with pytest.raises(StoreMismatch):
        await open_store(store_url, Settings(), migrating=False)
    await open_and_close(store_url)
    store = await open_store(store_url, Settings(), migrating=False)
    assert (await store.info()).migration >= 1
    await store.close()


# As the code before migration 3 wrote runs.
OLD_RUN = """
INSERT INTO tape_runs (
  run_id, app_name, user_id, session_id, invocation_id, pool, status, seq_cursor, lease_owner,
  reactor_name, lease_expires_at_ms, fencing_token, started_at_ms, ended_at_ms)
VALUES ('{}', 'app', 'u', 's', '{}', '', 1, 1, '', '', 0, 0, 5, 0)
ON CONFLICT (run_id) DO UPDATE SET status = excluded.status, seq_cursor = excluded.seq_cursor
"""


async def test_runs_of_before_are_in_the_shared_pool_and_old_code_still_writes_them(
    store_url: str, execute: Execute, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = "tape.stores." + store_url.partition(":")[0]
    before = load_migrations(package)[:2]
    with monkeypatch.context() as patch:
        patch.setattr(f"{package}.migrate.load_migrations", lambda _package: before)
        await open_and_close(store_url)
    execute(OLD_RUN.format("old", "1"))
    store = await open_store(store_url, Settings())
    execute(OLD_RUN.format("old", "1"))
    execute(OLD_RUN.format("new", "2"))
    old, new = [await store.runs.get_run(run_id) for run_id in ("old", "new")]
    await store.close()
    assert old == Run("old", "app", "u", "s", "1", "shared", 1, 1, "", "", 0, 0, 5, 0)
    assert new == Run("new", "app", "u", "s", "2", "", 1, 1, "", "", 0, 0, 5, 0)


@pytest.mark.parametrize("package", ["tape.stores.sqlite", "tape.stores.postgres"])
def test_no_two_shipped_migrations_have_one_number(package: str) -> None:
    numbers = [migration.number for migration in load_migrations(package)]
    assert numbers[0] == 1
    assert len(numbers) == len(set(numbers))


def test_both_dialects_have_the_same_migrations() -> None:
    one, other = (load_migrations(f"tape.stores.{name}") for name in ("sqlite", "postgres"))
    assert [m[:3] for m in one] == [m[:3] for m in other]


ONE, TWO, THREE = (
    Migration(1, "pre", "one", "1"),
    Migration(2, "post", "two", "2"),
    Migration(3, "pre", "three", "3"),
)


def applied(*migrations: Migration) -> list[AppliedMigration]:
    return [AppliedMigration(m.number, m.name, m.checksum, m.must_be_known) for m in migrations]


@pytest.mark.parametrize(
    ("done", "with_post", "todo"),
    [
        ([], False, [ONE, TWO, THREE]),  # a new database
        ([], True, [ONE, TWO, THREE]),
        ([ONE], False, [THREE]),
        ([ONE, THREE], False, []),
        ([ONE, THREE], True, [TWO]),
        ([ONE, TWO, THREE], True, []),
    ],
)
def test_post_steps_wait_until_they_are_asked_for(
    done: list[Migration], with_post: bool, todo: list[Migration]
) -> None:
    assert pending([ONE, TWO, THREE], applied(*done), with_post=with_post) == todo


def test_what_is_recorded_where() -> None:
    """Version 0.1.0 knows nine steps and reads the first table alone."""
    nine, ten, post = (
        Migration(number, phase, "a", "a")
        for number, phase in ((9, "pre"), (10, "pre"), (11, "post"))
    )
    assert [record_of(m) for m in (nine, ten, post)] == [
        "tape_migrations", "tape_schema_steps", "tape_migrations",
    ]  # fmt: skip
    assert newer([nine], applied(nine, ten)) == applied(ten)


def test_only_tables_of_ours_are_strays() -> None:
    refuse_strays(["users", "tapes", "xtape_"])
    with pytest.raises(StoreMismatch, match="tape_a, tape_b"):
        refuse_strays(["users", "tape_b", "tape_a"])


@pytest.fixture
def another_file(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "theirs.db"
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE users (id INTEGER)")
        db.execute("INSERT INTO users VALUES (7)")
        db.commit()
    before = path.read_bytes()
    yield path
    assert path.read_bytes() == before, "a refused file must not be touched"
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


async def test_a_file_of_another_application_is_refused_untouched(another_file: Path) -> None:
    with pytest.raises(StoreMismatch, match="another application"):
        await open_and_close(f"sqlite:{another_file}")


async def test_a_file_marked_by_another_application_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA application_id = {APPLICATION_ID + 1}")
    before = path.read_bytes()
    with pytest.raises(StoreMismatch, match="another application"):
        await open_and_close(f"sqlite:{path}")
    assert path.read_bytes() == before


async def test_a_file_of_ours_is_marked(tmp_path: Path) -> None:
    path = tmp_path / "tape.db"
    await open_and_close(f"sqlite:{path}")
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
