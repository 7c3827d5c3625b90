"""A program that commits an order with its event, writes another, and is killed before it commits.

`python killed_program.py STORE_URL`
"""

import signal
import sqlite3
import sys
from typing import Any

import psycopg

import tape


def place(connection: Any, orders: str, order: str) -> None:
    connection.execute(f"INSERT INTO {orders} VALUES ('{order}')")
    tape.publish_within(connection, "orders.placed", {"order": order}, entity_id=order)


url = sys.argv[1]
connection: Any
if url.startswith("sqlite:"):
    connection, orders = sqlite3.connect(url.removeprefix("sqlite:")), "shop_orders"
else:
    connection, orders = psycopg.connect(url), "shop.orders"
place(connection, orders, "committed")
connection.commit()
place(connection, orders, "not committed")
print("committed one, wrote another", flush=True)
signal.pause()
