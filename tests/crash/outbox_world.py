"""Postgres, NATS, relays and producers as processes, and a consumer that notes what it gets."""

import asyncio
import contextlib
import json
import sqlite3
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from tape.programs.consumers import Consumer, Message, consume
from tape.settings import ConsumerSettings, Settings
from tape.stores.by_url import open_store
from tests.crash.outbox_producer import connected, transaction
from tests.servers.nats import NatsServer
from tests.servers.postgres import PostgresServer
from tests.servers.tape_worker import WorkerProcess

STREAM = "crash-bus"
BOUND_S = 60.0
HUNG_S, LEAD_RETRY_S = 2.0, 0.3
SETTINGS = """
tape:
  outbox:
    nats: "nats://{nats}"
    hung_s: {hung_s}
    lead_retry_s: {lead_retry_s}
    backoff_first_s: 0.1
    backoff_most_s: 0.5
  stream:
    name: {stream}
    subjects: ["own.>", "shared.>"]
"""


class Got(NamedTuple):
    """One delivery of a message."""

    message_id: str
    subject: str
    global_seq: int
    stream_seq: int
    deliveries: int


class Witness:
    """A durable consumer on a thread of its own."""

    def __init__(self, nats_url: str) -> None:
        self.got: list[Got] = []
        self.seen: set[str] = set()
        self._url = nats_url
        self._stop = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._fault: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="witness", daemon=True)

    def __enter__(self) -> "Witness":
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(BOUND_S)
        if self._fault is not None:
            raise self._fault

    def _run(self) -> None:
        try:
            asyncio.run(self._consume())
        except BaseException as fault:  # noqa: BLE001 - raised where it is waited for
            self._fault = fault

    async def _consume(self) -> None:
        self._loop = asyncio.get_running_loop()
        consumer = Consumer(
            self._url,
            stream=STREAM,
            durable="witness",
            subject=["own.>", "shared.>"],
            in_order=True,
            settings=ConsumerSettings(ack_wait_s=2.0, reconnect_first_s=0.05),
        )
        await consume(consumer, self._note, stop=self._stop)

    async def _note(self, message: Message) -> None:
        place = (message.global_seq, message.stream_seq, message.deliveries)
        self.got.append(Got(message.message_id, message.subject, *place))
        self.seen.add(message.message_id)


class World:
    """On a Postgres of its own, or else on a SQLite file."""

    def __init__(
        self, folder: Path, postgres: PostgresServer | None, nats: NatsServer, database: str
    ) -> None:
        self.folder = folder
        self.postgres = postgres
        self.nats = nats
        self.url = postgres.url(database) if postgres else f"sqlite:{folder / 'tape.db'}"
        self.outbox = "bus.outbox" if postgres else "bus_outbox"
        self.relays: list[WorkerProcess] = []
        self._started = 0
        self._producers: list[subprocess.Popen[bytes]] = []
        self._config = folder / "tape.yaml"
        self._config.write_text(
            SETTINGS.format(
                nats=nats.address, stream=STREAM, hung_s=HUNG_S, lead_retry_s=LEAD_RETRY_S
            )
        )

    def start_relay(self) -> WorkerProcess:
        self._started += 1
        relay = WorkerProcess(
            "-m", "tape.cli", "outbox", "relay", "--verbose", "--config", str(self._config),
            "--store", self.url, log=self.folder / f"relay-{self._started}.log",
        )  # fmt: skip
        relay.start()
        self.relays.append(relay)
        return relay

    def start_producers(self, processes: int, threads: int, transactions: int, seed: int) -> None:
        each = transactions // (processes * threads)
        for process in range(processes):
            command = ["-m", "tests.crash.outbox_producer", self.url, str(process), str(threads)]
            self._producers.append(
                subprocess.Popen(
                    [sys.executable, *command, str(each), str(seed)], stdout=subprocess.PIPE
                )
            )

    def await_producers(self) -> int:
        """How many transactions were rolled back on purpose."""
        rolled_back = 0
        for producer in self._producers:
            said, _ = producer.communicate(timeout=1_800)
            assert producer.returncode == 0
            rolled_back += json.loads(said)["rolled_back"]
        return rolled_back

    def rows(self, sql: str) -> list[Any]:
        """What a query says, also while the database is starting."""

        if self.postgres is None:
            with contextlib.closing(sqlite3.connect(self.folder / "tape.db", timeout=30)) as file:
                return file.execute(sql).fetchall()

        def ask() -> list[Any] | None:
            try:
                with psycopg.connect(self.url, autocommit=True, connect_timeout=5) as database:
                    return [database.execute(sql.encode()).fetchall()]
            except psycopg.OperationalError:
                return None

        return list(until(ask)[0])

    def leader(self) -> tuple[int, int]:
        """The last term and the process that was elected for it."""
        found = self.rows("SELECT term, owner FROM tape_relays WHERE relay = 'nats'")
        if not found:
            return 0, 0
        ((term, owner),) = found
        return term, int(owner.split("-")[-2])

    def await_leader(self, after: int) -> tuple[int, int]:
        """A leader of a later term that is one of ours and alive."""

        def elected() -> tuple[int, int] | None:
            term, pid = self.leader()
            alive = pid in {relay.pid for relay in self.relays if not relay.has_ended}
            return (term, pid) if term > after and alive else None

        found: tuple[int, int] = until(elected)
        return found

    def kill_leader(self, after: int) -> int:
        """kill -9 of whoever leads a term later than that, and another one in its place."""
        term, pid = self.await_leader(after)
        (leading,) = [relay for relay in self.relays if relay.pid == pid]
        leading.kill()
        self.relays.remove(leading)
        self.start_relay()
        return term

    def close(self) -> None:
        for relay in self.relays:
            relay.kill()
        for producer in self._producers:
            if producer.poll() is None:
                producer.kill()
                producer.wait(30)


def until(found: Callable[[], Any], bound_s: float = BOUND_S) -> Any:
    """What it finds, once it does: other processes tell us nothing."""
    give_up = time.monotonic() + bound_s
    while not (result := found()):
        assert time.monotonic() < give_up, "it did not happen in time"
        time.sleep(0.02)
    return result


@contextlib.contextmanager
def a_world(
    folder: Path, *, on_sqlite: bool = False, shared: PostgresServer | None = None
) -> Iterator[World]:
    """With a Postgres of its own that may be restarted, or on one that others use."""
    with contextlib.ExitStack() as running:
        nats = running.enter_context(NatsServer())
        postgres, database = shared, f"bus_{uuid.uuid4().hex[:8]}"
        if postgres is None and not on_sqlite:
            postgres = running.enter_context(PostgresServer())
        if postgres is not None:
            postgres.create_database(database)
        world = World(folder, postgres, nats, database)

        async def migrate() -> None:
            await (await open_store(world.url, Settings())).close()

        asyncio.run(migrate())
        with connected(world.url) as database, transaction(database, rolls_back=False):
            database.execute(
                "CREATE TABLE orders (event_id TEXT PRIMARY KEY, subject TEXT, producer TEXT, "
                "n INTEGER)"
            )
        try:
            yield world
        finally:
            world.close()
