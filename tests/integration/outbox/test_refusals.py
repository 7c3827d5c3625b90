"""What is no open transaction, or no event, is refused before anything is sent."""

import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import asyncpg
import orjson
import psycopg
import pytest
import sqlalchemy as sa
from django.db import transaction
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool, StaticPool

import tape
from tests.integration.outbox.conftest import Shop
from tests.integration.outbox.handles import (
    ALIAS,
    SUBJECT,
    Rollback,
    django_within,
    driver_url,
    engine_of,
    psycopg_within,
    sa_session_within,
)


def publish(tx: Any) -> Any:
    return tape.publish_within(tx, SUBJECT)


def refused_as_autocommit(tx: Any) -> None:
    with pytest.raises(tape.NotInTransaction, match="the isolation level is AUTOCOMMIT"):
        tape.publish_within(tx, SUBJECT)


def test_autocommit_of_an_engine(any_shop: Shop) -> None:
    with (
        engine_of(any_shop.url, isolation_level="AUTOCOMMIT") as engine,
        Session(engine) as session,
        session.begin(),
    ):
        refused_as_autocommit(session)
    assert any_shop.events() == []


def test_autocommit_of_a_connection(any_shop: Shop) -> None:
    with engine_of(any_shop.url) as engine:
        options = {"isolation_level": "AUTOCOMMIT"}
        with engine.connect().execution_options(**options) as connection, connection.begin():
            refused_as_autocommit(connection)
        with engine.execution_options(**options).begin() as connection:
            refused_as_autocommit(connection)
    assert any_shop.events() == []


def test_autocommit_of_a_sessions_connection(any_shop: Shop) -> None:
    with engine_of(any_shop.url) as engine, Session(engine) as session, session.begin():
        session.connection(execution_options={"isolation_level": "AUTOCOMMIT"})
        refused_as_autocommit(session)
    assert any_shop.events() == []


def test_autocommit_behind_the_back_of_sqlalchemy(postgres_shop: Shop) -> None:
    with engine_of(postgres_shop.url) as engine:

        @sa.event.listens_for(engine, "connect")
        def set_autocommit(connection: psycopg.Connection[Any], _record: object) -> None:
            connection.autocommit = True

        with Session(engine) as session, session.begin():
            refused_as_autocommit(session)
    assert postgres_shop.events() == []


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_autocommit_of_an_async_engine(postgres_shop: Shop, driver: str) -> None:
    url = driver_url(postgres_shop.url, driver)
    engine = create_async_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    async with AsyncSession(engine) as session, session.begin():
        with pytest.raises(tape.NotInTransaction, match="the isolation level is AUTOCOMMIT"):
            await tape.publish_within(session, SUBJECT)
    await engine.dispose()
    assert postgres_shop.events() == []


def test_a_listener_that_begins_by_itself_is_no_autocommit(sqlite_shop: Shop) -> None:
    """As the manual of SQLAlchemy has it for savepoints in SQLite."""
    with engine_of(sqlite_shop.url) as engine:

        @sa.event.listens_for(engine, "connect")
        def leave_it_alone(connection: Any, _record: object) -> None:
            connection.isolation_level = None

        @sa.event.listens_for(engine, "begin")
        def begin(connection: sa.Connection) -> None:
            connection.exec_driver_sql("BEGIN")

        with engine.begin() as connection:
            event_id = tape.publish_within(connection, SUBJECT)
        with Session(engine) as session, session.begin():
            tape.publish_within(session, SUBJECT)
            session.rollback()
    assert sqlite_shop.events() == [event_id]


def test_a_connection_that_has_autocommit_can_still_begin(postgres_shop: Shop) -> None:
    with psycopg.connect(postgres_shop.url, autocommit=True) as connection:
        with pytest.raises(tape.NotInTransaction):
            tape.publish_within(connection, SUBJECT)
        with connection.transaction():
            event_id = tape.publish_within(connection, SUBJECT)
    assert postgres_shop.events() == [event_id]


def test_a_pipeline_cannot_tell(postgres_shop: Shop) -> None:
    with psycopg.connect(postgres_shop.url) as connection, connection.transaction():
        with (
            connection.pipeline(),
            pytest.raises(tape.InvalidArgument, match="tx: is in pipeline mode"),
        ):
            tape.publish_within(connection, SUBJECT)
        event_id = tape.publish_within(connection, SUBJECT)
    assert postgres_shop.events() == [event_id]


def test_a_closed_connection_has_no_transaction(postgres_shop: Shop) -> None:
    connection = psycopg.connect(postgres_shop.url)
    connection.close()
    with pytest.raises(tape.NotInTransaction):
        tape.publish_within(connection, SUBJECT)


async def test_a_pool_or_an_engine_is_no_transaction(postgres_shop: Shop) -> None:
    async with asyncpg.create_pool(postgres_shop.url, min_size=1) as pool:
        with pytest.raises(
            tape.InvalidArgument, match=r"tx: asyncpg\.pool\.Pool is not a supported transaction"
        ):
            publish(pool)
    with (
        engine_of(postgres_shop.url) as engine,
        pytest.raises(tape.InvalidArgument, match="give a Connection, AsyncConnection or cursor"),
    ):
        publish(engine)
    with pytest.raises(
        tape.InvalidArgument, match=r"tx: builtins\.NoneType is not a supported transaction"
    ):
        publish(None)


