"""A bad day for the treasury, from start to end: `python -m examples.treasury.tour`.

The bank wires and its answer is lost. The broker makes the order and crashes before it answers.
While it is away the worker is killed. When all are back there is one of everything.
"""

# ruff: noqa: T201 - a tour is told

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import tape
from examples.treasury.app import treasury
from examples.treasury.clients import Controls
from examples.treasury.counterparties import CounterpartyServer

ROOT = Path(__file__).parents[2]
TAPE = [sys.executable, "-m", "tape.cli"]
SHORT_LEASES = """
tape:
  reactors:
    poll_s: 0.1
    recovery: {lease_ttl_s: 1}
    outbox: {lease_ttl_s: 1}
    reconciler: {lease_ttl_s: 1}
"""


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        with CounterpartyServer(place / "books.db") as server, Controls(server.url) as controls:
            return _tour(place, server, controls)


def _tour(place: Path, server: CounterpartyServer, controls: Controls) -> int:
    store = f"sqlite:{place / 'tape.db'}"
    (place / "tape.yaml").write_text(SHORT_LEASES)
    env = os.environ | {
        "TAPE_CONFIG": str(place / "tape.yaml"),
        "TREASURY_URL": server.url,
    }
    controls.set_hook("bank.wire", "lose_ack")
    controls.set_hook("broker.order", "crash")
    with tape.connect(store) as client:
        run = client.start_run(treasury, {"floor_cents": 4_000_000_00})
        with _worker(store, env) as first:
            server.wait()
            with client.follow("/tape/effect/unknown/hedge/**") as doubts:
                next(iter(doubts))
            first.kill()
            print("the broker has crashed with the order made, and the worker was killed")
        server.start()
        with _worker(store, env):
            client.run_result(run.run_id)
    show = [*TAPE, "runs", "show", run.run_id, "--store", store]
    subprocess.run(show, cwd=ROOT, env=env, check=True)  # noqa: S603 - our own command
    books = controls.books()
    made = {
        "sweeps": sum(wire["to"] == "reserve" for wire in books["wires"]),
        "fees": sum(wire["to"] == "supplier" for wire in books["wires"]),
        "hedges": len(books["orders"]),
        "batches": len(books["batches"]),
    }
    print(", ".join(f"{name}: {count}" for name, count in made.items()))
    return 0 if set(made.values()) == {1} else 1


@contextmanager
def _worker(store: str, env: dict[str, str]) -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen(  # noqa: S603 - our own command
        [*TAPE, "worker", "-m", "examples.treasury.app", "--store", store],
        # What goes wrong is part of the tour, and told there.
        cwd=ROOT, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    sys.exit(main())
