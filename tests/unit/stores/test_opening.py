"""What cannot be opened is refused in our words, soon, and with what to do about it."""

import asyncio
import sqlite3
import time
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from tape.errors import InvalidArgument, StoreMismatch, StoreUnavailable
from tape.programs.connect import open_bus
from tape.settings import PostgresSettings, Settings, SqliteSettings
from tape.stores.by_url import open_store, sqlite_path
from tape.stores.postgres import migrate
from tape.stores.sqlite.store import SqliteStore
from tests.servers.postgres import PostgresServer

QUICK = Settings(postgres=PostgresSettings(connect_s=0.5))


@pytest.mark.parametrize("size", [10, 100, 600, 5000])
async def test_a_text_file_is_refused_untouched(tmp_path: Path, size: int) -> None:
    path = tmp_path / "notes.txt"
    text = ("not a database " * 400)[:size]
    path.write_text(text)
    with pytest.raises(StoreMismatch, match=r"notes\.txt is not a usable SQLite database"):
        await open_store(f"sqlite:{path}", Settings())
    assert path.read_text() == text


async def test_an_empty_file_becomes_a_journal(tmp_path: Path) -> None:
    path = tmp_path / "tape.db"
    path.touch()
    store = await open_store(f"sqlite:{path}", Settings())
    assert store.head == 0
    await store.close()


async def test_an_acknowledged_write_is_on_the_disk(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "tape.db", SqliteSettings())

    def settings(db: sqlite3.Connection) -> list[object]:
        names = ("journal_mode", "synchronous", "foreign_keys")
        return [db.execute(f"PRAGMA {name}").fetchone()[0] for name in names]

    assert await store._writing.use(settings) == ["wal", 2, 1]
    await store.close()


async def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="cannot open"):
        await open_store(f"sqlite:{tmp_path}", Settings())


async def test_a_missing_folder_is_refused_and_not_made(tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "tape.db"
    with pytest.raises(StoreUnavailable, match="does its folder exist"):
        await open_store(f"sqlite:{path}", Settings())
    assert not path.parent.exists()


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:tape.db", "tape.db"),
        ("sqlite:/abs/tape.db", "/abs/tape.db"),
        ("sqlite:///abs/tape.db", "/abs/tape.db"),
        ("sqlite:a%20b.db", "a b.db"),
        ("sqlite:tape.db?mode=x", "tape.db"),
        ("sqlite:a%3Fb.db", "a?b.db"),
    ],
)
def test_urls_of_files(url: str, path: str) -> None:
    assert sqlite_path(url) == Path(path)


@pytest.mark.parametrize(
    "url",
    [
        "", "tape.db", "mysql://h/d", "sqlite:", "sqlite://", "sqlite::memory:", "sqlite:///",
        "postgres://localhost", "postgres://localhost/", "http://x",
    ],
)  # fmt: skip
async def test_what_names_no_store_is_refused(url: str) -> None:
    with pytest.raises(InvalidArgument, match="store: "):
        await open_store(url, Settings())


async def test_a_database_that_does_not_exist(postgres_server: PostgresServer) -> None:
    with pytest.raises(StoreMismatch, match="nowhere"):
        await open_store(postgres_server.url("nowhere"), QUICK)


async def test_a_role_that_does_not_exist(postgres_server: PostgresServer) -> None:
    url = postgres_server.url().replace("postgres@", "nobody_we_know@")
    with pytest.raises(StoreMismatch, match="nobody_we_know"):
        await open_store(url, QUICK)


@pytest.mark.parametrize(
    ("grant", "reason"),
    [("SELECT 1", "no schema"), ("GRANT USAGE ON SCHEMA public TO PUBLIC", "permission denied")],
)
async def test_a_role_that_may_not_make_tables(postgres_url: str, grant: str, reason: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute("DROP ROLE IF EXISTS tape_reader")
        admin.execute("CREATE ROLE tape_reader LOGIN")
        admin.execute(grant.encode())
    with pytest.raises(StoreMismatch, match=reason):
        await open_store(postgres_url.replace("postgres@", "tape_reader@"), QUICK)


async def test_a_server_that_is_too_old(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrate, "OLDEST_SERVER", 99)
    with pytest.raises(StoreMismatch, match="Tape needs 99 or newer"):
        await open_store(postgres_url, QUICK)


async def test_a_closed_port_is_away_and_the_password_stays_secret(
    unused_tcp_port: int,
) -> None:
    started = time.monotonic()
    with pytest.raises(StoreUnavailable, match=f"127.0.0.1:{unused_tcp_port}/tape") as away:
        await open_store(f"postgres://me:geheim@127.0.0.1:{unused_tcp_port}/tape", QUICK)
    assert 0.4 < time.monotonic() - started < 5
    assert "geheim" not in str(away.value)


class Greeter(asyncio.Protocol):
    """Says one thing and keeps the line open."""

    def __init__(self, greeting: bytes) -> None:
        self._greeting = greeting

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        transport.write(self._greeting)


@pytest.mark.parametrize("greeting", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"Nxx", b"S"])
async def test_a_port_that_is_not_postgres_is_away(greeting: bytes) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Greeter(greeting), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    started = time.monotonic()
    async with server:
        with pytest.raises(StoreUnavailable):
            await open_store(f"postgres://me@127.0.0.1:{port}/tape", QUICK)
    assert time.monotonic() - started < 10


async def test_a_server_that_comes_late_is_waited_for() -> None:
    """A server and its database often start together."""
    patient = replace(QUICK, postgres=PostgresSettings(connect_s=30))
    with PostgresServer() as server:
        server.create_database("late")
        server.stop()
        opening = asyncio.create_task(open_bus(server.url("late"), patient))
        await asyncio.sleep(0)
        await asyncio.to_thread(server.start)
        bus = await opening
        assert (await bus.info()).store == "postgres"
        await bus.close()
