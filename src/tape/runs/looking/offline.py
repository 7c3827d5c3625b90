"""Replaying a run offline: its app is driven from its journal, and nothing is done or written.

The app is called with the context that a driver would give it. What the journal holds is given
back from there; at the first step that it does not hold the replay is over, before anything is
begun: no effect's body, sampled function or decision is ever called.
"""

from collections.abc import Sequence
from concurrent.futures import Executor
from enum import StrEnum
from typing import Any, NamedTuple, NoReturn, cast

import orjson

from tape.errors import InvalidArgument
from tape.model.entry import Entry, Kind
from tape.model.error_record import error_words, without_traceback
from tape.model.json_text import UNLIMITED
from tape.model.run import Run, RunStatus
from tape.model.run_write import RunWrite
from tape.runs.declare import App
from tape.runs.driving.call_app import call_app
from tape.runs.driving.context import Context
from tape.runs.driving.decisions import Decisions
from tape.runs.driving.effect_loop import EffectLoop
from tape.runs.driving.journal_writes import JournalOperations, JournalWrites
from tape.runs.driving.journalled_effect import JournalledEffect
from tape.runs.driving.pen import Pen
from tape.runs.driving.polled_sources import PolledSources
from tape.runs.driving.polls import Polls
from tape.runs.driving.replay import RecordedStep, ReplayLog
from tape.runs.driving.steps import RunSteps
from tape.runs.driving.unwinding import HasDiverged, Parked, ReplayEnded
from tape.runs.looking.entry_words import deciding
from tape.settings import Limits

_NEXT = {
    "effect pending": "starts effect",
    "gate waiting": "reaches gate",
    "timer set": "sets timer",
    "value changed": "sets value",
    "value deleted": "deletes value",
    "event recorded": "records event",
}


class ReplayVerdict(StrEnum):
    """SAME to its end, or to where it waits; GOES_ON where the journal ends."""

    SAME = "same"
    GOES_ON = "goes_on"
    DIVERGED = "diverged"


class Replayed(NamedTuple):
    """`seq` is where the journal ends, or where it has something else than the code does."""

    verdict: ReplayVerdict
    steps: int
    seq: int
    text: str


async def replay_offline(
    run: Run, app: App[Any], entries: Sequence[Entry], executor: Executor
) -> Replayed:
    """What the app does with the whole journal of a run. One that is not async needs a thread."""
    if not entries or entries[0].seq != 1:
        raise InvalidArgument("the beginning of its journal has been pruned", field="run_id")
    log = _OfflineLog()
    log.add(entries)
    nowhere = cast("JournalOperations", _Nowhere(run))
    steps = _OfflineSteps(run, log, _OfflinePen(log), executor, UNLIMITED)
    try:
        end = await _replayed(app, steps, nowhere)
    except HasDiverged as diverged:
        verdict, note = ReplayVerdict.DIVERGED, str(diverged)
        at = log.looked_at.seq if log.looked_at else log.last_seq
    else:
        verdict, note = _judged(run, end)
        at = log.last_seq
        if verdict is ReplayVerdict.DIVERGED:
            at = max(entry.seq for entry in entries if entry.kind == Kind.RUN)
            note = f"the journal has that it {note} (seq {at}), the code {end.words}"
    text = _verdict_words(verdict, log.position, at, note)
    if run.app_version and run.app_version != app.version:
        text += f" (started by version {run.app_version!r}, this is {app.version!r})"
    return Replayed(verdict, log.position, at, text)


def _verdict_words(verdict: ReplayVerdict, steps: int, at: int, note: str) -> str:
    replayed = f"replayed {steps} step{'' if steps == 1 else 's'}"
    match verdict:
        case ReplayVerdict.SAME:
            return f"{replayed}: the code does what the journal records, {note}"
        case ReplayVerdict.GOES_ON:
            return f"{replayed}: the journal ends at seq {at}, then the code {note}"
        case ReplayVerdict.DIVERGED:
            return f"{replayed}, then the code does something else: {note}"


class _End(NamedTuple):
    """How the app ended, what it returned or raised, and that in words.

    Without a status it did not end: it waits, or has come to where the journal ends.
    """

    words: str
    status: RunStatus | None = None
    detail: Any = None
    waits: bool = False


