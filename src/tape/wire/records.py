"""The rows of the model and the messages that carry them, where only names need mapping."""

from collections.abc import Mapping
from typing import Any, Final

from tape.model.budget import BudgetRow, ChargeBudget, SetBudget
from tape.model.credential import CredentialState
from tape.model.decision import DecisionPlace, RecordDecision
from tape.model.drainer import Drainer, DrainerState, DrainReport, Triggered
from tape.model.effect import BeginEffect, CompleteEffect, Effect
from tape.model.effect_claim import (
    ClaimEffect,
    ReconcileEffect,
    RecordDispatchAttempt,
    RecordExternalObservation,
    RenewClaim,
)
from tape.model.entry import Trace
from tape.model.event_subscription import DEFAULT_DRAINER, EventSubscription, NewEventSubscription
from tape.model.gate import AwaitSignal, SendSignal, Signalled
from tape.model.obligation import (
    ClaimObligation,
    Obligation,
    ObligationKey,
    RecordObligationAttempt,
    RegisterCompensation,
    RenewObligationClaim,
    ResolveObligation,
)
from tape.model.outbox import FailingRow, OutboxPlace, RelayTerm, RepeatedRow
from tape.model.run import Run
from tape.model.run_end import CancelRun, EndRun
from tape.model.session import Appended, Session, SessionEvent, SessionWithEvents
from tape.model.timer import CancelTimer, SetTimer, Timer
from tape.model.value import Author, Deleted, Value, ValueChange
from tape.ports.outbox import OutboxStatus
from tape.ports.runs import PendingQuery, RecoverQuery, WaitingRuns
from tape.wire.codec import Absent, Each, Empty, Held, Maybe, One, Record, Several, Spread, Unsent
from tape.wire.v1 import tape_pb2 as pb

_CLAIMED: Final = {"claim_token": "fencing_token"}
"""What a row calls the token of its claim is the fencing token of its messages."""
_KEYED: Final[Mapping[str, Held]] = {"key": Spread(ObligationKey)}
_PARENT: Final[Mapping[str, Held]] = {"parent_run_id": Unsent(None)}
"""Whom the end of a run is told to is looked up by the server."""

VALUE: Final = Record(Value, pb.ValueRecord)
VALUE_CHANGE: Final = Record(ValueChange, pb.ValueEvent, held={"value": One(VALUE)})
DELETED: Final = Record(Deleted, pb.DeleteValueResponse)
# These are among the fields of several messages.
TRACE: Final[Record[Trace, Any]] = Record(Trace, pb.WriteValueRequest)
AUTHOR: Final[Record[Author, Any]] = Record(
    Author, pb.WriteValueRequest, held={"trace": Spread(Trace)}
)

SESSION: Final = Record(Session, pb.Session)
SESSION_EVENT: Final = Record(SessionEvent, pb.EventRecord)
SESSION_WITH_EVENTS: Final = Record(
    SessionWithEvents,
    pb.Session,
    held={"session": Spread(Session), "events": Each(SESSION_EVENT)},
)
APPENDED: Final = Record(Appended, pb.AppendEventResponse, held={"event": One(SESSION_EVENT)})

RUN: Final = Record(Run, pb.RunState, renamed={"waiting_on": "waiting_on_gate"})
WAITING_RUNS: Final = Record(WaitingRuns, pb.WaitingRuns)
RECOVER_QUERY: Final = Record(
    RecoverQuery, pb.ListRunsToRecoverRequest, held={"app_names": Several()}
)
END_RUN: Final = Record(EndRun, pb.EndRunRequest, held={"parent_run_id": Absent(None)})
CANCEL_RUN: Final = Record(CancelRun, pb.CancelRunRequest, held=_PARENT)
AWAIT_SIGNAL: Final = Record(AwaitSignal, pb.AwaitSignalRequest)
SEND_SIGNAL: Final = Record(SendSignal, pb.SendSignalRequest)
SIGNALLED: Final = Record(Signalled, pb.SendSignalResponse, held={"run": One(RUN)})

