"""What a record of the codec refuses to be declared as, and what its fields mean."""

from typing import NamedTuple

import pytest

from tape.model.drainer import DrainReport
from tape.model.event_subscription import DEFAULT_DRAINER
from tape.model.outbox import FailingRow, RelayTerm, RepeatedRow
from tape.ports.outbox import OutboxStatus
from tape.wire.codec import Empty, Record
from tape.wire.records import DRAIN_REPORT, NEW_EVENT_SUBSCRIPTION, OUTBOX_STATUS
from tape.wire.v1 import tape_pb2 as pb


class Named(NamedTuple):
    namespace: str
    unheard_of: str = ""


def test_a_field_that_the_message_lacks_is_refused_when_the_record_is_declared() -> None:
    with pytest.raises(TypeError, match="GetValueRequest has no field unheard_of"):
        Record(Named, pb.GetValueRequest)
    Record(Named, pb.GetValueRequest, renamed={"unheard_of": "key"})


def test_a_word_about_a_field_that_the_row_lacks_is_refused() -> None:
    with pytest.raises(TypeError, match="Named has no field key"):
        Record(Named, pb.GetValueRequest, renamed={"key": "unheard_of"})
    with pytest.raises(TypeError, match="Named has no field other"):
        Record(Named, pb.GetValueRequest, renamed={"unheard_of": "key"}, held={"other": Empty(1)})


def test_what_an_empty_request_means() -> None:
    new = NEW_EVENT_SUBSCRIPTION.from_wire(pb.EventSubscription())
    assert (new.drainer_id, new.enabled, new.awaits_end) == (DEFAULT_DRAINER, True, True)
    off = NEW_EVENT_SUBSCRIPTION.from_wire(pb.EventSubscription(enabled=False, awaits_end=False))
    assert (off.enabled, off.awaits_end) == (False, False)


def test_rows_within_a_row() -> None:
    status = OutboxStatus(
        3, 2, 1,
        [FailingRow(1, "e", "s", 5, 6, 7, "why")],
        [RelayTerm("r", 1, "me", 2, 3)],
        4,
        [RepeatedRow(1, "e", "s", "k", 5, 6, "first", 7)],
    )  # fmt: skip
    assert OUTBOX_STATUS.from_wire(OUTBOX_STATUS.to_wire(status)) == status
    report = DRAIN_REPORT.from_wire(DRAIN_REPORT.to_wire(DrainReport("d")))
    assert report == DrainReport("d")
    assert isinstance(report.triggered, tuple)
