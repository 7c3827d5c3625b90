"""The public names are pinned: each is a promise."""

import subprocess
import sys

import tape
from tape import errors

NAMES = """
DEFAULT_URL AckLost App AsyncTapeClient BrokerError BrokerRefused BrokerUnavailable Budget
BudgetExceeded BusinessKeyTaken Closed Context Deleted Diverged DrainReport DrainerState
EffectFailed Entry EventSubscription GiveUp
HandlerKind InvalidArgument LeaseHeld NewEvent NewReaction NotFound NotHalted NotHeld
NotInTransaction NotLeading Observed OutcomeUnknown Overloaded Page PermissionDenied Pruned
Reaction ReactionState Recorded RetryPolicy Run RunCancelled RunEnded RunStatus SchemaRefused
Settings SparkUnavailable Spend StaleLease StoreFailed StoreFull StoreMismatch StoreUnavailable
SyncContext TapeClient TapeError Task TaskOutcome TaskStatus TooLarge Unauthenticated Unsafe
Value ValueChange VersionMismatch app bus_subject cancel_run cancel_timer connect connect_async
create_processed delete_value effect errors event forget_processed gate get_value heartbeat
idempotency_key is_cancelled now on on_decision_recorded on_effect_confirmed on_effect_failed
on_effect_unknown on_event on_gate on_run on_value_change on_value_deleted patched processed_within
publish_within random reactions recover_once resume run_relay sample send_signal set_timer set_value
sleep start uuid with_budget
"""


def test_names() -> None:
    assert sorted(tape.__all__) == sorted(NAMES.split())
    assert all(hasattr(tape, name) for name in tape.__all__)


def test_every_error_a_caller_can_meet_is_there() -> None:
    hidden = {errors.PredicateError}  # followers count these, nobody catches them
    known = {
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.TapeError)
    }
    assert {kind for kind in known if not hasattr(tape, kind.__name__)} == hidden


def test_a_store_in_process_loads_no_network() -> None:
    heavy = {"grpc", "asyncpg", "pyspark", "psycopg", "sqlalchemy", "django", "pydantic"}
    code = f"import sys, tape; sys.exit(int(bool({heavy} & sys.modules.keys())))"
    subprocess.run([sys.executable, "-c", code], check=True)
