"""The broker: prices that move with every quote, and orders made once for each key."""

import sqlite3
from decimal import Decimal
from http import HTTPStatus
from typing import get_args

from examples.treasury.desk import Desk
from examples.treasury.records import Order, Quote, Side, Status, status
from examples.treasury.refusals import Body, Refusal, positive, text

OPENING_PIPS = {"EURUSD": 1_0850, "GBPUSD": 1_2700}

_SCHEMA = """
CREATE TABLE IF NOT EXISTS prices (pair TEXT PRIMARY KEY, pips INTEGER);
CREATE TABLE IF NOT EXISTS orders (
    number INTEGER PRIMARY KEY,
    id TEXT AS ('order-' || number),
    key TEXT,
    pair TEXT,
    side TEXT,
    cents INTEGER,
    price TEXT,
    cancelled INTEGER DEFAULT 0
);
CREATE INDEX IF NOT EXISTS orders_by_key ON orders (key);
"""


class FakeBroker:
    def __init__(self, db: sqlite3.Connection, desk: Desk) -> None:
        self._db = db
        self._desk = desk
        db.executescript(_SCHEMA)
        with db:
            db.executemany("INSERT OR IGNORE INTO prices VALUES (?, ?)", OPENING_PIPS.items())

    def quote(self, pair: str) -> Quote:
        """The price now. It is never the same twice, so a run that asks again is found out."""
        price = self._price(pair)
        with self._db:
            self._db.execute("UPDATE prices SET pips = pips + 1 WHERE pair = ?", (pair,))
        return {"pair": pair, "price": price}

    def order(self, key: str, body: Body) -> Order:
        return self._desk.once("broker.order", key, body, lambda: self._make(key, body))

    def order_status(self, key: str) -> Status[Order]:
        rows = self._db.execute("SELECT * FROM orders WHERE key = ? ORDER BY number", (key,))
        return status([_order(row) for row in rows])

    def cancel(self, order_id: str) -> Order:
        return self._desk.once("broker.cancel", order_id, {}, lambda: self._cancel(order_id))

    def orders(self) -> list[Order]:
        return [_order(row) for row in self._db.execute("SELECT * FROM orders ORDER BY number")]

    def _make(self, key: str, body: Body) -> Order:
        pair, side, cents = text(body, "pair"), text(body, "side"), positive(body, "cents")
        if side not in get_args(Side):
            raise Refusal(f"'side' must be {' or '.join(get_args(Side))}, not {side!r}")
        made = self._db.execute(
            "INSERT INTO orders (key, pair, side, cents, price) VALUES (?, ?, ?, ?, ?) RETURNING *",
            (key, pair, side, cents, self._price(pair)),
        )
        return _order(made.fetchone())

    def _cancel(self, order_id: str) -> Order:
        cancelled = self._db.execute(
            "UPDATE orders SET cancelled = 1 WHERE id = ? RETURNING *", (order_id,)
        ).fetchone()
        if cancelled is None:
            raise Refusal(f"there is no order {order_id!r}", HTTPStatus.NOT_FOUND)
        return _order(cancelled)

    def _price(self, pair: str) -> str:
        pips = dict(self._db.execute("SELECT pair, pips FROM prices ORDER BY pair").fetchall())
        if pair not in pips:
            raise Refusal(f"there is no price for {pair!r}; there is one for {', '.join(pips)}")
        return str(Decimal(pips[pair]).scaleb(-4))


def _order(row: sqlite3.Row) -> Order:
    return {
        "id": row["id"],
        "key": row["key"],
        "pair": row["pair"],
        "side": row["side"],
        "cents": row["cents"],
        "price": row["price"],
        "cancelled": bool(row["cancelled"]),
    }
