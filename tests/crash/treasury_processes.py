"""What runs beside a treasury run under fire: workers that end themselves, and counterparties."""

import os
import signal
import socket
import sqlite3
from collections import Counter
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import uvicorn

import tape
from examples.treasury.app import treasury
from examples.treasury.counterparties import HOST, counterparties
from examples.treasury.serving import CanHangUp
from tape.programs.worker import WorkerOptions, run_worker
from tape.runs.boundary import set_boundary_hook
from tape.runs.driving import pen
from tape.settings.file import read_settings

NIGHT_S = 0.02


@tape.app("overnight", version="1")
async def overnight(ctx: tape.Context, input: dict[str, Any]) -> Any:  # noqa: A002
    """The treasury after a night's sleep, so that a timer is part of it."""
    await ctx.sleep(NIGHT_S)
    return await treasury(ctx, input)


class Spot(NamedTuple):
    """A boundary: its name, and the how-manieth of that name it is to a worker."""

    name: str
    nth: int

    def __str__(self) -> str:
        return f"{self.name} ({self.nth})"


class Working(NamedTuple):
    """What a worker is given. It ends itself at a spot, if there is one."""

    url: str
    treasury_url: str
    owner: str
    settings: Path
    trail: Path
    """The boundaries that it comes to, a line each."""
    log: Path
    dies_at: Spot | None = None

    @property
    def ready(self) -> Path:
        """Is there once it can be asked to end."""
        return self.trail.with_suffix(".ready")


def work(given: Working) -> None:
    os.environ.update(TREASURY_URL=given.treasury_url, TAPE_LEASE_OWNER=given.owner)
    os.dup2(os.open(given.log, os.O_CREAT | os.O_APPEND | os.O_WRONLY), 2)
    pen.LINGER_S = 0.0  # what goes out by itself does so at once, and not by the clock
    set_boundary_hook(_trail(given.trail, given.dies_at))
    options = WorkerOptions(url=given.url, settings=read_settings(given.settings))
    run_worker(options, on_ready=lambda _ready: given.ready.touch())


def _trail(path: Path, dies_at: Spot | None) -> Callable[[str], None]:
    file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    seen: Counter[str] = Counter()

    def come_to(name: str) -> None:
        os.write(file, f"{name}\n".encode())
        seen[name] += 1
        if dies_at == (name, seen[name]):
            os.kill(os.getpid(), signal.SIGKILL)

    return come_to


def deal(state: Path, ready: Connection) -> None:
    """Be the counterparties; say on which port."""
    db = sqlite3.connect(state)
    db.row_factory = sqlite3.Row
    with socket.create_server((HOST, 0)) as listener:
        port = listener.getsockname()[1]
        app = counterparties(db, on_ready=lambda: ready.send(port))
        config = uvicorn.Config(app, http=CanHangUp, log_level="warning")
        uvicorn.Server(config).run(sockets=[listener])
