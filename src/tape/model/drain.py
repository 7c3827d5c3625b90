"""The writes of a pass: runs begun together with the cursor, and the halt at a failure.

A run is begun in the turn that also looks at the drainer's token and notes how far the drainer has
come. So whoever has lost the lease begins nothing, and a cursor that has passed an event proves
that its runs are there.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import orjson

from tape.errors import StaleLease
from tape.model.begin_runs import RunsToBegin
from tape.model.drainer import DISPATCH_FAILED, DRAINERS, Drainer, DrainerLease, held_drainer
from tape.model.entry import Entry, EntryDraft, Kind
from tape.model.event import NewEvent, draft_own_event
from tape.model.lease import Begun, NewRun
from tape.model.move import Decision, Need, State, save
from tape.model.subjects import drainer_halted, drainer_resumed
from tape.settings import Limits

ERROR_CHARACTERS = 2_000
MOST_DOUBLINGS = 30
_RUN = re.compile("^run '[^']*'")


class PassProgress(NamedTuple):
    """How far a pass has come, and what it has done since it last said so."""

    global_seq: int
    event_id: str
    processed: int = 0
    dispatched: int = 0


class AwaitedRun(NamedTuple):
    """The run that a pass waits for, and the event that made it."""

    run_id: str
    event: Entry


class Pauses(NamedTuple):
    """How long until a halted drainer is tried again: doubling, and up to a fifth shorter, so that
    drainers that halted together do not all try together. `jitter` is drawn from 0 to 1."""

    first_ms: int
    most_ms: int
    jitter: float

    def after(self, failures: int) -> int:
        doubled = min(self.first_ms << min(failures - 1, MOST_DOUBLINGS), self.most_ms)
        return round(doubled * (1 - self.jitter / 5))


AT_ONCE = Pauses(0, 0, 0.0)


class DispatchFailure(NamedTuple):
    """What could not be dispatched, to which subscription, and why; `attempt` is 0 for the next."""

    event: Entry
    subscription_id: str
    run_id: str
    error: str
    attempt: int = 0


class DispatchEvents:
    """Begin runs and note the cursor, both or neither; the runs, in order."""

    __slots__ = ("_begin", "_event_id", "_hold", "_letting_go", "_passed", "_waits_for", "weight")

    def __init__(
        self,
        hold: DrainerLease,
        passed: PassProgress,
        runs: Sequence[NewRun],
        *,
        ids: Sequence[str],
        limits: Limits,
        letting_go: bool = False,
        waits_for: AwaitedRun | None = None,
    ) -> None:
        """`ids` has one more than there are runs."""
        self._waits_for = waits_for
        self._event_id, *rest = ids
        self._hold = hold
        self._passed = passed
        self._begin = RunsToBegin((run.checked(limits) for run in runs), rest)
        self._letting_go = letting_go
        self.weight = 1024 + self._begin.weight

    def needs(self) -> Iterable[Need]:
        yield Need(DRAINERS, self._hold.drainer_id)
        yield from self._begin.needs()

    def decide(self, state: State) -> Decision[list[Begun]]:
        drainer = held_drainer(state, self._hold)
        drainer, entries = _advanced(drainer, self._passed, self._event_id, state.now_ms)
        if self._letting_go:
            drainer = drainer.unleased()
        if self._waits_for is not None:
            drainer = _waiting(drainer, self._waits_for, state.now_ms)
        runs = self._begin.decide_all(state)
        begun = [run.begun for run in runs]
        return Decision(
            lambda _place: begun,
            [*entries, *(entry for run in runs for entry in run.entries)],
            [save(DRAINERS, drainer), *(change for run in runs for change in run.changes)],
        )


class HaltDrainer:
    """Note a failure and how far the pass has come before it, and let go of the lease.

    The journal is told when the drainer halts there, and when it does so for another reason. What
    is tried again and again would fill it otherwise.
    """

    __slots__ = ("_failure", "_hold", "_ids", "_limits", "_passed", "_pauses", "weight")

    def __init__(
        self,
        hold: DrainerLease,
        passed: PassProgress,
        failure: DispatchFailure,
        ids: Sequence[str],
        limits: Limits,
        *,
        pauses: Pauses = AT_ONCE,
    ) -> None:
        """`ids` are three."""
        self._hold = hold
        self._pauses = pauses
        self._passed = passed
        self._failure = failure._replace(error=readable(failure.error))
        self._ids = ids
        self._limits = limits
        self.weight = 4096

    def needs(self) -> Iterable[Need]:
        yield Need(DRAINERS, self._hold.drainer_id)

    def decide(self, state: State) -> Decision[Drainer]:
        event, subscription_id, _run_id, error, attempt = self._failure
        drainer = held_drainer(state, self._hold)
        drainer, entries = _advanced(drainer, self._passed, self._ids[0], state.now_ms)
        before = drainer
        attempts = before.attempts.counted(
            event.event_id, event.global_seq, subscription_id, attempt
        )
        is_known = before.attempts.event_id == event.event_id and before.halted_at_ms
        drainer = drainer.unleased().not_waiting()._replace(
            failed_total=drainer.failed_total + 1,
            halted_on_event_id=event.event_id,
            halted_on_global_seq=event.global_seq,
            halted_at_ms=before.halted_at_ms if is_known else state.now_ms,
            next_try_at_ms=state.now_ms + self._pauses.after(attempts.total),
            last_error=error,
            attempts_json=attempts.to_json(),
        )  # fmt: skip
        if before.halted_on_event_id != event.event_id or _differs(before.last_error, error):
            entries += self._halt_entries(drainer, attempts.failed[subscription_id])
        return Decision(lambda _place: drainer, entries, [save(DRAINERS, drainer)])

    def _halt_entries(self, drainer: Drainer, attempt: int) -> list[EntryDraft]:
        event, subscription_id, run_id, error, _attempt = self._failure
        payload = orjson.dumps(
            {
                "drainer": drainer.drainer_id,
                "subscription": subscription_id,
                "event_id": event.event_id,
                "event_type": event.event_type,
                "global_seq": event.global_seq,
                "attempt": attempt,
                "run_id": run_id,
                "error": error,
            }
        ).decode()
        failed = NewEvent(
            DISPATCH_FAILED,
            payload,
            entity_type="drainer",
            entity_id=drainer.drainer_id,
            caused_by=event.event_id,
            source="tape",
            trace_id=event.trace_id,
            parent_span_id=event.span_id or event.parent_span_id,
        )
        halted = EntryDraft(
            self._ids[2],
            Kind.DRAINER.value,
            drainer_halted(drainer.drainer_id),
            payload,
            caused_by=event.event_id,
        )
        return [draft_own_event(failed, self._ids[1], self._limits), halted]


def _advanced(
    drainer: Drainer, passed: PassProgress, event_id: str, now_ms: int
) -> tuple[Drainer, list[EntryDraft]]:
    """The drainer where the pass has come to. Past the event it was halted on it goes on."""
    if passed.global_seq < drainer.last_global_seq:
        raise StaleLease(
            f"drainer {drainer.drainer_id!r} is at {drainer.last_global_seq} already, this pass "
            f"only at {passed.global_seq}"
        )
    entries: list[EntryDraft] = []
    if drainer.halted_on_event_id and passed.global_seq >= drainer.halted_on_global_seq:
        entries.append(resumed_entry(drainer, event_id, by="", how="dispatched"))
        drainer = drainer.unhalted()
    return drainer.past(passed.global_seq)._replace(
        last_global_seq=passed.global_seq,
        last_event_id=passed.event_id,
        last_drained_at_ms=now_ms,
        events_processed_total=drainer.events_processed_total + passed.processed,
        dispatched_total=drainer.dispatched_total + passed.dispatched,
    ), entries


def _waiting(drainer: Drainer, waits_for: AwaitedRun, now_ms: int) -> Drainer:
    run_id, event = waits_for
    if drainer.waiting_on_run_id == run_id:
        return drainer
    return drainer._replace(
        waiting_on_run_id=run_id,
        waiting_on_event_id=event.event_id,
        waiting_on_global_seq=event.global_seq,
        waiting_since_ms=now_ms,
    )


def _differs(before: str, now: str) -> bool:
    """Each attempt is a run of its own, whose id makes no other reason."""
    return _RUN.sub("", before) != _RUN.sub("", now)


def resumed_entry(drainer: Drainer, event_id: str, *, by: str, how: str) -> EntryDraft:
    """`how` is operator, or dispatched where a retry has succeeded by itself."""
    payload = {
        "drainer": drainer.drainer_id,
        "event_id": drainer.halted_on_event_id,
        "by": by,
        "how": how,
    }
    return EntryDraft(
        event_id,
        Kind.DRAINER.value,
        drainer_resumed(drainer.drainer_id),
        orjson.dumps(payload).decode(),
        caused_by=drainer.halted_on_event_id,
    )


def readable(text: str) -> str:
    """An error as people and databases can have it: bounded, and without NUL or half characters."""
    return text.replace("\0", "\\0").encode(errors="replace").decode()[:ERROR_CHARACTERS]
