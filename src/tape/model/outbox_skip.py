"""Skipping an outbox row that the broker will never take: by an operator, and on the journal."""

from collections.abc import Iterable

import orjson

from tape.config import Limits
from tape.errors import InvalidArgument, NotFound
from tape.model.entry import Draft, Kind
from tape.model.move import Decision, Need, Place, State, save
from tape.model.names import check_name
from tape.model.outbox import OUTBOX, OutboxPlace
from tape.model.subjects import outbox_skipped

SKIPPED = "skipped: "
"""How the `last_error` of a skipped row begins."""


class SkipOutboxRow:
    """Let what comes after a failing row pass; only for a row that has failed.

    The row counts as published from then on, with the reason. One that never became an event gets
    the place of the entry that tells of its skipping.
    """

    __slots__ = ("_by", "_event_id", "_reason", "_row_id", "weight")

    def __init__(self, row_id: int, reason: str, by: str, event_id: str, limits: Limits) -> None:
        self._row_id = row_id
        self._reason = check_name(reason, limits, field="reason", required=True)
        self._by = check_name(by, limits, field="by")
        self._event_id = event_id
        self.weight = 1024

    def needs(self) -> Iterable[Need]:
        yield Need(OUTBOX, self._row_id)

    def decide(self, state: State) -> Decision[OutboxPlace]:
        row = state.get(OUTBOX, self._row_id)
        if row is None:
            raise NotFound(f"the outbox has no row {self._row_id}")
        if row.published_to_nats:
            raise InvalidArgument(f"row {row.id} was already published or skipped", field="row_id")
        if row.repeat_of:
            raise InvalidArgument(
                f"row {row.id} is a repeat of the event {row.repeat_of}: it is not published and "
                "blocks no other row",
                field="row_id",
            )
        if not row.last_error:
            raise InvalidArgument(
                f"row {row.id} has not failed and will be published in its turn; only a row that "
                "failed can be skipped",
                field="row_id",
            )
        here = state.next_global_seq + len(state.entries)
        skipped = row._replace(
            global_seq=row.global_seq or here,
            published_to_nats=True,
            last_error=f"{SKIPPED}{self._reason}; was: {row.last_error}",
        )
        payload = {
            "row_id": row.id, "event_id": row.event_id, "subject": row.subject,
            "global_seq": row.global_seq, "reason": self._reason, "by": self._by,
            "error": row.last_error,
        }  # fmt: skip
        entry = Draft(
            self._event_id,
            Kind.OUTBOX.value,
            outbox_skipped(row.subject, row.id),
            orjson.dumps(payload).decode(),
        )

        def reply(_place: Place) -> OutboxPlace:
            return skipped

        return Decision(reply, [entry], [save(OUTBOX, skipped)])
