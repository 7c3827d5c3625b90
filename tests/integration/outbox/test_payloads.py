"""Payload types through an outbox: their version, their subject, and consumers of each version."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

import tape
from tape.payloads import Payload
from tests.integration.outbox.conftest import Shop


class Kline(Payload, subject="market.klines.>"):
    schema_version: int = 2
    symbol: str = ""
    trades: int = 0


class OldKline(Payload, subject="market.klines.>"):
    schema_version: int = 1
    symbol: str = ""


SUBJECT = tape.bus_subject("market.klines.binance", "spot", "BTCUSDT", "1m")


@pytest.fixture
def tx(sqlite_shop: Shop) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(sqlite_shop.url.removeprefix("sqlite:"))) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield connection


def test_a_consumer_of_the_old_version_reads_the_new_one(tx: sqlite3.Connection) -> None:
    tape.publish_within(tx, SUBJECT, Kline(symbol="BTCUSDT", trades=7))
    ((version, text),) = tx.execute("SELECT schema_version, payload_json FROM bus_outbox")
    assert version == 2
    assert text.startswith('{"schema_version":2,')
    assert OldKline.read(text) == OldKline(schema_version=2, symbol="BTCUSDT")


def test_a_payload_belongs_on_its_subject(tx: sqlite3.Connection) -> None:
    with pytest.raises(
        tape.InvalidArgument, match=r"subject: a Kline is for market\.klines\.>, not"
    ):
        tape.publish_within(tx, "intents.executor", Kline())
    with pytest.raises(tape.InvalidArgument, match="schema_version: the payload, a Kline, has ver"):
        tape.publish_within(tx, SUBJECT, Kline(), schema_version=1)
    with pytest.raises(tape.TooLarge, match="payload: 10"):
        tape.publish_within(tx, SUBJECT, Kline(symbol="x" * 2**20))
    with pytest.raises(tape.InvalidArgument, match=r"schema_version: 40000 is not in 1\.\.32767"):
        tape.publish_within(tx, SUBJECT, Kline(schema_version=40_000))
    assert tx.execute("SELECT count(*) FROM bus_outbox").fetchone() == (0,)
