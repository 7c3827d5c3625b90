"""The bank: accounts, wires made once for each key, and plain wires made at every call."""

import sqlite3
from http import HTTPStatus

from examples.treasury.desk import Desk
from examples.treasury.records import Status, Wire, status
from examples.treasury.refusals import Body, Refusal, positive, text

OPENING = {"operating": 5_000_000_00, "reserve": 1_000_000_00, "supplier": 0}

_SCHEMA = """
CREATE TABLE IF NOT EXISTS accounts (name TEXT PRIMARY KEY, cents INTEGER);
CREATE TABLE IF NOT EXISTS wires (
    number INTEGER PRIMARY KEY,
    id TEXT AS ('wire-' || number),
    key TEXT,
    reference TEXT,
    "from" TEXT,
    "to" TEXT,
    cents INTEGER,
    reversed INTEGER DEFAULT 0
);
CREATE INDEX IF NOT EXISTS wires_by_key ON wires (key);
CREATE INDEX IF NOT EXISTS wires_by_reference ON wires (reference);
"""


class FakeBank:
    def __init__(self, db: sqlite3.Connection, desk: Desk) -> None:
        self._db = db
        self._desk = desk
        db.executescript(_SCHEMA)
        with db:
            db.executemany("INSERT OR IGNORE INTO accounts VALUES (?, ?)", OPENING.items())

    def balances(self) -> dict[str, int]:
        return dict(self._db.execute("SELECT name, cents FROM accounts ORDER BY name").fetchall())

    def wire(self, key: str, body: Body) -> Wire:
        return self._desk.once("bank.wire", key, body, lambda: self._make(body, key=key))

    def wire_status(self, key: str) -> Status[Wire]:
        rows = self._db.execute("SELECT * FROM wires WHERE key = ? ORDER BY number", (key,))
        return status([_wire(row) for row in rows])

    def plain_wire(self, body: Body) -> Wire:
        reference = text(body, "reference")
        return self._desk.each_time(
            "bank.plain_wire", reference, lambda: self._make(body, reference=reference)
        )

    def plain_wires(self, reference: str) -> list[Wire]:
        rows = self._db.execute(
            "SELECT * FROM wires WHERE reference = ? ORDER BY number", (reference,)
        )
        return [_wire(row) for row in rows]

    def reverse(self, wire_id: str) -> Wire:
        return self._desk.once("bank.reverse", wire_id, {}, lambda: self._reverse(wire_id))

    def wires(self) -> list[Wire]:
        return [_wire(row) for row in self._db.execute("SELECT * FROM wires ORDER BY number")]

    def _make(self, body: Body, *, key: str | None = None, reference: str | None = None) -> Wire:
        source, target, cents = text(body, "from"), text(body, "to"), positive(body, "cents")
        if source == target:
            raise Refusal(f"'from' and 'to' are both {source!r}")
        self._move(source, target, cents)
        made = self._db.execute(
            'INSERT INTO wires (key, reference, "from", "to", cents) VALUES (?, ?, ?, ?, ?)'
            " RETURNING *",
            (key, reference, source, target, cents),
        )
        return _wire(made.fetchone())

    def _reverse(self, wire_id: str) -> Wire:
        row = self._db.execute("SELECT * FROM wires WHERE id = ?", (wire_id,)).fetchone()
        if row is None:
            raise Refusal(f"there is no wire {wire_id!r}", HTTPStatus.NOT_FOUND)
        wire = _wire(row)
        self._move(wire["to"], wire["from"], wire["cents"])
        self._db.execute("UPDATE wires SET reversed = 1 WHERE number = ?", (row["number"],))
        return {**wire, "reversed": True}

    def _move(self, source: str, target: str, cents: int) -> None:
        balances = self.balances()
        for account in (source, target):
            if account not in balances:
                raise Refusal(f"there is no account {account!r}; there are {', '.join(balances)}")
        if balances[source] < cents:
            raise Refusal(f"{source!r} holds {balances[source]} cents, which is less than {cents}")
        self._db.executemany(
            "UPDATE accounts SET cents = cents + ? WHERE name = ?",
            [(-cents, source), (cents, target)],
        )


def _wire(row: sqlite3.Row) -> Wire:
    return {
        "id": row["id"],
        "key": row["key"],
        "reference": row["reference"],
        "from": row["from"],
        "to": row["to"],
        "cents": row["cents"],
        "reversed": bool(row["reversed"]),
    }