def _judged(run: Run, end: _End) -> tuple[ReplayVerdict, str]:
    """What the replay's end is beside how the run stands, and of that what is to be told.

    A step that is refused or raises leaves no entry, and neither does where its driver was when a
    run was cancelled: as far as can be told, a run that ended there is the same.
    """
    recorded = RunStatus(run.ending or run.status)
    outcome = orjson.loads(run.outcome_json or "null")
    if recorded is RunStatus.CANCELLED:
        return ReplayVerdict.SAME, f"until it was cancelled; there it {end.words}"
    if recorded is RunStatus.FAILED and end.status is None and not end.waits:
        return (
            ReplayVerdict.SAME,
            f"until it failed with {error_words(outcome)}; there it {end.words}",
        )
    if recorded in (RunStatus.TERMINAL, RunStatus.FAILED):
        told, detail = _ending(recorded, outcome), end.detail
        if recorded is RunStatus.FAILED:  # where in the code that was may have moved
            detail, outcome = without_traceback(detail), without_traceback(outcome)
        same = (end.status, detail) == (recorded, outcome)
        return (ReplayVerdict.SAME, f"and {told}") if same else (ReplayVerdict.DIVERGED, told)
    return (
        (ReplayVerdict.SAME, f"and {end.words}")
        if end.waits
        else (ReplayVerdict.GOES_ON, end.words)
    )


def _ending(status: RunStatus, detail: Any) -> str:
    match status:
        case RunStatus.TERMINAL:
            return f"returns {orjson.dumps(detail).decode()}"
        case RunStatus.FAILED:
            return f"raises {error_words(detail)}"
    return "is cancelled"


class _OfflineLog(ReplayLog):
    """A journal that ends: where a driver would do something new, the replay is over."""

    def __init__(self) -> None:
        super().__init__()
        self.looked_at: RecordedStep | None = None

    def take(self, kind: str, name: str) -> RecordedStep:
        self.looked_at = self.peek()
        step = super().take(kind, name)
        if step is None:
            raise ReplayEnded(f"{_NEXT[kind]} {name}" if kind in _NEXT else deciding(name))
        return step

    def check_finished(self, how: str = "ends") -> None:
        self.looked_at = self.peek()
        super().check_finished(how)


class _OfflinePen(Pen):
    """What is no step of its own comes here: a budget, or a charge, that is not recorded yet."""

    def __init__(self, log: _OfflineLog) -> None:
        super().__init__(_never_called, log.last_seq)
        self._log = log
        self._ended: ReplayEnded | None = None

    def post_or(self, write: RunWrite, _instead: object) -> None:
        if not self._log.is_replaying:
            self._ended = ReplayEnded(f"writes {type(write).__name__}")
        self.check()

    async def write(self, write: RunWrite) -> None:
        self.post(write)

    def check(self) -> None:
        if self._ended is not None:
            raise self._ended


class _Nowhere:
    """Operations, none of which is done. A heartbeat is answered: it changes nothing for an app."""

    def __init__(self, run: Run) -> None:
        self._run = run

    @property
    def runs(self) -> "_Nowhere":
        return self

    @property
    def limits(self) -> Limits:
        """What is recorded was within them, whatever they were."""
        return UNLIMITED

    async def heartbeat_run(self, *_lease: Any) -> Run:
        return self._run

    def __getattr__(self, name: str) -> NoReturn:
        raise ReplayEnded(name)


class _OfflineSteps(RunSteps):
    """Steps of an app that goes as far as its journal, or to an effect that would be executed."""

    executes: ReplayEnded | None = None

    @property
    def is_cancelled(self) -> bool:
        """Only where the journal ends: when its driver heard of it is not recorded."""
        return super().is_cancelled and not self.log.is_replaying

    def check_end(self, error: BaseException | None) -> None:
        """Of branches in a group, one that fails counts more than one that would act."""
        super().check_end(error)
        if self.executes is not None and not isinstance(error, BaseExceptionGroup):
            raise self.executes


class _OfflineEffects(EffectLoop):
    """Effects, none of which comes to its body."""

    steps: _OfflineSteps

    async def wait_begun(self, journalled: JournalledEffect) -> None:
        """Never returns: it would be done now. Other branches go as far as the journal goes."""
        await super().wait_begun(journalled)
        self.steps.executes = ReplayEnded(
            f"executes effect {journalled.spec.name} again, because it is pending"
        )
        raise self.steps.executes


async def _replayed(app: App[Any], steps: _OfflineSteps, nowhere: JournalOperations) -> _End:
    decisions = Decisions(steps)
    effects = _OfflineEffects(steps, decisions, nowhere.runs)
    polls = Polls(steps, decisions, PolledSources(None, UNLIMITED, steps.run.run_id))
    context = Context(effects, JournalWrites(nowhere, steps.run, steps.pen, 0), polls)
    try:
        status, detail_json = await call_app(app, context, effects)
    except Parked as parked:
        return _End(f"waits for {parked.waiting_on}", waits=True)
    except ReplayEnded as ended:
        return _End(str(ended))
    detail = orjson.loads(detail_json)
    return _End(_ending(status, detail), status, detail)


async def _never_called(_what: Any) -> NoReturn:
    raise ReplayEnded
