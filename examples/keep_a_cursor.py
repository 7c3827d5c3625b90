"""A follower that keeps its cursor beside its results, so that each entry has its effect once.

    python examples/keep_a_cursor.py

The results here are totals per customer in a SQLite file of the follower's own. Totals and cursor
change in one transaction: if the process dies between two pages, the next start goes on from the
last page whose totals were kept.
"""

# ruff: noqa: T201 - an example shows what it found

import contextlib
import sqlite3
import tempfile
from pathlib import Path

import tape


def catch_up(client: tape.TapeClient, totals: sqlite3.Connection) -> int:
    """Deal with everything new; how many entries that was."""
    totals.execute("CREATE TABLE IF NOT EXISTS cursor (at INTEGER)")
    totals.execute("CREATE TABLE IF NOT EXISTS totals (customer TEXT PRIMARY KEY, total REAL)")
    (after,) = totals.execute("SELECT coalesce(max(at), 0) FROM cursor").fetchone()
    handled = 0
    for page in client.pages("/tape/event/recorded/order.paid/**", after=after, live=False):
        with totals:  # one transaction
            for entry in page.entries:
                totals.execute(
                    "INSERT INTO totals VALUES (?, ?)"
                    " ON CONFLICT (customer) DO UPDATE SET total = total + excluded.total",
                    (entry.entity_id, entry.payload["amount"]),
                )
            totals.execute("INSERT INTO cursor VALUES (?)", (page.cursor,))
        handled += len(page.entries)
    return handled


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with (
            tape.connect(f"sqlite:{folder / 'tape.db'}") as client,
            contextlib.closing(sqlite3.connect(folder / "totals.db")) as totals,
        ):
            for customer, amount in (("ada", 10.0), ("grace", 7.5), ("ada", 2.5)):
                client.record(
                    "order.paid", {"amount": amount}, entity_type="customer", entity_id=customer
                )
            print("handled", catch_up(client, totals))
            print("handled", catch_up(client, totals), "the second time")
            client.record("order.paid", {"amount": 1.0}, entity_type="customer", entity_id="grace")
            print("handled", catch_up(client, totals), "new")
            print(dict(totals.execute("SELECT customer, total FROM totals ORDER BY customer")))


if __name__ == "__main__":
    main()
