"""A worker whose handlers note when they ran: `python -m …reactions.handling URL FOLDER`.

One line per moment, `reaction what source_seq attempt time`, in a file of this process. The clock
is the machine's own, so that the lines of several processes can be put in order.
"""

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import tape
from tape.reactions import run_dispatcher
from tape.settings import DispatcherSettings, Settings

RATE, OVERLAP_S = 40, 0.08
GRACE_S = 30.0
WINDOW_MS, LONG_WINDOW_MS = 1_500, 4_000
LET_GO = "let-go"
SETTINGS = Settings(dispatcher=DispatcherSettings(grace_s=GRACE_S))
REACTIONS = 6


class Moment(NamedTuple):
    reaction_id: str
    what: str
    source: int
    attempt: int
    at: float


class Notes:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        name = folder / f"{os.getpid()}-{time.time_ns()}.notes"
        self._file = os.open(name, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def note(self, envelope: dict[str, Any], what: str) -> None:
        task = f"{envelope['reaction_id']} {what} {envelope['global_seq']} {envelope['attempt']}"
        os.write(self._file, f"{task} {time.monotonic()}\n".encode())


def read_notes(folder: Path) -> list[Moment]:
    lines = [line for file in folder.glob("*.notes") for line in file.read_text().splitlines()]
    found = []
    for line in lines:
        reaction_id, what, source, attempt, at = line.split()
        found.append(Moment(reaction_id, what, int(source), int(attempt), float(at)))
    return sorted(found, key=lambda moment: moment.at)


def declare(notes: Notes) -> None:
    events = "/tape/event/recorded"

    @tape.on(f"{events}/rated/**", rate_limit_per_s=RATE, max_concurrency=100, reaction_id="rated")
    async def rated(envelope: dict[str, Any]) -> None:
        notes.note(envelope, "start")

    @tape.on(f"{events}/five/**", max_concurrency=5, reaction_id="five")
    async def five(envelope: dict[str, Any]) -> None:
        notes.note(envelope, "start")
        await asyncio.sleep(OVERLAP_S)
        notes.note(envelope, "end")

    @tape.on(f"{events}/one/**", reaction_id="one")
    def one(envelope: dict[str, Any]) -> None:
        notes.note(envelope, "start")
        time.sleep(OVERLAP_S)
        notes.note(envelope, "end")

    @tape.on(
        f"{events}/burst/**", debounce_ms=WINDOW_MS, max_concurrency=10, reaction_id="debounced"
    )
    async def debounced(envelope: dict[str, Any]) -> None:
        notes.note(envelope, "start")

    @tape.on(
        f"{events}/long_burst/**", debounce_ms=LONG_WINDOW_MS, max_concurrency=10,
        reaction_id="long-debounced",
    )  # fmt: skip
    async def long_debounced(envelope: dict[str, Any]) -> None:
        notes.note(envelope, "start")

    @tape.on(f"{events}/slow/**", max_concurrency=1, reaction_id="slow")
    def slow(envelope: dict[str, Any]) -> None:
        notes.note(envelope, "start")
        while not (notes.folder / LET_GO).exists():
            time.sleep(0.02)
        notes.note(envelope, "end")


if __name__ == "__main__":
    url, place = sys.argv[1:]
    declare(Notes(Path(place)))
    run_dispatcher(url, settings=SETTINGS)
