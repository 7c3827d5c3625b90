"""DBOS, the peer of durable runs, as its own documentation has it at its fastest.

Workflows are called directly and not through a queue, telemetry is off, connections are not pinged
before each use, SQLite keeps a write-ahead log; as durable as it ships. Synchronous workflows on
threads of the caller and asynchronous ones are both measured: which is faster depends on the
machine. DBOS is one per process, so each measurement has a process of its own (`runs_dbos`).
"""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import orjson

Measure = Literal["runs", "steps"]
Style = Literal["threads", "async"]

COUNTS: dict[Measure, int] = {"runs": 400, "steps": 800}
SLOW_S = 120.0


class DbosSetup(NamedTuple):
    style: Style
    pool: int

    def __str__(self) -> str:
        return f"DBOS, {self.style}, pool of {self.pool}"


DBOS_SETUPS = (DbosSetup("threads", 20), DbosSetup("threads", 4), DbosSetup("async", 8))


class PeerRate(NamedTuple):
    """Runs of one step, or steps of long runs, per second."""

    measure: Measure
    store: str
    at_once: int
    per_s: float
    setup: str


class PeerFailed(RuntimeError):
    """The process of a peer ended without a figure."""


def measure_dbos(
    measure: Measure, store_url: str, at_once: int, setup: DbosSetup = DBOS_SETUPS[0]
) -> PeerRate:
    """One turn in a process of its own, on a store that nothing else is in."""
    if measure not in get_args(Measure):
        raise ValueError(f"{measure!r} is no measure; there are {', '.join(get_args(Measure))}")
    if at_once < 1 or COUNTS[measure] % at_once:
        raise ValueError(f"{COUNTS[measure]} {measure} cannot be shared evenly by {at_once}")
    store, url = _dbos_store(store_url)
    asked = (measure, url, at_once, COUNTS[measure], setup.style, setup.pool)
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.runs_dbos", *map(str, asked)],
        cwd=Path(__file__).parent.parent, capture_output=True, check=False, timeout=SLOW_S,
    )  # fmt: skip
    if done.returncode:
        raise PeerFailed(f"{setup}: {done.stderr.decode(errors='replace')[-2000:].strip()}")
    return PeerRate(measure, store, at_once, orjson.loads(done.stdout)["per_s"], str(setup))


def best_dbos(measure: Measure, fresh: Callable[[], str], at_once: int) -> DbosSetup:
    """The fastest of one turn each, in a fresh store."""
    rates = {setup: measure_dbos(measure, fresh(), at_once, setup).per_s for setup in DBOS_SETUPS}
    return max(rates, key=rates.__getitem__)


def _dbos_store(store_url: str) -> tuple[str, str]:
    """The store's name, and its address as SQLAlchemy spells it."""
    scheme, _, rest = store_url.partition(":")
    match scheme:
        case "postgres" | "postgresql":
            return "Postgres", f"postgresql:{rest}"
        case "sqlite":
            return "SQLite", f"sqlite:///{Path(rest).absolute()}"
        case _:
            raise ValueError(
                f"{store_url!r} is no store here; begin it with postgres:// or sqlite:"
            )
