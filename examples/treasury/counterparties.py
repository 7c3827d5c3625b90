"""A bank, a broker and a ledger in one process that can be killed and goes on where it was.

    python -m examples.treasury.counterparties --port 0 --state counterparties.db

It prints `http HOST:PORT` when it is ready. Requests are served one after another on the event
loop: nothing here waits, so no two acts are ever halfway at the same time.

What shall go wrong is set by `POST /hooks`, as `{"route": "bank.wire", "do": "fail", "times": 1}`:

lose_ack   do the work, then close the connection without an answer
fail       answer 503 before doing anything
refuse     answer 422 before doing anything
crash      do the work, then kill this process with SIGKILL
twice      make two wires where one was asked for
"""

# ruff: noqa: T201 - a server says where it listens

import argparse
import contextlib
import socket
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Self

import uvicorn
from starlette.applications import Starlette

from examples.treasury.bank import FakeBank
from examples.treasury.broker import FakeBroker
from examples.treasury.desk import Desk
from examples.treasury.ledger import FakeLedger
from examples.treasury.records import Books
from examples.treasury.serving import (
    ERRORS,
    CanHangUp,
    delete,
    get,
    get_by,
    post,
    post_keyed,
    post_to,
)

HOST = "127.0.0.1"
PATIENCE_S = 30


def counterparties(db: sqlite3.Connection, on_ready: Callable[[], None]) -> Starlette:
    """All three over one file, and what a test needs to plan faults and to look at the books."""
    desk = Desk(db)
    bank, broker, ledger = FakeBank(db, desk), FakeBroker(db, desk), FakeLedger(db, desk)

    def books() -> Books:
        return {"wires": bank.wires(), "orders": broker.orders(), "batches": ledger.batches()}

    @contextlib.asynccontextmanager
    async def serving(_app: Starlette) -> AsyncIterator[None]:
        on_ready()
        yield
        db.close()

    routes = [
        get("/bank/balances", bank.balances),
        post_keyed("/bank/wires", bank.wire),
        get_by("/bank/wires", "key", bank.wire_status),
        post("/bank/plain-wires", bank.plain_wire),
        get_by("/bank/plain-wires", "reference", bank.plain_wires),
        post_to("/bank/wires/{id}/reverse", bank.reverse),
        get_by("/broker/price", "pair", broker.quote),
        post_keyed("/broker/orders", broker.order),
        get_by("/broker/orders", "key", broker.order_status),
        post_to("/broker/orders/{id}/cancel", broker.cancel),
        post_keyed("/ledger/batches", ledger.post),
        get_by("/ledger/batches", "key", ledger.batch_status),
        post("/hooks", desk.set_hook),
        delete("/hooks", desk.clear_hooks),
        get("/calls", desk.calls),
        get("/books", books),
    ]
    return Starlette(routes=routes, exception_handlers=ERRORS, lifespan=serving)


class CounterpartyServer:
    """The process, for tests and for the example. Use with `with`.

    `start` after `kill`, `stop` or `wait` finds it on the same port, with the same books.
    """

    def __init__(self, state: Path) -> None:
        self._state = state.absolute()
        self._port = 0
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        if self._process is not None:
            self.stop()

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._port}"

    @property
    def pid(self) -> int:
        return self._running().pid

    def start(self) -> None:
        """Start it and wait for the line that says it is ready."""
        if self._process is not None:
            raise RuntimeError("the counterparties are running")
        options = ["--port", str(self._port), "--state", str(self._state)]
        self._process = subprocess.Popen(  # noqa: S603 - this very module
            [sys.executable, "-m", "examples.treasury.counterparties", *options],
            cwd=Path(__file__).parents[2],
            stdout=subprocess.PIPE,
            text=True,
        )
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line.startswith(f"http {HOST}:"):
            self.kill()
            raise RuntimeError(f"the counterparties said {line!r} instead of being ready")
        self._port = int(line.rpartition(":")[2])

    def stop(self) -> None:
        """Ask it to end."""
        self._running().terminate()
        self.wait()

    def kill(self) -> None:
        """kill -9."""
        self._running().kill()
        self.wait()

    def wait(self) -> int:
        """Wait until it has ended, by itself too, as after the hook `crash`; its exit code."""
        process = self._running()
        code = process.wait(PATIENCE_S)
        if process.stdout is not None:
            process.stdout.close()
        self._process = None
        return code

    def _running(self) -> "subprocess.Popen[str]":
        if self._process is None:
            raise RuntimeError("the counterparties are not running")
        return self._process


def main() -> None:
    parser = argparse.ArgumentParser(description="A pretended bank, broker and ledger.")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--state", type=Path, required=True, help="a SQLite file for the books")
    chosen = parser.parse_args()
    try:
        listener = socket.create_server((HOST, chosen.port))
    except (OSError, OverflowError) as error:
        parser.error(f"cannot listen on port {chosen.port}: {error}")
    address = f"{HOST}:{listener.getsockname()[1]}"
    try:
        db = _opened(chosen.state)
        app = counterparties(db, on_ready=lambda: print("http", address, flush=True))
    except sqlite3.Error as error:
        parser.error(f"cannot keep books in {chosen.state}: {error}")
    config = uvicorn.Config(app, http=CanHangUp, log_level="warning")
    uvicorn.Server(config).run(sockets=[listener])


def _opened(state: Path) -> sqlite3.Connection:
    db = sqlite3.connect(state)
    db.row_factory = sqlite3.Row
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    return db


if __name__ == "__main__":
    main()
