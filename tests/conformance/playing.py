"""Playing moves straight onto a store, with no writer between."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from tape.journal.batch import Verdict, decide_all, needs_of, settle
from tape.journal.ids import UlidFactory
from tape.model.entry import Entry
from tape.model.event import NewEvent, Recorded, RecordEvents
from tape.model.move import Decision, EntryPlace, Move, Need, RowChange, State, save
from tape.model.run import RUNS, Run, RunStatus
from tape.ports.store import ReadEntries, Store
from tape.settings import Limits

T = TypeVar("T")

OpenStore = Callable[[], Awaitable[Store]]
LIMITS = Limits()
IDS = UlidFactory()
MANY = 1_000_000


async def attempt(store: Store, *moves: Move[Any]) -> list[Any]:
    """Commit moves as one batch; the reply or the refusal of each."""
    verdicts: list[Verdict] = []

    def decide(state: State) -> None:
        verdicts[:] = decide_all(moves, state)

    place = await store.commit(needs_of(moves), decide)
    return [v if isinstance(v, Exception) else settle(v, place) for v in verdicts]


async def play(store: Store, move: Move[T]) -> T:
    """Commit one move; its reply, or its refusal raised."""
    (outcome,) = await attempt(store, move)
    if isinstance(outcome, Exception):
        raise outcome
    reply: T = outcome
    return reply


def recording(*events: NewEvent) -> RecordEvents:
    return RecordEvents(events, IDS.take(len(events)), LIMITS)


async def record(store: Store, *events: NewEvent) -> list[Recorded]:
    return await play(store, recording(*events))


async def read_all(store: Store, after: int = 0) -> list[Entry]:
    """Every entry there is."""
    upto = (await store.info()).head_global_seq
    return (await store.read_entries(ReadEntries(after, upto, MANY, 1 << 40))).entries


def a_run(run_id: str, **fields: Any) -> Run:
    """A run that is being driven with token 1."""
    plain = Run(
        run_id, "app", "user", "session", run_id, "shared", RunStatus.RUNNING.value, 0, "worker",
        "", 0, 1, 1, 0,
    )  # fmt: skip
    return plain._replace(**fields)


class SaveRows:
    """Write rows as they are given, past all rules."""

    weight = 1

    def __init__(self, *changes: RowChange) -> None:
        self._changes = changes

    def needs(self) -> Sequence[Need]:
        return [Need(change.table, change.key) for change in self._changes]

    def decide(self, _state: State) -> Decision[EntryPlace]:
        return Decision(lambda place: place, [], self._changes)


async def save_run(store: Store, run: Run) -> None:
    await play(store, SaveRows(save(RUNS, run)))


class Look:
    """Answer with rows as a batch sees them, and write nothing."""

    weight = 1

    def __init__(self, *needs: Need) -> None:
        self._needs = needs

    def needs(self) -> Sequence[Need]:
        return self._needs

    def decide(self, state: State) -> Decision[list[Any]]:
        rows = [state.get(table, key) for table, key, _ in self._needs]
        return Decision(lambda _place: rows)


async def load_run(store: Store, run_id: str) -> Run | None:
    (run,) = await play(store, Look(Need(RUNS, run_id)))
    assert run is None or isinstance(run, Run)
    return run
