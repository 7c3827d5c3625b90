"""Rows of runs with no store below, and the checks that hold for every move that is played there.

A move sees only the rows it has named, its entries continue the journals of their runs without a
gap, and a refusal leaves everything as it was.
"""

import itertools
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import orjson
import pytest

from tape.errors import InvalidArgument, TapeError
from tape.model.effect import EFFECTS, Effect
from tape.model.entry import EntryDraft
from tape.model.gate import GATES, Gate
from tape.model.lease import (
    WHOEVER,
    BeginRun,
    Begun,
    HeartbeatRun,
    NewRun,
    ReleaseRun,
    ResumeRun,
    Taker,
)
from tape.model.move import EntryPlace, Need, State, Table
from tape.model.obligation import OBLIGATIONS, Obligation, ObligationKey
from tape.model.run import RUNS, Run, RunName
from tape.model.run_change import IDS_PER_WRITE, ChangeRun, ExtendRun
from tape.model.run_end import child_gate
from tape.model.run_write import Extended, RunWrite
from tape.model.subject import parse_subject
from tape.model.timer import TIMERS, Timer
from tape.settings import Limits

LIMITS = Limits()
NOW = 1_000_000
TTL = 30_000
NAME = RunName("app", "user", "session", "1")
RUN = NAME.run_id
CHILD_NAME = RunName("app", "user", "session", "child")
CHILD = CHILD_NAME.run_id

Name = tuple[Table[Any, Any], Hashable]
Rows = dict[Name, tuple[Any, ...]]

_IDS = map(str, itertools.count())


class NamedOnly(State):
    """Rows of which a move may look only at those that it has named."""

    __slots__ = ("_named",)

    def __init__(self, now_ms: int, named: set[Name]) -> None:
        super().__init__(now_ms, 1)
        self._named = named

    def get(self, table: Table[Any, Any], key: Hashable) -> Any:
        assert (table, key) in self._named, f"{table.name} {key} was looked at but not named"
        return super().get(table, key)