def test_another_database_is_refused() -> None:
    engine = sa.create_engine("sqlite://", poolclass=StaticPool)
    engine.dialect.name = "oracle"
    with (
        engine.connect() as connection,
        pytest.raises(
            tape.InvalidArgument, match="to oracle; an outbox is on PostgreSQL or SQLite"
        ),
    ):
        tape.publish_within(connection, SUBJECT)
    engine.dispose()


def test_a_session_of_several_databases_has_to_say_which(postgres_shop: Shop) -> None:
    with engine_of(postgres_shop.url) as engine, Session() as session:
        with pytest.raises(tape.InvalidArgument, match="tx: the session has several databases"):
            tape.publish_within(session, SUBJECT)
        with session.begin():
            event_id = tape.publish_within(
                session.connection(bind_arguments={"bind": engine}), SUBJECT
            )
    assert postgres_shop.events() == [event_id]


def test_an_attached_outbox_does_not_do(sqlite_shop: Shop, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "own.db")) as connection:
        connection.execute("ATTACH ? AS tape", (sqlite_shop.url.removeprefix("sqlite:"),))
        connection.execute("BEGIN")
        with pytest.raises(tape.StoreMismatch, match="An attached file does not work"):
            tape.publish_within(connection, SUBJECT)
        connection.execute("CREATE TEMP TABLE bus_outbox (event_id TEXT)")
        with pytest.raises(tape.StoreMismatch, match="in its main file"):
            tape.publish_within(connection, SUBJECT)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"subject": "orders.Placed"}, "subject at position 7.*write 'orders.placed'"),
        ({"subject": ""}, "subject: must not be empty"),
        ({"payload": {1, 2}}, "payload: cannot be written as JSON"),
        ({"payload": {"a": orjson.Fragment("{")}}, "payload at position .*: not valid JSON"),
        ({"payload": float("nan")}, "payload: nan has no JSON form"),
        ({"payload": "x" * 2**20}, "payload: 1048578 bytes, the limit is 1048576"),
        ({"entity_id": 7}, "entity_id: must be a text, not int"),
        ({"entity_type": "x" * 513}, "entity_type: 513 bytes, the limit is 512"),
        ({"idempotency_key": "a\0"}, "idempotency_key at position 1: NUL is not allowed"),
        ({"source": "\ud800"}, "source at position 0: a lone surrogate is not text"),
        ({"schema_version": 0}, r"schema_version: 0 is not in 1\.\.32767"),
        ({"schema_version": "1"}, "schema_version: must be an integer, not str"),
        ({"schema_version": True}, "schema_version: must be an integer, not bool"),
        ({"occurred_at_ms": -1}, "occurred_at_ms: must be in"),
        ({"occurred_at_ms": 1.5}, "occurred_at_ms: must be an integer, not float"),
    ],
)
async def test_what_is_no_event(sqlite_shop: Shop, said: dict[str, Any], message: str) -> None:
    async with sa_session_within(sqlite_shop.url) as program:
        with pytest.raises(tape.InvalidArgument, match=message):
            tape.publish_within(program.tx, **{"subject": SUBJECT, **said})
    assert sqlite_shop.events() == []


async def test_the_drivers_own_errors_stay_its_own(postgres_shop: Shop) -> None:
    """A program that tries again after a conflict looks for its driver's error."""
    async with psycopg_within(postgres_shop.url) as program:
        program.execute("SET LOCAL transaction_read_only = on")
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            await program.publish("7")


async def test_an_atomic_block_that_is_to_be_rolled_back(any_shop: Shop) -> None:
    with suppress(Rollback):
        async with django_within(any_shop.url) as program:
            with suppress(Rollback), transaction.atomic(using=ALIAS, savepoint=False):
                raise Rollback
            with pytest.raises(tape.NotInTransaction, match="has failed already"):
                await program.publish("7")
            raise Rollback
    assert any_shop.events() == []


def test_a_version_inside_a_plain_payload_is_the_rows(any_shop: Shop) -> None:
    with engine_of(any_shop.url) as engine, engine.begin() as tx:
        for payload, version in (({"schema_version": 9}, 2), ({"schema_version": 0}, None)):
            with pytest.raises(tape.InvalidArgument, match=r"the payload says [90], the event"):
                tape.publish_within(tx, SUBJECT, payload, schema_version=version)
        with pytest.raises(tape.InvalidArgument, match="the payload says 9, the event 2"):
            tape.publish_within(
                tx, SUBJECT, orjson.Fragment('{"schema_version": 9}'), schema_version=2
            )
        tape.publish_within(tx, SUBJECT, {"schema_version": 9})
        tape.publish_within(tx, SUBJECT, {"schema_version": 2.0}, schema_version=2)
        tape.publish_within(tx, SUBJECT, {"schema_version": "of mine"})
    rows = any_shop.read("SELECT schema_version FROM bus@outbox ORDER BY id")
    assert rows == [(9,), (2,), (1,)]
