"""The ledger: batches of lines that balance, each posted once for its key."""

import json
import sqlite3

from examples.treasury.desk import Desk
from examples.treasury.records import Batch, Line, Status, status
from examples.treasury.refusals import Body, Refusal, amount, text

_SCHEMA = """
CREATE TABLE IF NOT EXISTS batches (
    number INTEGER PRIMARY KEY, id TEXT AS ('batch-' || number), key TEXT, lines TEXT
);
CREATE INDEX IF NOT EXISTS batches_by_key ON batches (key);
"""


class FakeLedger:
    def __init__(self, db: sqlite3.Connection, desk: Desk) -> None:
        self._db = db
        self._desk = desk
        db.executescript(_SCHEMA)

    def post(self, key: str, body: Body) -> Batch:
        return self._desk.once("ledger.batch", key, body, lambda: self._make(key, body))

    def batch_status(self, key: str) -> Status[Batch]:
        rows = self._db.execute("SELECT * FROM batches WHERE key = ? ORDER BY number", (key,))
        return status([_batch(row) for row in rows])

    def batches(self) -> list[Batch]:
        return [_batch(row) for row in self._db.execute("SELECT * FROM batches ORDER BY number")]

    def _make(self, key: str, body: Body) -> Batch:
        made = self._db.execute(
            "INSERT INTO batches (key, lines) VALUES (?, ?) RETURNING *",
            (key, json.dumps(_balanced(body.get("lines")))),
        )
        return _batch(made.fetchone())


def _balanced(lines: object) -> list[Line]:
    if not isinstance(lines, list) or not lines:
        raise Refusal(f"'lines' must be a list of lines, not {lines!r}")
    found = [_line(line) for line in lines]
    if over := sum(line["cents"] for line in found):
        raise Refusal(f"the lines do not balance: they add up to {over} cents instead of 0")
    return found


def _line(line: object) -> Line:
    if not isinstance(line, dict):
        raise Refusal(f"a line must hold 'account' and 'cents', and one is {line!r}")
    return {"account": text(line, "account"), "cents": amount(line, "cents")}


def _batch(row: sqlite3.Row) -> Batch:
    return {"id": row["id"], "key": row["key"], "lines": json.loads(row["lines"])}
