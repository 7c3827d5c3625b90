"""The calls on the event ledger."""

from typing import Final

from tape.calls.call import Call, Noun, Pages
from tape.calls.fitting import ANSWER_BYTES, fitting
from tape.calls.replies import Field, HandMapped, Listed
from tape.calls.role import Role
from tape.ledger.operations import LedgerOperations
from tape.model.event_subscription import DEFAULT_DRAINER
from tape.ports.ledger import RecentEntries, RecentQuery
from tape.wire.codec import Absent, Empty, Record, Spread, Unsent
from tape.wire.mapping_entries import entries_from_wire, entry_to_wire
from tape.wire.records import (
    DRAIN_REPORT,
    DRAINER_STATE,
    EVENT_SUBSCRIPTION,
    NEW_EVENT_SUBSCRIPTION,
)
from tape.wire.v1 import tape_pb2 as pb

_RECENT: Final = RecentQuery()
RECENT_QUERY: Final = Record(
    RecentQuery,
    pb.ReadRecentRequest,
    held={
        "limit": Empty(_RECENT.limit),
        "scan": Empty(_RECENT.scan),
        "max_bytes": Unsent(ANSWER_BYTES // 2),
    },
)


def _recent_to_wire(found: RecentEntries) -> pb.EntryBatch:
    """As many as fit. The reply says where to go on, so what is left out is not lost."""
    messages, more = fitting(map(entry_to_wire, found.entries))
    before = messages[-1].global_seq if more else found.before
    return pb.EntryBatch(entries=messages, cursor=before)


def _recent_from_wire(batch: pb.EntryBatch) -> RecentEntries:
    return RecentEntries(entries_from_wire(batch), batch.cursor)


LEDGER: Final[Noun[LedgerOperations]] = Noun(
    lambda operations: operations.ledger,
    Call(
        "PutEventSubscription",
        Role.WRITE,
        LedgerOperations.put_event_subscription,
        EVENT_SUBSCRIPTION,
        held={"new": Spread(NEW_EVENT_SUBSCRIPTION)},
    ),
    Call(
        "DeleteEventSubscription",
        Role.WRITE,
        LedgerOperations.delete_event_subscription,
        Field("deleted", bool),
    ),
    Call(
        "ListEventSubscriptions",
        Role.READ,
        LedgerOperations.list_event_subscriptions,
        Listed("subscriptions", EVENT_SUBSCRIPTION),
        pages=Pages("after_subscription_id", lambda row: row.subscription_id),
    ),
    Call(
        "DrainEvents",
        Role.WRITE,
        LedgerOperations.drain,
        DRAIN_REPORT,
        held={"drainer_id": Empty(DEFAULT_DRAINER), "await_s": Absent(None)},
    ),
    Call(
        "ListDrainers",
        Role.READ,
        LedgerOperations.list_drainers,
        Listed("drainers", DRAINER_STATE),
        pages=Pages("after_drainer_id", lambda state: state.drainer.drainer_id),
    ),
    Call("SkipDrainerEvent", Role.ADMIN, LedgerOperations.skip, DRAINER_STATE),
    Call("ResumeDrainer", Role.WRITE, LedgerOperations.resume, DRAINER_STATE),
    Call(
        "ReadRecent",
        Role.READ,
        LedgerOperations.recent,
        HandMapped(_recent_to_wire, _recent_from_wire),
        held={"query": Spread(RECENT_QUERY)},
    ),
)