class World:
    def __init__(self) -> None:
        self.now_ms = NOW
        self.rows: Rows = {}
        self.entries: list[EntryDraft] = []
        self.changes = 0
        """How many rows were written."""

    def get(self, table: Table[Any, Any], key: Hashable) -> Any:
        return self.rows.get((table, key))

    def put(self, table: Table[Any, Any], row: tuple[Any, ...]) -> None:
        """A row as it is, past all rules."""
        self.rows[table, table.key(row)] = row

    def all(self, table: Table[Any, Any], run_id: str = RUN) -> list[Any]:
        return [row for (t, _), row in self.rows.items() if t is table and row[0] == run_id]

    def play(self, move: Any) -> Any:
        named = set(names(move.needs()))
        state = NamedOnly(self.now_ms, named)
        for table, key in named & self.rows.keys():
            state.put_loaded(table, [self.rows[table, key]])
        decision = move.decide(state)
        self._take(decision.entries)
        self.changes += len(decision.changes)
        for table, key, row in decision.changes:
            assert (table, key) in named, f"{table.name} {key} is written but was not named"
            assert table.key(row) == key
            self.rows[table, key] = row
        for draft in decision.entries:
            assert self.run(draft.run_id or "").seq_cursor == self.last_seq(draft.run_id or "")
        return decision.reply(EntryPlace(1, self.now_ms))

    def _take(self, drafts: Sequence[EntryDraft]) -> None:
        for draft in drafts:
            assert draft.seq == self.last_seq(draft.run_id or "") + 1
            assert parse_subject(draft.subject)[0] == draft.kind
            orjson.loads(draft.payload_json)
            assert draft.event_id not in {entry.event_id for entry in self.entries}
            self.entries.append(draft)

    def last_seq(self, run_id: str) -> int:
        seqs = [draft.seq for draft in self.entries if draft.run_id == run_id]
        return seqs[-1] or 0 if seqs else 0

    def verbs(self, run_id: str = RUN) -> list[str]:
        """The entries of a run as `kind verb`."""
        subjects = [parse_subject(d.subject) for d in self.entries if d.run_id == run_id]
        return [f"{kind} {verb}" for kind, verb, *_ in subjects]

    def payload(self, index: int = -1) -> Any:
        return orjson.loads(self.entries[index].payload_json)

    def begin(
        self,
        owner: str = "a",
        name: RunName = NAME,
        *,
        parent: str = "",
        parent_token: int = 0,
        ttl_ms: int = TTL,
        **fields: Any,
    ) -> Begun:
        new = NewRun(name, parent_run_id=parent, parent_fencing_token=parent_token, **fields)
        begun: Begun = self.play(BeginRun(new, Taker(owner, "agent", ttl_ms), next(_IDS), LIMITS))
        return begun

    def resume(self, owner: str = "", run_id: str = RUN, expected_token: int = WHOEVER) -> Run:
        taker = Taker(owner, "recovery", TTL)
        run: Run = self.play(
            ResumeRun(run_id, taker, next(_IDS), LIMITS, expected_token=expected_token)
        )
        return run

    def heartbeat(self, token: int, run_id: str = RUN, ttl_ms: int = TTL) -> Run:
        run: Run = self.play(HeartbeatRun(run_id, token, ttl_ms, LIMITS))
        return run

    def release(
        self, token: int, run_id: str = RUN, *, waiting_on: str = "", seen_seq: int = 0
    ) -> Run:
        move = ReleaseRun(
            run_id, token, next(_IDS), LIMITS, waiting_on=waiting_on, seen_seq=seen_seq
        )
        run: Run = self.play(move)
        return run

    def wait(self, waiting_on: str = "gate g", run_id: str = RUN) -> Run:
        """Let go of the run, having seen all there is."""
        run = self.run(run_id)
        return self.release(
            run.fencing_token, run_id, waiting_on=waiting_on, seen_seq=run.seq_cursor
        )

    def extend(self, token: int, *writes: RunWrite, run_id: str = RUN) -> Extended:
        move = ExtendRun(run_id, token, writes, ids=_ids(len(writes)), limits=LIMITS)
        extended: Extended = self.play(move)
        return extended

    def drive(self, *writes: RunWrite, run_id: str = RUN) -> Any:
        """Write as the run's present driver; the answer to the last."""
        return self.extend(self.run(run_id).fencing_token, *writes, run_id=run_id).replies[-1]

    def change(self, write: RunWrite, run_id: str = RUN) -> Any:
        """Write from outside or under a claim."""
        extended: Extended = self.play(ChangeRun(run_id, [write], ids=_ids(1), limits=LIMITS))
        return extended.replies[0]

    def run(self, run_id: str = RUN) -> Run:
        run = self.get(RUNS, run_id)
        assert isinstance(run, Run)
        return run

    def effect(self, key: str, run_id: str = RUN) -> Effect:
        row = self.get(EFFECTS, (run_id, key))
        assert isinstance(row, Effect)
        return row

    def obligation(self, key: ObligationKey, run_id: str = RUN) -> Obligation:
        row = self.get(OBLIGATIONS, (run_id, *key))
        assert isinstance(row, Obligation)
        return row

    def gate(self, name: str, run_id: str = RUN) -> Gate | None:
        row: Gate | None = self.get(GATES, (run_id, name))
        return row

    def timer(self, timer_id: str, run_id: str = RUN) -> Timer:
        row = self.get(TIMERS, (run_id, timer_id))
        assert isinstance(row, Timer)
        return row


def driven(**run: Any) -> World:
    """A world with one run, held by `a` with token 1."""
    world = World()
    world.begin(**run)
    return world


def with_child() -> World:
    """The same, and a child of it that is held by `c` with token 1."""
    world = driven()
    world.begin("c", CHILD_NAME, parent=RUN, parent_token=1)
    return world


CHILD_GATE = child_gate(CHILD)


def names(needs: Iterable[Need]) -> list[Name]:
    """The rows that are needed, however they are best looked for."""
    return [(need.table, need.key) for need in needs]


@contextmanager
def unchanged(world: World) -> Iterator[None]:
    """Nothing was written, not even the same again."""
    rows, entries, changes = dict(world.rows), list(world.entries), world.changes
    yield
    assert world.rows == rows
    assert world.entries == entries
    assert world.changes == changes


@contextmanager
def refused(
    world: World, error: type[TapeError], field: str | None = None, match: str | None = None
) -> Iterator[None]:
    """By exactly that error, for that field, with nothing changed."""
    with unchanged(world), pytest.raises(error, match=match) as raised:
        yield
    assert type(raised.value) is error
    if isinstance(raised.value, InvalidArgument):
        assert raised.value.field == field


def faulty(write: Any, error: type[InvalidArgument], field: str) -> None:
    """What is handed in like this is refused before it comes to any run."""
    with pytest.raises(error) as raised:
        write.checked(LIMITS)
    assert (type(raised.value), raised.value.field) == (error, field)


def _ids(writes: int) -> list[str]:
    return [next(_IDS) for _ in range(IDS_PER_WRITE * writes)]
