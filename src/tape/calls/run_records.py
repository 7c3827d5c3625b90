"""The calls that look at what runs have written down, and the one that fires timers."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from tape.calls.call import Call, Fence, Pages, Repeat, Rpc
from tape.calls.checks import INDEXES, SEQUENCE, TIMES, check_member, check_names, check_number
from tape.calls.fitting import ANSWER_BYTES
from tape.calls.replies import Found, HandMapped, Listed, OptionalField
from tape.calls.role import Role
from tape.model.names import check_name
from tape.model.obligation import ObligationStatus
from tape.model.timer import Timer
from tape.ports.runs import PendingQuery
from tape.runs.operations import PAGE, Admission, RunOperations
from tape.settings import Limits
from tape.wire import mapping_decisions
from tape.wire.codec import Computed, One, Record
from tape.wire.records import BUDGET, EFFECT, OBLIGATION, PENDING_QUERY, TIMER
from tape.wire.v1 import tape_pb2 as pb

_DUE = {ObligationStatus.PENDING, ObligationStatus.COMMITTED}

ADMISSION: Final = Record(Admission, pb.AdmitBudgetResponse, held={"budget": One(BUDGET)})


async def _get_decision(
    runs: RunOperations, request: pb.GetDecisionRequest, _limits: Limits
) -> pb.GetDecisionResponse:
    index = check_number(request.decision_index, INDEXES, field="decision_index")
    entry = await runs.get_decision(request.run_id, index)
    return mapping_decisions.found_to_wire(entry, as_entry=request.as_entry)


def pending_from_wire(request: pb.ListPendingEffectsRequest) -> PendingQuery:
    query = PENDING_QUERY.from_wire(request)
    return query._replace(include_unknown=query.include_unknown or not query.include_pending)


def _includes_none(query: PendingQuery) -> bool:
    """A request that includes neither asks for those whose outcome is unknown."""
    return not query.include_pending and not query.include_unknown


def _check_pending(request: pb.ListPendingEffectsRequest, limits: Limits) -> None:
    check_number(request.older_than_ms, TIMES, field="older_than_ms")
    check_names(request.connectors, limits, field="connectors")


def connectors_from_wire(request: pb.ListEffectsToDispatchRequest) -> tuple[str, ...]:
    named = (request.connector, *request.connectors)
    return tuple(connector for connector in named if connector)


def _check_connectors(request: pb.ListEffectsToDispatchRequest, limits: Limits) -> None:
    check_name(request.connector, limits, field="connector")
    check_names(request.connectors, limits, field="connectors")


async def _list_obligations(
    runs: RunOperations, request: pb.ListObligationsRequest, _limits: Limits
) -> Any:
    status = check_member(ObligationStatus, request.status_filter, field="status_filter")
    before = check_number(request.before_seq, SEQUENCE, field="before_seq")
    return _OBLIGATIONS.to_wire(
        row
        for row in await runs.list_obligations(request.run_id)
        if (not before or row.seq < before)
        and status in (0, row.status)
        and not (request.only_unresolved and row.status == ObligationStatus.COMPENSATED)
    )


async def _list_unresolved(
    runs: RunOperations, request: pb.ListUnresolvedObligationsRequest, _limits: Limits
) -> Any:
    named = {
        ObligationStatus.PENDING: request.include_pending,
        ObligationStatus.STUCK: request.include_stuck,
        ObligationStatus.COMMITTED: request.include_committed_expired,
    }
    wanted = {status for status, included in named.items() if included} or _DUE
    most = request.limit if request.limit > 0 else PAGE
    some_left_out = not wanted >= _DUE
    found = await runs.list_unresolved_obligations(
        PAGE if some_left_out else most, include_stuck=ObligationStatus.STUCK in wanted
    )
    return _UNRESOLVED.to_wire([row for row in found if row.status in wanted][:most])


async def _list_due_timers(
    runs: RunOperations, request: pb.ListDueTimersRequest, _limits: Limits
) -> pb.ListDueTimersResponse:
    if request.claim:
        return _due_to_wire(await runs.fire_due_timers(request.limit))
    return _due_to_wire(await runs.list_due_timers(request.limit))


def _due_to_wire(timers: Iterable[Timer]) -> pb.ListDueTimersResponse:
    return pb.ListDueTimersResponse(timers=_all_of(timers))


def _all_of(timers: Iterable[Timer]) -> Iterator[pb.TimerRecord]:
    """None is left out, for they have fired: only payloads are, where they are too much."""
    room = ANSWER_BYTES // 2
    for timer in timers:
        record = TIMER.to_wire(timer)
        size = record.ByteSize()
        if size > room:
            record.payload_json = ""
        else:
            room -= size
        yield record


def _due_from_wire(reply: pb.ListDueTimersResponse) -> list[Timer]:
    return TIMER.all_from_wire(reply.timers)


_OBLIGATIONS: Final = Listed("obligations", OBLIGATION)
_UNRESOLVED: Final = Listed("obligations", OBLIGATION)
_DUE_TIMERS: Final = HandMapped(_due_to_wire, _due_from_wire)

RUN_RECORDS: Final[tuple[Rpc[RunOperations], ...]] = (
    Call(
        "GetDecision",
        Role.READ,
        RunOperations.get_decision,
        HandMapped(
            lambda entry: mapping_decisions.found_to_wire(entry, as_entry=True),
            mapping_decisions.found_from_wire,
        ),
        sent={"as_entry": True},
        answer=_get_decision,
    ),
    Call("GetEffect", Role.READ, RunOperations.get_effect, Found("effect", EFFECT)),
    Call(
        "ListPendingEffects",
        Role.READ,
        RunOperations.list_pending_effects,
        Listed("effects", EFFECT),
        held={"query": Computed(pending_from_wire, PENDING_QUERY.fields)},
        check=_check_pending,
        empty_if=_includes_none,
    ),
    Call(
        "ListEffectsToDispatch",
        Role.READ,
        RunOperations.list_effects_to_dispatch,
        Listed("effects", EFFECT),
        held={"connectors": Computed(connectors_from_wire, lambda named: {"connectors": named})},
        check=_check_connectors,
    ),
    Call(
        "ListObligations",
        Role.READ,
        RunOperations.list_obligations,
        _OBLIGATIONS,
        pages=Pages("before_seq", lambda row: row.seq),
        answer=_list_obligations,
    ),
    Call(
        "ListUnresolvedObligations",
        Role.READ,
        RunOperations.list_unresolved_obligations,
        _UNRESOLVED,
        sent={"include_pending": True, "include_committed_expired": True},
        answer=_list_unresolved,
    ),
    Call(
        "AdmitBudget",
        Role.READ,
        RunOperations.admit_budget,
        ADMISSION,
        renamed={"usd": "usd_estimate", "tokens": "token_estimate"},
    ),
    Call(
        "ListTimers",
        Role.READ,
        RunOperations.list_timers,
        Listed("timers", TIMER),
        pages=Pages("after_timer_id", lambda timer: timer.timer_id),
    ),
    Call(
        "ListDueTimers",
        Role.WRITE,
        RunOperations.list_due_timers,
        _DUE_TIMERS,
        fence=Fence.OUTSIDE,
        repeat=Repeat.FREELY,  # it only looks unless it claims
        answer=_list_due_timers,
    ),
    Call(
        "ListDueTimers",
        Role.WRITE,
        RunOperations.fire_due_timers,
        _DUE_TIMERS,
        sent={"claim": True},
        fence=Fence.OUTSIDE,
        repeat=Repeat.ALWAYS,
    ),
    Call("NextTimer", Role.READ, RunOperations.next_timer_in_ms, OptionalField("in_ms", int)),
)
