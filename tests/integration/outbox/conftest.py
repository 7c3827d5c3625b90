"""Stores with an outbox and a table of orders beside it."""

import asyncio
import contextlib
import shutil
import sqlite3
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest

import tape
from tape.settings import Settings
from tape.stores.by_url import open_store
from tests.integration.outbox.handles import KINDS, POSTGRES_ORDERS, SQLITE_ORDERS, Kind, engine_of


class Shop(NamedTuple):
    """A store that programs write into, seen from outside."""

    url: str

    def read(self, sql: str) -> list[tuple[Any, ...]]:
        """With `@` for the dot or underscore that the two dialects have in our names."""
        if self.url.startswith("sqlite:"):
            with contextlib.closing(sqlite3.connect(self.url.removeprefix("sqlite:"))) as db:
                return db.execute(sql.replace("@", "_")).fetchall()
        with psycopg.connect(self.url, autocommit=True) as db:
            return db.execute(sql.replace("@", ".").encode()).fetchall()

    def write(self, sql: str) -> None:
        if self.url.startswith("sqlite:"):
            path = self.url.removeprefix("sqlite:")
            with contextlib.closing(sqlite3.connect(path)) as file, file:
                file.execute(sql.replace("@", "_"))
        else:
            with psycopg.connect(self.url) as db:
                db.execute(sql.replace("@", ".").encode())

    def publish(self, subject: str, key: str) -> str:
        """An event with a key, in a transaction of its own."""
        with engine_of(self.url) as engine, engine.begin() as tx:
            return tape.publish_within(tx, subject, idempotency_key=key)

    def orders(self) -> set[str]:
        return {order for (order,) in self.read("SELECT id FROM shop@orders")}

    def events(self) -> list[str]:
        """The ids of the events, in the order of their rows."""
        return [
            event_id for (event_id,) in self.read("SELECT event_id FROM bus@outbox ORDER BY id")
        ]


@pytest.fixture(scope="session")
def _migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("shop") / "tape.db"

    async def make() -> None:
        await (await open_store(f"sqlite:{path}", Settings())).close()

    asyncio.run(make())
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute(f"CREATE TABLE {SQLITE_ORDERS} (id TEXT PRIMARY KEY)")
    return path


@pytest.fixture
def sqlite_shop(_migrated_file: Path, tmp_path: Path) -> Shop:
    shutil.copy(_migrated_file, tmp_path / "tape.db")
    return Shop(f"sqlite:{tmp_path / 'tape.db'}")


@pytest.fixture
def postgres_shop(migrated_postgres_url: str) -> Shop:
    with psycopg.connect(migrated_postgres_url, autocommit=True) as db:
        db.execute("CREATE SCHEMA IF NOT EXISTS shop")
        db.execute(f"CREATE TABLE IF NOT EXISTS {POSTGRES_ORDERS} (id TEXT PRIMARY KEY)".encode())
        db.execute(f"TRUNCATE {POSTGRES_ORDERS}".encode())
    return Shop(migrated_postgres_url)


@pytest.fixture(params=["sqlite", "postgres"])
def any_shop(request: pytest.FixtureRequest) -> Shop:
    shop: Shop = request.getfixturevalue(f"{request.param}_shop")
    return shop


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


@pytest.fixture
def shop(kind: Kind, request: pytest.FixtureRequest) -> Shop:
    """The store that this kind of handle is for."""
    found: Shop = request.getfixturevalue(f"{kind.store}_shop")
    return found


@pytest.fixture
def sqlite_url(new_sqlite_url: str) -> str:
    return new_sqlite_url
