"""What an operator does about a halted drainer: skip the event, or try it again now."""

from collections.abc import Iterable

import orjson

from tape.config import Limits
from tape.errors import NotFound, NotHalted
from tape.model.drain import resumed_entry
from tape.model.drainer import DRAINERS, Drainer, check_drainer_id
from tape.model.entry import Draft, Kind
from tape.model.move import Decision, Need, State, save
from tape.model.names import check_name
from tape.model.subjects import drainer_skipped


class SkipEvent:
    """Move past the event a drainer is halted on, and no other, without dispatching it.

    A pass that is trying it just now loses its lease, so that it cannot count the event again.
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
        drainer = _halted(state, self._drainer_id)
        if drainer.halted_on_event_id != self._event_id:
            raise NotHalted(
                f"drainer {self._drainer_id!r} is halted on event {drainer.halted_on_event_id!r}, "
                f"not on {self._event_id!r}"
            )
        payload = {
            "drainer": self._drainer_id,
            "event_id": self._event_id,
            "global_seq": drainer.halted_on_global_seq,
            "reason": self._reason,
            "by": self._by,
        }
        skipped = (
            drainer.unhalted()
            .unleased()
            ._replace(
                last_global_seq=drainer.halted_on_global_seq,
                last_event_id=self._event_id,
                skipped_total=drainer.skipped_total + 1,
                attempts_json="",
            )
        )
        draft = Draft(
            self._entry_id,
            Kind.DRAINER.value,
            drainer_skipped(self._drainer_id),
            orjson.dumps(payload).decode(),
            caused_by=self._event_id,
        )
        return Decision(lambda _place: skipped, [draft], [save(DRAINERS, skipped)])


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
    drainer = state.get(DRAINERS, drainer_id)
    if drainer is None:
        raise NotFound(f"no drainer {drainer_id!r} has drained anything yet")
    if not drainer.halted_on_event_id:
        raise NotHalted(f"drainer {drainer_id!r} is not halted")
    return drainer