TIMER: Final = Record(Timer, pb.TimerRecord)
SET_TIMER: Final = Record(SetTimer, pb.SetTimerRequest)
CANCEL_TIMER: Final = Record(CancelTimer, pb.CancelTimerRequest)
BUDGET: Final = Record(BudgetRow, pb.BudgetState)
SET_BUDGET: Final = Record(SetBudget, pb.SetBudgetRequest)
CHARGE_BUDGET: Final = Record(ChargeBudget, pb.ChargeBudgetRequest)

RECORD_DECISION: Final = Record(RecordDecision, pb.RecordDecisionRequest)
DECISION_PLACE: Final = Record(DecisionPlace, pb.DecisionRecord)

REGISTER_COMPENSATION: Final = Record(RegisterCompensation, pb.RegisterCompensationRequest)
COMPENSATION: Final = Record(RegisterCompensation, pb.Compensation)
OBLIGATION: Final = Record(Obligation, pb.ObligationRecord, renamed=_CLAIMED)
CLAIM_OBLIGATION: Final = Record(ClaimObligation, pb.ClaimObligationRequest, held=_KEYED)
RENEW_OBLIGATION: Final = Record(
    RenewObligationClaim, pb.RenewObligationClaimRequest, renamed=_CLAIMED, held=_KEYED
)
OBLIGATION_ATTEMPT: Final = Record(
    RecordObligationAttempt,
    pb.RecordObligationAttemptRequest,
    renamed=_CLAIMED,
    held={**_KEYED, **_PARENT},
)
RESOLVE_OBLIGATION: Final = Record(
    ResolveObligation, pb.ResolveObligationRequest, renamed=_CLAIMED, held={**_KEYED, **_PARENT}
)

EFFECT: Final = Record(Effect, pb.EffectRecord, renamed=_CLAIMED)
BEGIN_EFFECT: Final = Record(BeginEffect, pb.BeginEffectRequest)
COMPLETE_EFFECT: Final = Record(
    CompleteEffect, pb.CompleteEffectRequest, held={"compensation": Maybe(COMPENSATION)}
)
CLAIM_EFFECT: Final = Record(ClaimEffect, pb.ClaimEffectDispatchRequest)
RENEW_EFFECT: Final = Record(RenewClaim, pb.RenewEffectClaimRequest, renamed=_CLAIMED)
EFFECT_ATTEMPT: Final = Record(
    RecordDispatchAttempt, pb.RecordDispatchAttemptRequest, renamed=_CLAIMED
)
OBSERVATION: Final = Record(
    RecordExternalObservation,
    pb.RecordExternalObservationRequest,
    renamed=_CLAIMED,
    held={
        "compensation": Maybe(COMPENSATION),
        "on_duplicate": Maybe(COMPENSATION),
        **_PARENT,
    },
)
RECONCILE_EFFECT: Final = Record(ReconcileEffect, pb.ReconcileEffectRequest, renamed=_CLAIMED)
PENDING_QUERY: Final = Record(
    PendingQuery, pb.ListPendingEffectsRequest, held={"connectors": Several()}
)

EVENT_SUBSCRIPTION: Final = Record(EventSubscription, pb.EventSubscription)
NEW_EVENT_SUBSCRIPTION: Final = Record(
    NewEventSubscription,
    pb.EventSubscription,
    held={
        "drainer_id": Empty(DEFAULT_DRAINER),
        "enabled": Absent(True),
        "awaits_end": Absent(True),
    },
)
TRIGGERED: Final = Record(Triggered, pb.TriggeredRun)
DRAIN_REPORT: Final = Record(
    DrainReport, pb.DrainEventsResponse, held={"triggered": Each(TRIGGERED, tuple)}
)
DRAINER_STATE: Final = Record(DrainerState, pb.DrainerRecord, held={"drainer": Spread(Drainer)})

OUTBOX_PLACE: Final = Record(OutboxPlace, pb.OutboxPlace)
OUTBOX_STATUS: Final = Record(
    OutboxStatus,
    pb.OutboxStatus,
    renamed={"repeated": "repeated_rows"},
    held={
        "failing": Each(Record(FailingRow, pb.FailingRow)),
        "terms": Each(Record(RelayTerm, pb.RelayTerm)),
        "repeats": Each(Record(RepeatedRow, pb.RepeatedRow)),
    },
)

CREDENTIAL_STATE: Final = Record(CredentialState, pb.CredentialState)
