"""The calls on the journal itself: recording events and following entries. These are hot paths."""

from collections.abc import Sequence
from typing import Final

from tape.bus import FollowQuery, Operations
from tape.calls.call import ByFunction, Call, Fence, Noun, Rpc, StreamCall
from tape.calls.replies import HandMapped
from tape.calls.role import Role
from tape.journal.follow import Page
from tape.model.event import NewEvent
from tape.wire.codec import Record, Spread, Unsent
from tape.wire.mapping_entries import entries_from_wire
from tape.wire.mapping_events import (
    events_from_wire,
    events_to_wire,
    recorded_from_wire,
    recorded_to_wire,
)
from tape.wire.v1 import tape_pb2 as pb


def _all_have_keys(events: Sequence[NewEvent]) -> bool:
    """An event with an idempotency key is recorded once, however often it comes."""
    return all(event.idempotency_key for event in events)


FOLLOW_QUERY: Final = Record(
    FollowQuery,
    pb.FollowEntriesRequest,
    renamed={
        "pattern": "subject_pattern",
        "predicate": "predicate_cel",
        "after": "from_global_seq",
        "until": "to_global_seq",
    },
    held={"max_bytes": Unsent(0)},  # the server bounds what it holds
)


def _page(batch: pb.EntryBatch, _request: pb.FollowEntriesRequest) -> Page:
    return Page(entries_from_wire(batch), batch.cursor, batch.skipped, batch.last_error)


def _is_last(batch: pb.EntryBatch, request: pb.FollowEntriesRequest) -> bool:
    return bool(request.to_global_seq) and batch.cursor >= request.to_global_seq


JOURNAL: Final[Noun[Operations]] = Noun(
    lambda operations: operations,
    Call(
        "RecordEvents",
        Role.WRITE,
        Operations.record_events,
        HandMapped(recorded_to_wire, recorded_from_wire),
        request=ByFunction(events_to_wire, lambda request: ([events_from_wire(request)], {})),
        fence=Fence.TOKEN,
        repeat_if=_all_have_keys,
    ),
    Rpc("RecordEventStream", Role.WRITE, fence=Fence.TOKEN),
    StreamCall(
        "FollowEntries",
        Role.READ,
        Operations.follow,
        _page,
        cursor=("from_global_seq", lambda batch: batch.cursor),
        held={"query": Spread(FOLLOW_QUERY)},
        is_last=_is_last,
    ),
    Rpc("SubscribeBySubject", Role.READ),
    Rpc("SubscribeEvents", Role.READ),
    # What a server tells of itself besides, a client reads once, when it is opened.
    Call("GetJournalInfo", Role.READ, Operations.info),
)
