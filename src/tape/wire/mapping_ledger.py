"""Event subscriptions, drainers and what a pass has done, on the wire."""

from operator import attrgetter

from tape.model.drainer import Drainer, DrainerState, DrainReport, Triggered
from tape.model.event_subscription import DEFAULT_DRAINER, EventSubscription, NewSubscription
from tape.ports.ledger import RecentQuery
from tape.wire.v1 import tape_pb2 as pb

_subscription_fields = attrgetter(*EventSubscription._fields)
_drainer_fields = attrgetter(*Drainer._fields)
_state_fields = attrgetter(*DrainerState._fields[1:])
_triggered_fields = attrgetter(*Triggered._fields)
_FILTERS = (
    "prefix", "event_type", "entity_type", "entity_id", "run_id", "trace_id", "event_id",
    "caused_by", "source",
)  # fmt: skip


def new_to_wire(new: NewSubscription) -> pb.EventSubscription:
    return pb.EventSubscription(**new._asdict())


def new_from_wire(message: pb.EventSubscription) -> NewSubscription:
    return NewSubscription(
        message.subscription_id,
        message.event_type_glob,
        message.workflow_type,
        message.drainer_id or DEFAULT_DRAINER,
        message.input_mapper,
        message.filter_expr,
        enabled=message.enabled if message.HasField("enabled") else True,
        awaits_end=message.awaits_end if message.HasField("awaits_end") else True,
        pool=message.pool,
    )


def subscription_to_wire(row: EventSubscription) -> pb.EventSubscription:
    return pb.EventSubscription(**row._asdict())


def subscription_from_wire(message: pb.EventSubscription) -> EventSubscription:
    return EventSubscription._make(_subscription_fields(message))


def report_to_wire(report: DrainReport) -> pb.DrainEventsResponse:
    told = report._asdict()
    told["triggered"] = [pb.TriggeredRun(**run._asdict()) for run in report.triggered]
    return pb.DrainEventsResponse(**told)


def report_from_wire(message: pb.DrainEventsResponse) -> DrainReport:
    told = {name: getattr(message, name) for name in DrainReport._fields}
    triggered = tuple(Triggered._make(_triggered_fields(run)) for run in message.triggered)
    return DrainReport(**{**told, "triggered": triggered})


def state_to_wire(state: DrainerState) -> pb.DrainerRecord:
    return pb.DrainerRecord(
        **state.drainer._asdict(),
        subscriptions=state.subscriptions,
        lag=state.lag,
        is_held=state.is_held,
        waiting_on_app=state.waiting_on_app,
        waiting_on_pool=state.waiting_on_pool,
    )


def state_from_wire(message: pb.DrainerRecord) -> DrainerState:
    drainer = Drainer._make(_drainer_fields(message))
    return DrainerState(drainer, *_state_fields(message))


def recent_to_wire(query: RecentQuery) -> pb.ReadRecentRequest:
    return pb.ReadRecentRequest(
        before=query.before,
        limit=query.limit,
        scan=query.scan,
        **{name: getattr(query, name) for name in _FILTERS},
    )


def recent_from_wire(message: pb.ReadRecentRequest) -> RecentQuery:
    plain = RecentQuery()
    return RecentQuery(
        before=message.before,
        limit=message.limit or plain.limit,
        scan=message.scan or plain.scan,
        **{name: getattr(message, name) for name in _FILTERS},
    )
