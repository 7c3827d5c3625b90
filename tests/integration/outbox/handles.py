"""Programs that write orders of their own and events of Tape, with every kind of handle."""

import os
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    closing,
    contextmanager,
)
from inspect import isawaitable
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import asyncpg
import django
import django.db
import psycopg
import sqlalchemy as sa
from django.conf import settings as django_settings
from django.db import transaction
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

import tape

SUBJECT = "orders.placed"


class Rollback(Exception):
    """Raised in a transaction that is not to commit."""


class Program:
    """One program's handle, and what the program does with it."""

    def __init__(
        self,
        tx: Any,
        execute: Callable[[str], Any],
        savepoint: Callable[[], AbstractAsyncContextManager[Any]],
        orders: str,
    ) -> None:
        self.tx = tx
        self.execute = execute
        self.savepoint = savepoint
        self._orders = orders

    async def execute_awaited(self, sql: str) -> None:
        await awaited(self.execute(sql))

    async def place(self, order: str) -> str:
        """An order of the program's own, and the event of it; the event's id."""
        await self.execute_awaited(f"INSERT INTO {self._orders} VALUES ('{order}')")
        return await self.publish(order)

    async def publish(self, order: str, **said: Any) -> str:
        event_id = await awaited(tape.publish_within(self.tx, SUBJECT, {"order": order}, **said))
        assert isinstance(event_id, str)
        return event_id


Opened = AbstractAsyncContextManager[Program]


class Kind(NamedTuple):
    """`within` is a program in a transaction of its own, `outside` one that has begun none."""

    store: str
    within: Callable[[str], Opened]
    outside: Callable[[str], Opened]


async def awaited(answer: Any) -> Any:
    return await answer if isawaitable(answer) else answer


def as_async(make: Callable[[], AbstractContextManager[Any]]) -> Callable[[], Any]:
    @asynccontextmanager
    async def opened() -> AsyncIterator[Any]:
        with make() as made:
            yield made

    return opened


def no_savepoint() -> AbstractAsyncContextManager[Any]:
    raise AssertionError("there is no transaction to have one in")


POSTGRES_ORDERS = "shop.orders"
SQLITE_ORDERS = "shop_orders"


# psycopg


@asynccontextmanager
async def psycopg_within(url: str) -> AsyncIterator[Program]:
    with psycopg.connect(url) as connection, connection.transaction():
        yield psycopg_program(connection, connection)


@asynccontextmanager
async def psycopg_cursor_within(url: str) -> AsyncIterator[Program]:
    with psycopg.connect(url) as connection, connection.transaction(), connection.cursor() as tx:
        yield psycopg_program(connection, tx)


@asynccontextmanager
async def psycopg_raw_within(url: str) -> AsyncIterator[Program]:
    """With cursors of another kind, whose placeholders are different."""
    with psycopg.connect(url, cursor_factory=psycopg.RawCursor) as connection:
        connection.execute("SELECT 1")  # which begins the transaction
        yield psycopg_program(connection, connection)


@asynccontextmanager
async def psycopg_outside(url: str) -> AsyncIterator[Program]:
    with psycopg.connect(url) as connection:
        yield psycopg_program(connection, connection)


def psycopg_program(connection: psycopg.Connection[Any], tx: Any) -> Program:
    def execute(sql: str) -> Any:
        return connection.execute(sql.encode())

    return Program(tx, execute, as_async(connection.transaction), POSTGRES_ORDERS)


@asynccontextmanager
async def async_psycopg_within(url: str) -> AsyncIterator[Program]:
    async with async_psycopg_outside(url) as program, program.tx.transaction():
        yield program


@asynccontextmanager
async def async_psycopg_cursor_within(url: str) -> AsyncIterator[Program]:
    async with async_psycopg_within(url) as program, program.tx.cursor() as cursor:
        program.tx = cursor
        yield program


@asynccontextmanager
async def async_psycopg_outside(url: str) -> AsyncIterator[Program]:
    async with await psycopg.AsyncConnection.connect(url) as connection:

        def execute(sql: str) -> Awaitable[Any]:
            return connection.execute(sql.encode())

        yield Program(connection, execute, connection.transaction, POSTGRES_ORDERS)


