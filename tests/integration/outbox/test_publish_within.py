"""A row of the program's own and the event of it are there together or not at all."""

import re
from contextlib import suppress

import psycopg
import pytest

import tape
from tests.integration.outbox.conftest import Shop
from tests.integration.outbox.handles import KINDS, SUBJECT, Kind, Rollback, psycopg_within


async def test_both_are_committed(kind: Kind, shop: Shop) -> None:
    async with kind.within(shop.url) as program:
        placed = [await program.place("first"), await program.place("second")]
        assert shop.events() == []
    assert shop.orders() == {"first", "second"}
    assert shop.events() == placed


async def test_both_are_rolled_back(kind: Kind, shop: Shop) -> None:
    with suppress(Rollback):
        async with kind.within(shop.url) as program:
            await program.place("first")
            raise Rollback
    assert shop.orders() == set()
    assert shop.events() == []


async def test_a_savepoint_takes_its_event_with_it(kind: Kind, shop: Shop) -> None:
    async with kind.within(shop.url) as program:
        kept = [await program.place("before")]
        with suppress(Rollback):
            async with program.savepoint():
                await program.place("inside")
                raise Rollback
        async with program.savepoint():
            kept.append(await program.place("after"))
    assert shop.orders() == {"before", "after"}
    assert shop.events() == kept


async def test_every_column_arrives(kind: Kind, shop: Shop) -> None:
    said = {
        "entity_type": "order", "entity_id": "Nr. 7 ü", "idempotency_key": "place-7",
        "caused_by": "event 6", "source": "desk", "occurred_at_ms": 2**53, "schema_version": 3,
    }  # fmt: skip
    async with kind.within(shop.url) as program:
        plain = await program.publish("ü'); DROP TABLE bus.outbox; --")
        full = await program.publish("7", **said)
    columns = "event_id, subject, payload_json, " + ", ".join(said)
    assert shop.read(f"SELECT {columns} FROM bus@outbox ORDER BY id") == [
        (plain, SUBJECT, '{"order":"ü\'); DROP TABLE bus.outbox; --"}', "", "", None, "", "", 0, 1),
        (full, SUBJECT, '{"order":"7"}', *said.values()),
    ]
    rest = "SELECT global_seq, attempts, trace_id FROM bus@outbox WHERE created_at_ms > 1.7e12"
    assert shop.read(rest) == [(0, 0, "")] * 2


async def test_outside_a_transaction_it_is_refused(kind: Kind, shop: Shop) -> None:
    async with kind.outside(shop.url) as program:
        with pytest.raises(tape.NotInTransaction) as refused:
            await program.publish("7")
        with pytest.raises(tape.NotInTransaction, match="could count as handled"):
            tape.processed_within(program.tx, "desk", "m-1")
    assert re.search(r"\(a ghost event\)\. (Write|Begin)", str(refused.value))
    assert "begin" in str(refused.value).lower() or "transaction" in str(refused.value)
    assert shop.events() == []


async def test_a_wrong_event_is_refused_and_the_transaction_goes_on(kind: Kind, shop: Shop) -> None:
    async with kind.within(shop.url) as program:
        with pytest.raises(tape.InvalidArgument, match="source at position 1: NUL is not allowed"):
            await program.publish("7", source="a\0b")
        placed = await program.place("7")
    assert shop.events() == [placed]


async def test_without_the_table_it_says_what_to_do(
    kind: Kind, request: pytest.FixtureRequest
) -> None:
    url: str = request.getfixturevalue(f"{kind.store}_url")  # nothing was migrated there
    with pytest.raises(tape.StoreMismatch, match=f"has no outbox of Tape.*{kind.store}"):
        async with kind.within(url) as program:
            await program.publish("7")


@pytest.mark.parametrize("kind", [k for k in KINDS.values() if k.store == "postgres"])
async def test_a_failed_transaction_is_not_an_open_one(kind: Kind, shop: Shop) -> None:
    """In SQLite a failed statement leaves the transaction as it was."""
    with suppress(Rollback):
        async with kind.within(shop.url) as program:
            with pytest.raises(Exception, match="no_such_table"):
                await program.execute_awaited("SELECT * FROM no_such_table")
            with pytest.raises(tape.NotInTransaction, match="has failed already"):
                await program.publish("7")
            raise Rollback
    assert shop.events() == []


async def test_a_relay_is_woken_by_the_commit(postgres_shop: Shop) -> None:
    with psycopg.connect(postgres_shop.url, autocommit=True) as relay:
        relay.execute("LISTEN bus_outbox_appended")
        async with psycopg_within(postgres_shop.url) as program:
            await program.publish("1")
            await program.publish("2")
            assert list(relay.notifies(timeout=0.05)) == []
        (woken,) = relay.notifies(timeout=5, stop_after=1)
        assert (woken.channel, woken.payload) == ("bus_outbox_appended", "")
        with suppress(Rollback):
            async with psycopg_within(postgres_shop.url) as program:
                await program.publish("3")
                raise Rollback
        assert list(relay.notifies(timeout=0.05)) == []


async def test_the_right_to_insert_is_enough(postgres_shop: Shop) -> None:
    with psycopg.connect(postgres_shop.url, autocommit=True) as admin:
        admin.execute("DROP ROLE IF EXISTS clerk")
        admin.execute("CREATE ROLE clerk LOGIN")
        admin.execute("GRANT USAGE ON SCHEMA bus TO clerk")
        admin.execute("GRANT INSERT ON bus.outbox, bus.processed TO clerk")
        try:
            async with psycopg_within(postgres_shop.url.replace("postgres@", "clerk@")) as program:
                await program.publish("7")
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    async with program.savepoint():
                        program.execute("SELECT * FROM bus.outbox")
        finally:
            admin.execute("DROP OWNED BY clerk")
            admin.execute("DROP ROLE clerk")
    assert len(postgres_shop.events()) == 1
