"""A worker to be killed: `python -m tests.crash.reactor URL FOLDER REACTIONS`.

Each call of a handler is one line in a file of this process, written before anything else. The late
reaction is declared once there is a file `late` in the folder.
"""

import asyncio
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tape
from tape.reactions import run_dispatcher
from tests.crash.reacting import Planned, plan

SLOW_S = 0.4


class Handlers:
    def __init__(self, folder: Path) -> None:
        name = folder / f"{os.getpid()}-{time.time_ns()}.handled"
        self._file = os.open(name, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def make(self, planned: Planned) -> Callable[[dict[str, Any]], Any]:
        async def slow(envelope: dict[str, Any]) -> None:
            self._note(envelope)
            await asyncio.sleep(SLOW_S)

        async def plain(envelope: dict[str, Any]) -> None:
            self._note(envelope)

        def poison(envelope: dict[str, Any]) -> None:
            self._note(envelope)
            raise ValueError("never")

        def flaky(envelope: dict[str, Any]) -> None:
            self._note(envelope)
            if envelope["attempt"] == 1:
                raise ValueError("not yet")

        return {"slow": slow, "plain": plain, "poison": poison, "flaky": flaky}[planned.behaviour]

    def _note(self, envelope: dict[str, Any]) -> None:
        where = f"{envelope['reaction_id']} {envelope['global_seq']} {envelope['attempt']}\n"
        os.write(self._file, where.encode())


def declare(folder: Path, reactions: int) -> None:
    handlers = Handlers(folder)
    for planned in plan(reactions):
        if planned.late and not (folder / "late").exists():
            continue
        options = planned.options.copy()
        options["predicate"], options["reaction_id"] = planned.predicate, planned.reaction_id
        tape.on(planned.pattern, **options)(handlers.make(planned))


if __name__ == "__main__":
    url, place, count = sys.argv[1:]
    declare(Path(place), int(count))
    run_dispatcher(url)