# asyncpg


@asynccontextmanager
async def asyncpg_within(url: str) -> AsyncIterator[Program]:
    async with asyncpg_outside(url) as program, program.tx.transaction():
        yield program


@asynccontextmanager
async def asyncpg_outside(url: str) -> AsyncIterator[Program]:
    connection = await asyncpg.connect(url)
    try:
        yield Program(connection, connection.execute, connection.transaction, POSTGRES_ORDERS)
    finally:
        await connection.close()


@asynccontextmanager
async def asyncpg_pool_within(url: str) -> AsyncIterator[Program]:
    async with asyncpg_pool_outside(url) as program, program.tx.transaction():
        yield program


@asynccontextmanager
async def asyncpg_pool_outside(url: str) -> AsyncIterator[Program]:
    async with asyncpg.create_pool(url, min_size=1) as pool, pool.acquire() as connection:
        yield Program(connection, connection.execute, connection.transaction, POSTGRES_ORDERS)


# SQLAlchemy


def driver_url(url: str, driver: str) -> str:
    if url.startswith("sqlite:"):
        return f"sqlite:///{url.removeprefix('sqlite:')}"
    return f"postgresql+{driver}{url.removeprefix('postgres')}"


def orders_of(url: str) -> str:
    return SQLITE_ORDERS if url.startswith("sqlite:") else POSTGRES_ORDERS


@contextmanager
def engine_of(url: str, **options: Any) -> Iterator[sa.Engine]:
    engine = sa.create_engine(driver_url(url, "psycopg"), poolclass=NullPool, **options)
    try:
        yield engine
    finally:
        engine.dispose()


def sa_program(handle: Any, url: str) -> Program:
    def execute(sql: str) -> Any:
        return handle.execute(sa.text(sql))

    return Program(handle, execute, as_async(handle.begin_nested), orders_of(url))


@asynccontextmanager
async def sa_session_within(url: str) -> AsyncIterator[Program]:
    with engine_of(url) as engine, Session(engine) as session, session.begin():
        yield sa_program(session, url)


@asynccontextmanager
async def sa_session_outside(url: str) -> AsyncIterator[Program]:
    with engine_of(url) as engine, Session(engine) as session:
        yield sa_program(session, url)


@asynccontextmanager
async def sa_scoped_within(url: str) -> AsyncIterator[Program]:
    with engine_of(url) as engine:
        session = scoped_session(sessionmaker(engine))
        with session.begin():
            yield sa_program(session, url)
        session.remove()


@asynccontextmanager
async def sa_connection_within(url: str) -> AsyncIterator[Program]:
    with engine_of(url) as engine, engine.begin() as connection:
        yield sa_program(connection, url)


@asynccontextmanager
async def sa_connection_outside(url: str) -> AsyncIterator[Program]:
    with engine_of(url) as engine, engine.connect() as connection:
        yield sa_program(connection, url)


async def sa_async(url: str, driver: str, *, begun: bool, session: bool) -> AsyncIterator[Program]:
    engine = create_async_engine(driver_url(url, driver), poolclass=NullPool)
    handle: Any = AsyncSession(engine) if session else AsyncConnection(engine)
    try:
        async with handle:
            if begun:
                async with handle.begin():
                    yield sa_async_program(handle)
            else:
                yield sa_async_program(handle)
    finally:
        await engine.dispose()


def sa_async_program(handle: Any) -> Program:
    def execute(sql: str) -> Any:
        return handle.execute(sa.text(sql))

    return Program(handle, execute, handle.begin_nested, POSTGRES_ORDERS)


def sa_async_kind(driver: str, *, session: bool) -> Kind:
    opened = asynccontextmanager(sa_async)
    return Kind(
        "postgres",
        lambda url: opened(url, driver, begun=True, session=session),
        lambda url: opened(url, driver, begun=False, session=session),
    )


# Django

ALIAS = "shop"


