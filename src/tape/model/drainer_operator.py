"""What an operator does about a drainer that does not go on: skip the event, or try it now."""

from collections.abc import Iterable

import orjson

from tape.errors import NotFound, NotHalted
from tape.model.drain import resumed_entry
from tape.model.drainer import DRAINERS, Drainer, check_drainer_id
from tape.model.entry import EntryDraft, Kind
from tape.model.move import Decision, Need, State, save
from tape.model.names import check_name
from tape.model.subjects import drainer_skipped
from tape.settings import Limits


class SkipEvent:
    """Move past the event that a drainer is halted on or waits with, and no other.

    A pass that is trying it just now loses its lease, so that it cannot count the event again. The
    run that a drainer has waited for stays as it is.
    """

    __slots__ = ("_by", "_drainer_id", "_entry_id", "_event_id", "_reason", "weight")

    def __init__(
        self, drainer_id: str, event_id: str, entry_id: str, limits: Limits, *, reason: str, by: str
    ) -> None:
        self._drainer_id = check_drainer_id(drainer_id, limits)
        self._event_id = check_name(event_id, limits, field="event_id", required=True)
        self._reason = check_name(reason, limits, field="reason", required=True)
        self._by = check_name(by, limits, field="by")
        self._entry_id = entry_id
        self.weight = 1024

    def needs(self) -> Iterable[Need]:
        yield Need(DRAINERS, self._drainer_id)

    def decide(self, state: State) -> Decision[Drainer]:
        drainer = _found(state, self._drainer_id)
        global_seq = self._place(drainer)
        payload = {
            "drainer": self._drainer_id,
            "event_id": self._event_id,
            "global_seq": global_seq,
            "reason": self._reason,
            "by": self._by,
        }
        if drainer.is_waiting:
            payload["run_id"] = drainer.waiting_on_run_id
        skipped = (
            drainer.unhalted()
            .unleased()
            .past(global_seq)
            ._replace(
                last_global_seq=global_seq,
                last_event_id=self._event_id,
                skipped_total=drainer.skipped_total + 1,
            )
        )
        draft = EntryDraft(
            self._entry_id,
            Kind.DRAINER.value,
            drainer_skipped(self._drainer_id),
            orjson.dumps(payload).decode(),
            caused_by=self._event_id,
        )
        return Decision(lambda _place: skipped, [draft], [save(DRAINERS, skipped)])

    def _place(self, drainer: Drainer) -> int:
        """Where the event is, if it is the one that holds the drainer up."""
        if drainer.is_waiting:
            does, event_id = "waits with", drainer.waiting_on_event_id
            global_seq = drainer.waiting_on_global_seq
        else:
            does, event_id = "is halted on", drainer.halted_on_event_id
            global_seq = drainer.halted_on_global_seq
        if not event_id:
            raise NotHalted(
                f"drainer {self._drainer_id!r} is not halted and does not wait for a run"
            )
        if event_id != self._event_id:
            raise NotHalted(
                f"drainer {self._drainer_id!r} {does} event {event_id!r}, not {self._event_id!r}"
            )
        return global_seq


class ResumeDrainer:
    """An operator says: try now. What was tried before stays counted."""

    __slots__ = ("_by", "_drainer_id", "_entry_id", "weight")

    def __init__(self, drainer_id: str, by: str, entry_id: str, limits: Limits) -> None:
        self._drainer_id = check_drainer_id(drainer_id, limits)
        self._by = check_name(by, limits, field="by")
        self._entry_id = entry_id
        self.weight = 512

    def needs(self) -> Iterable[Need]:
        yield Need(DRAINERS, self._drainer_id)

    def decide(self, state: State) -> Decision[Drainer]:
        drainer = _halted(state, self._drainer_id)
        entry = resumed_entry(drainer, self._entry_id, by=self._by, how="operator")
        resumed = drainer.unhalted()
        return Decision(lambda _place: resumed, [entry], [save(DRAINERS, resumed)])


def _halted(state: State, drainer_id: str) -> Drainer:
    drainer = _found(state, drainer_id)
    if not drainer.halted_on_event_id:
        raise NotHalted(f"drainer {drainer_id!r} is not halted")
    return drainer


def _found(state: State, drainer_id: str) -> Drainer:
    drainer = state.get(DRAINERS, drainer_id)
    if drainer is None:
        raise NotFound(f"no drainer {drainer_id!r} has drained anything yet")
    return drainer
