"""How the outbox is doing, on the wire."""

from operator import attrgetter

from tape.model.outbox import FailingRow, OutboxPlace, RelayTerm, RepeatedRow
from tape.ports.outbox import OutboxStatus
from tape.wire.v1 import tape_pb2 as pb

_failing_fields = attrgetter(*FailingRow._fields)
_term_fields = attrgetter(*RelayTerm._fields)
_repeat_fields = attrgetter(*RepeatedRow._fields)
_place_fields = attrgetter(*OutboxPlace._fields)


def status_to_wire(status: OutboxStatus) -> pb.OutboxStatus:
    return pb.OutboxStatus(
        waiting=status.waiting,
        unpromoted=status.unpromoted,
        oldest_ms=status.oldest_ms,
        failing=[pb.FailingRow(**row._asdict()) for row in status.failing],
        terms=[pb.RelayTerm(**term._asdict()) for term in status.terms],
        repeated_rows=status.repeated,
        repeats=[pb.RepeatedRow(**row._asdict()) for row in status.repeats],
    )


def status_from_wire(message: pb.OutboxStatus) -> OutboxStatus:
    return OutboxStatus(
        message.waiting,
        message.unpromoted,
        message.oldest_ms,
        [FailingRow(*_failing_fields(row)) for row in message.failing],
        [RelayTerm(*_term_fields(term)) for term in message.terms],
        message.repeated_rows,
        [RepeatedRow(*_repeat_fields(row)) for row in message.repeats],
    )


def place_to_wire(place: OutboxPlace) -> pb.OutboxPlace:
    return pb.OutboxPlace(**place._asdict())


def place_from_wire(message: pb.OutboxPlace) -> OutboxPlace:
    return OutboxPlace(*_place_fields(message))
