"""What is counted of a subscription while a program listens for it: ends of runs, dead letters."""

import asyncio
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from tape.model.entry import Entry, Kind
from tape.model.run import STATUS_WORDS, RunStatus
from tape.model.subject import encode_segment
from tape.model.subscription import MESSAGE_USER
from tape.ports.runs import RunQuery
from tape.runs.operations import RunOperations

PAGE: Final = 1_000
NAMED: Final = 10
"""So many failed runs are named."""
ENDED: Final = frozenset(
    STATUS_WORDS[status] for status in (RunStatus.TERMINAL, RunStatus.CANCELLED)
)
FAILED: Final = frozenset(STATUS_WORDS[status] for status in (RunStatus.FAILED, RunStatus.STUCK))
BEGUN: Final = STATUS_WORDS[RunStatus.RUNNABLE]


def word_of(entry: Entry) -> str:
    """What has happened: the verb of its subject."""
    return entry.subject.split("/")[3]


class RunCounts(NamedTuple):
    """`failed` are among the ended; a run that is stuck counts as one."""

    begun: int = 0
    ended: int = 0
    failed: int = 0


class RunTally:
    """Counts runs by their entries, and knows which of them are awaited and have not ended."""

    def __init__(self, awaited_apps: Collection[str] = ()) -> None:
        self._awaited_apps = frozenset(map(encode_segment, awaited_apps))
        self._open: set[str] = set()
        self._changed = asyncio.Event()
        self.counts = RunCounts()
        self.failed: list[str] = []
        self.dead_letters = 0

    @property
    def open(self) -> int:
        """How many awaited runs have not ended."""
        return len(self._open)

    def expect(self, run_ids: Iterable[str]) -> None:
        """These were begun before, and are awaited as well."""
        self._open.update(run_ids)

    def note(self, entry: Entry) -> None:
        if entry.kind == Kind.SUBSCRIPTION:
            self.dead_letters += word_of(entry) == "message_dead_lettered"
        elif entry.kind == Kind.RUN:
            self._note_run(entry, word_of(entry))

    def _note_run(self, entry: Entry, word: str) -> None:
        counts, run_id = self.counts, entry.run_id
        if word == BEGUN and entry.seq == 1:
            self.counts = counts._replace(begun=counts.begun + 1)
            if entry.subject.split("/")[4] in self._awaited_apps:
                self._open.add(run_id)
        elif word in ENDED or word in FAILED:
            has_failed = word in FAILED
            self.counts = counts._replace(ended=counts.ended + 1, failed=counts.failed + has_failed)
            if has_failed and len(self.failed) < NAMED:
                self.failed.append(run_id)
            self._open.discard(run_id)
            self._changed.set()

    async def until_settled(self) -> None:
        """Wait until no awaited run is open."""
        while self._open:
            self._changed.clear()
            await self._changed.wait()


async def open_runs(runs: RunOperations, name: str, apps: Collection[str]) -> list[str]:
    """Runs of a subscription that somebody should drive or drives."""
    found: list[str] = []
    for status in (RunStatus.RUNNABLE, RunStatus.RUNNING):
        query = RunQuery(int(status), limit=PAGE, session=(MESSAGE_USER, name))
        while page := await runs.list_runs(query):
            found += [run.run_id for run in page if run.app_name in apps]
            query = query._replace(after=page[-1].run_id)
    return found