@asynccontextmanager
async def django_within(url: str) -> AsyncIterator[Program]:
    async with django_outside(url) as program:
        with transaction.atomic(using=ALIAS):
            yield program


@asynccontextmanager
async def django_outside(url: str) -> AsyncIterator[Program]:
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"  # the tests are asynchronous, Django is not
    if not django_settings.configured:
        django_settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.dummy"}})
        django.setup()
    told = urlsplit(url)
    connections = django.db.connections
    if told.scheme == "sqlite":
        engine = {"ENGINE": "django.db.backends.sqlite3", "NAME": told.path}
    else:
        engine = {
            "ENGINE": "django.db.backends.postgresql", "NAME": told.path[1:],
            "HOST": told.hostname or "", "PORT": str(told.port), "USER": told.username or "",
        }  # fmt: skip
    connections.databases[ALIAS] = {**connections.databases["default"], **engine}
    connection = connections[ALIAS]

    def execute(sql: str) -> Any:
        with connection.cursor() as cursor:
            cursor.execute(sql)

    def savepoint() -> AbstractContextManager[Any]:
        return transaction.atomic(using=ALIAS)

    try:
        yield Program(connection, execute, as_async(savepoint), orders_of(url))
    finally:
        connection.close()
        del connections[ALIAS]
        del connections.databases[ALIAS]


# sqlite3


@asynccontextmanager
async def sqlite_within(url: str) -> AsyncIterator[Program]:
    async with sqlite_outside(url) as program:
        program.tx.execute("BEGIN IMMEDIATE")
        with program.tx:
            yield program


@asynccontextmanager
async def sqlite_cursor_within(url: str) -> AsyncIterator[Program]:
    async with sqlite_within(url) as program:
        program.tx = program.tx.cursor()
        yield program


@asynccontextmanager
async def sqlite_outside(url: str) -> AsyncIterator[Program]:
    with closing(sqlite3.connect(url.removeprefix("sqlite:"), timeout=30)) as connection:

        @asynccontextmanager
        async def savepoint() -> AsyncIterator[None]:
            connection.execute("SAVEPOINT inner_one")
            try:
                yield
            except BaseException:
                connection.execute("ROLLBACK TO inner_one")
                raise
            finally:
                connection.execute("RELEASE inner_one")

        yield Program(connection, connection.execute, savepoint, SQLITE_ORDERS)


KINDS = {
    "psycopg": Kind("postgres", psycopg_within, psycopg_outside),
    "psycopg cursor": Kind("postgres", psycopg_cursor_within, psycopg_outside),
    "psycopg raw cursors": Kind("postgres", psycopg_raw_within, psycopg_outside),
    "psycopg async": Kind("postgres", async_psycopg_within, async_psycopg_outside),
    "psycopg async cursor": Kind("postgres", async_psycopg_cursor_within, async_psycopg_outside),
    "asyncpg": Kind("postgres", asyncpg_within, asyncpg_outside),
    "asyncpg pool": Kind("postgres", asyncpg_pool_within, asyncpg_pool_outside),
    "SQLAlchemy session": Kind("postgres", sa_session_within, sa_session_outside),
    "SQLAlchemy scoped": Kind("postgres", sa_scoped_within, sa_session_outside),
    "SQLAlchemy connection": Kind("postgres", sa_connection_within, sa_connection_outside),
    "SQLAlchemy async session": sa_async_kind("asyncpg", session=True),
    "SQLAlchemy async connection": sa_async_kind("psycopg", session=False),
    "SQLAlchemy async connection of asyncpg": sa_async_kind("asyncpg", session=False),
    "Django": Kind("postgres", django_within, django_outside),
    "sqlite3": Kind("sqlite", sqlite_within, sqlite_outside),
    "sqlite3 cursor": Kind("sqlite", sqlite_cursor_within, sqlite_outside),
    "SQLAlchemy session on SQLite": Kind("sqlite", sa_session_within, sa_session_outside),
    "SQLAlchemy connection on SQLite": Kind("sqlite", sa_connection_within, sa_connection_outside),
    "Django on SQLite": Kind("sqlite", django_within, django_outside),
}
