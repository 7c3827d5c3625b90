"""A process of producers: transactions with a domain row and an event each, a third rolled back.

Each thread has a subject of its own, into which it counts, and writes into subjects that all share.
A database that goes away is waited for; whether the transaction that was cut off has committed,
nobody needs to know: its domain row tells.
"""

import contextlib
import json
import random
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg

import tape

SHARED = 32
MOST_EVENTS = 3
LONGEST_PAUSE_S = 0.02


class Producer(threading.Thread):
    def __init__(self, url: str, name: str, transactions: int, seed: str) -> None:
        super().__init__(name=name)
        self._url = url
        self._name = name
        self._transactions = transactions
        self._random = random.Random(f"{seed}-{name}")
        self._count = 0
        self.rolled_back = 0
        self.fault: BaseException | None = None

    def run(self) -> None:
        try:
            done = 0
            while done < self._transactions:
                try:
                    with connected(self._url) as connection:
                        while done < self._transactions:
                            self._transaction(connection)
                            done += 1
                except psycopg.OperationalError:
                    time.sleep(0.05)
        except BaseException as fault:  # noqa: BLE001 - the main thread tells of it
            self.fault = fault

    def _transaction(self, connection: Any) -> None:
        time.sleep(self._random.uniform(0, LONGEST_PAUSE_S))
        rolls_back = self._random.random() < 1 / 3
        with transaction(connection, rolls_back=rolls_back):
            for _ in range(self._random.randint(1, MOST_EVENTS)):
                self._event(connection)
        self.rolled_back += rolls_back

    def _event(self, connection: Any) -> None:
        self._count += 1
        own = self._random.random() < 0.25
        number = self._random.randrange(SHARED)
        subject = f"own.{self._name}" if own else f"shared.s{number}"
        payload = {"producer": self._name, "n": self._count}
        event_id = tape.publish_within(connection, subject, payload)
        statement = "INSERT INTO orders (event_id, subject, producer, n) VALUES (?, ?, ?, ?)"
        if not isinstance(connection, sqlite3.Connection):
            statement = statement.replace("?", "%s")
        connection.execute(statement, (event_id, subject, self._name, self._count))


@contextlib.contextmanager
def connected(url: str) -> Iterator[Any]:
    if not url.startswith("sqlite:"):
        with psycopg.connect(url) as connection:
            yield connection
        return
    path = url.removeprefix("sqlite:")
    with contextlib.closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as file:
        yield file


@contextlib.contextmanager
def transaction(connection: Any, *, rolls_back: bool) -> Iterator[None]:
    if isinstance(connection, sqlite3.Connection):
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK" if rolls_back else "COMMIT")
    else:
        with connection.transaction(force_rollback=rolls_back):
            yield


def main(url: str, process: str, threads: str, transactions: str, seed: str) -> None:
    producers = [
        Producer(url, f"p{process}-{number}", int(transactions), seed)
        for number in range(int(threads))
    ]
    for producer in producers:
        producer.start()
    for producer in producers:
        producer.join()
    for producer in producers:
        if producer.fault is not None:
            raise producer.fault
    rolled_back = sum(producer.rolled_back for producer in producers)
    print(json.dumps({"rolled_back": rolled_back}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
