"""Programs that write the outbox in every way there is, and repeat their keys and ids.

Each row has a twin in the program's own table `sent`, written in the same transaction, so what was
committed can be told afterwards. Some transactions are rolled back.
"""

import random
import sqlite3
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import tape
from tape.brokers.nats import header_bytes
from tape.journal.ids import UlidFactory
from tape.model.outbox import OutboxRow
from tape.outbox.term import outgoing
from tape.wire.cloudevents import cloud_event, text_headers
from tests.crash.outbox_producer import connected, transaction

MAX_PAYLOAD = 1 << 20  # of a NATS server that nobody has told otherwise
KEYED, KEYS = 6, 8
IDS_SUBJECTS = 4


class Event(NamedTuple):
    subject: str
    payload: str
    key: str = ""
    event_id: str = ""
    """Where it is the producer's own, in a row by hand."""


Way = Callable[[Any, Event], str]


def by_publish_within(connection: Any, event: Event) -> str:
    value = event.payload[1:-1] if event.payload.startswith('"') else int(event.payload)
    return str(tape.publish_within(connection, event.subject, value, idempotency_key=event.key))


def by_function(connection: Any, event: Event) -> str:
    statement = "SELECT bus.publish(%s, %s, idempotency_key => %s)"
    row = connection.execute(statement, (event.subject, event.payload, event.key)).fetchone()
    return str(row[0])


def by_hand(connection: Any, event: Event) -> str:
    event_id = event.event_id or draw_id()
    statement = (
        "INSERT INTO bus.outbox (event_id, subject, payload_json, idempotency_key) "
        "VALUES (%s, %s, %s, %s)"
    )
    execute(connection, statement, (event_id, event.subject, event.payload, event.key or None))
    return event_id


def execute(connection: Any, statement: str, values: tuple[Any, ...]) -> None:
    if isinstance(connection, sqlite3.Connection):
        statement = statement.replace("%s", "?").replace("bus.", "bus_")
    connection.execute(statement, values)


class _Ids:
    """For all threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._factory = UlidFactory()

    def __call__(self) -> str:
        with self._lock:
            return next(self._factory)


draw_id = _Ids()


class Programs:
    """`done` counts the transactions of all of them."""

    def __init__(self, url: str, transactions: int, seed: str, threads: int = 3) -> None:
        self.url = url
        self.done = 0
        self.rolled_back = 0
        self._each = transactions // threads
        self._lock = threading.Lock()
        self._used: list[Event] = []
        self._faults: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._run, args=(f"{seed}-{number}",), daemon=True)
            for number in range(threads)
        ]
        postgres = not url.startswith("sqlite:")
        self.ways: list[Way] = [by_publish_within, by_hand, *([by_function] if postgres else [])]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join()
        if self._faults:
            raise self._faults[0]

    def write(self, events: list[tuple[Way, Event]], *, rolls_back: bool = False) -> None:
        with connected(self.url) as connection:
            self._write(connection, events, rolls_back=rolls_back)

    def _run(self, seed: str) -> None:
        chance = random.Random(seed)
        try:
            with connected(self.url) as connection:
                for _ in range(self._each):
                    rolls_back = chance.random() < 1 / 4
                    events = [self._draw(chance) for _ in range(chance.randint(1, 3))]
                    self._write(connection, events, rolls_back=rolls_back)
                    with self._lock:
                        self.done += 1
                        self.rolled_back += rolls_back
        except BaseException as fault:  # noqa: BLE001 - join tells of it
            self._faults.append(fault)

    def _write(self, connection: Any, events: list[tuple[Way, Event]], *, rolls_back: bool) -> None:
        with transaction(connection, rolls_back=rolls_back):
            for way, event in events:
                event_id = way(connection, event)
                row = (event_id, event.subject, event.payload, event.key)
                execute(connection, "INSERT INTO sent VALUES (%s, %s, %s, %s)", row)

    def _draw(self, chance: random.Random) -> tuple[Way, Event]:
        what = chance.random()
        payload = str(chance.randrange(10**6))
        if what < 0.4:
            return chance.choice(self.ways), Event(f"own.plain{chance.randrange(8)}", payload)
        if what < 0.8:
            subject = f"shared.keyed{chance.randrange(KEYED)}"
            return chance.choice(self.ways), Event(subject, payload, f"k{chance.randrange(KEYS)}")
        return by_hand, self._draw_id(chance, payload)

    def _draw_id(self, chance: random.Random, payload: str) -> Event:
        """An id of its own, or one that was used: for the same event, or now and then another."""
        with self._lock:
            if self._used and chance.random() < 0.5:
                used = chance.choice(self._used)
                return used._replace(payload=payload) if chance.random() < 0.2 else used
            subject = f"own.ids{chance.randrange(IDS_SUBJECTS)}"
            event = Event(subject, payload, event_id=draw_id())
            self._used.append(event)
            return event


def large_events(ways: list[Way], places: int) -> list[tuple[Way, Event]]:
    """Around the server's limit, headers counted, each on a subject of its own with one behind it.

    How many digits the place on the journal has (`places`), and with them the headers, is known
    only later: a byte or two more or less.
    """
    events: list[tuple[Way, Event]] = []
    for number, way in enumerate(ways):
        for step, over in enumerate((-3, -1, 0, 1, 3)):
            subject = f"own.large{number}-{step}"
            row = OutboxRow(
                1, draw_id(), subject, "1", 1, "", "", None, "", "", 0, "", "", "", 1,
                10 ** (places - 1), 0, "",
            )  # fmt: skip
            headers = text_headers(cloud_event(outgoing(row)))
            room = MAX_PAYLOAD - header_bytes({**headers, "Nats-Msg-Id": row.event_id})
            events += [
                (way, Event(subject, f'"{"x" * (room + over - 2)}"')),
                (way, Event(subject, "7")),
            ]
    return events
