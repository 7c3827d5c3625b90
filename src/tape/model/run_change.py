"""Changing a run: several writes for one run in one move, each with its entries on its journal.

A *write* is a command of a noun's module (`effect.BeginEffect`, `decision.RecordDecision`, …): a
pure function of the run and the rows it names. Who may make it:

* the run's driver, through `ExtendRun` with the fencing token of its lease, which is looked at
  before anything else, in the transaction that writes;
* a reactor that has claimed an effect or obligation; the write itself checks the claim's token;
* anybody, for what comes from outside: a signal, a cancellation, a timer that is due.

Every change of a run or of what it has written down appends an entry to its journal and so
advances `seq_cursor`. Whoever has seen the run at that number has seen all there is.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from tape.errors import RunEnded, StaleLease
from tape.model.entry import NO_TRACE, EntryDraft, Trace
from tape.model.event import check_trace
from tape.model.lease import FIRST_TOKEN, BeginRun, Begun, NewRun, Taker
from tape.model.move import Decision, EntryPlace, Need, Overlay, Reading, RowChange, State, save
from tape.model.names import check_name
from tape.model.run import RUNS, SHOWN_WORDS, Run, fenced_run, find_run
from tape.model.run_end import EndRun
from tape.model.run_write import Extended, RunEntryDraft, RunWrite
from tape.settings import Limits

IDS_PER_WRITE = 6
"""No write makes more entries than that."""

_NOWHERE = EntryPlace(0, 0)


class _RunMove:
    __slots__ = ("_ids", "_run_id", "_trace", "_writes", "weight")

    def __init__(
        self,
        run_id: str,
        writes: Sequence[RunWrite],
        *,
        ids: Sequence[str],
        limits: Limits,
        trace: Trace = NO_TRACE,
    ) -> None:
        self._run_id = check_name(run_id, limits, field="run_id", required=True)
        self._writes = [write.checked(limits) for write in writes]
        check_trace(*trace)
        self._trace = trace
        self._ids = ids
        self.weight = 512 + sum(512 + write.size for write in writes)

    def needs(self) -> Iterable[Need]:
        yield Need(RUNS, self._run_id)
        for write in self._writes:
            yield from write.needs(self._run_id)

    def _changed(
        self, state: Reading, run: Run
    ) -> tuple[Extended, list[EntryDraft], list[RowChange]]:
        overlay = Overlay(state)
        first, before = run.seq_cursor + 1, run
        ids = iter(self._ids)
        drafts: list[EntryDraft] = []
        replies: list[Any] = []
        for write in self._writes:
            if before.is_open and not run.is_open:
                raise RunEnded(
                    f"nothing can be written after the end of run {run.run_id!r} in the same "
                    "request"
                )
            written = write.write(overlay, run)
            overlay.apply(written.changes)
            run = self._numbered(written.run, written.lines, ids, drafts)
            for other, lines in written.beside:
                overlay.apply([save(RUNS, self._numbered(other, lines, ids, drafts))])
            replies.append(run if written.reply is written.run else written.reply)
        changes = overlay.changes
        if run != before:
            changes.append(save(RUNS, run))
        return Extended(run, first, replies), drafts, changes

    def _numbered(
        self, run: Run, lines: Sequence[RunEntryDraft], ids: Iterator[str], drafts: list[EntryDraft]
    ) -> Run:
        """The run with its cursor behind these lines, which become entries."""
        for seq, line in enumerate(lines, run.seq_cursor + 1):
            drafts.append(
                EntryDraft(
                    next(ids),
                    *line,
                    run_id=run.run_id,
                    seq=seq,
                    trace_id=self._trace.trace_id,
                    span_id=self._trace.span_id,
                    parent_span_id=self._trace.parent_span_id,
                )
            )
        return run._replace(seq_cursor=run.seq_cursor + len(lines))


class ExtendRun(_RunMove):
    """Writes by the run's driver: all of them, or none."""

    __slots__ = ("_fencing_token",)

    def __init__(
        self, run_id: str, fencing_token: int, writes: Sequence[RunWrite], **rest: Any
    ) -> None:
        super().__init__(run_id, writes, **rest)
        self._fencing_token = fencing_token

    def decide(self, state: Reading) -> Decision[Extended]:
        run = find_run(state, self._run_id)
        if not run.is_open:
            return self._repeated(run)
        run = fenced_run(state, self._run_id, self._fencing_token)
        return Decision(*_with_reply(*self._changed(state, run)))

    def _repeated(self, run: Run) -> Decision[Extended]:
        """Only the writes that ended a run may come again; nothing but its end is answered."""
        if not self._fencing_token or run.fencing_token != self._fencing_token:
            fenced = f"run {run.run_id!r} has ended with fencing token {run.fencing_token}"
            raise StaleLease(f"{fenced}, this write carries {self._fencing_token}")
        last = self._writes[-1] if self._writes else None
        if not isinstance(last, EndRun) or not last.has_ended(run):
            raise RunEnded(f"run {run.run_id!r} is {SHOWN_WORDS[run.status]}")
        return Decision(_answer(Extended(run, 0, [*(None for _ in self._writes[1:]), run])))


class ChangeRun(_RunMove):
    """Writes from outside or by a reactor; the writes themselves say who may."""

    __slots__ = ()

    def decide(self, state: Reading) -> Decision[Extended]:
        run = find_run(state, self._run_id)
        return Decision(*_with_reply(*self._changed(state, run)))


def _with_reply(
    extended: Extended, drafts: list[EntryDraft], changes: list[RowChange]
) -> tuple[Callable[[EntryPlace], Extended], list[EntryDraft], list[RowChange]]:
    return _answer(extended), drafts, changes


def _answer(extended: Extended) -> Callable[[EntryPlace], Extended]:
    return lambda _place: extended


class BeginAndExtend:
    """Begin a run that is new and write for it at once, in one transaction.

    Of one that was there before, nothing is written but what `BeginRun` writes.
    """

    __slots__ = ("_begin", "_extend", "weight")

    def __init__(
        self,
        new: NewRun,
        taker: Taker,
        writes: Sequence[RunWrite],
        *,
        ids: Sequence[str],
        limits: Limits,
    ) -> None:
        first, *others = ids
        self._begin = BeginRun(new, taker, first, limits)
        self._extend = ExtendRun(
            new.name.run_id, FIRST_TOKEN, writes, ids=others, limits=limits, trace=new.trace
        )
        self.weight = self._begin.weight + self._extend.weight

    def needs(self) -> Iterable[Need]:
        yield from self._begin.needs()
        yield from self._extend.needs()

    def decide(self, state: State) -> Decision[Begun]:
        beginning = self._begin.decide(state)
        begun = beginning.reply(_NOWHERE)
        if begun.resumed or begun.fencing_token != FIRST_TOKEN:
            return beginning
        overlay = Overlay(state)
        overlay.apply(beginning.changes)
        extending = self._extend.decide(overlay)
        extended = extending.reply(_NOWHERE)
        written = begun._replace(run=extended.run, extended=extended)
        overlay.apply(extending.changes)
        return Decision(
            lambda _place: written, [*beginning.entries, *extending.entries], overlay.changes
        )
