"""The public names are pinned: each is a promise."""

import inspect
import subprocess
import sys
from importlib import import_module
from operator import attrgetter

import pytest

import tape
from tape import errors

NAMES = """
DEFAULT_URL AckLost App AsyncTapeClient BrokerError BrokerRefused BrokerUnavailable Budget
BudgetExceeded BusinessKeyTaken Closed Context CredentialDamaged CredentialState Deleted Diverged
DrainReport DrainerState EffectFailed Entry EventSubscription GiveUp HandlerKind InvalidArgument
LeaseHeld MessageRefused NewEvent NewReaction NoCredential NotFound NotHalted NotHeld
NotInTransaction NotLeading Observed OutcomeUnknown Overloaded Page PermissionDenied Polled Pruned
Reaction ReactionState Recorded RetryPolicy Run RunCancelled RunEnded RunStatus SchemaRefused
Settings SourceRefused SourceUnavailable SparkUnavailable Spend StaleLease StoreFailed StoreFull
StoreMismatch StoreUnavailable SubscriptionView SyncContext TapeClient TapeError Task TaskOutcome
TaskStatus TooLarge Unauthenticated Unsafe Value ValueChange VersionMismatch WalletLocked
WalletUnavailable WrongState app bus_subject cancel_run cancel_timer connect connect_async
create_processed delete_value effect errors event forget_processed gate get_value heartbeat
idempotency_key is_cancelled now on on_decision_recorded on_effect_confirmed on_effect_failed
on_effect_reconciled on_effect_unknown on_event on_gate on_run on_value_change on_value_deleted
patched processed_within publish_within random reactions recover_once resume run_relay sample
send_signal set_timer set_value sleep start uuid watch_value with_budget
"""


def test_names() -> None:
    assert sorted(tape.__all__) == sorted(NAMES.split())
    assert all(hasattr(tape, name) for name in tape.__all__)


FIRST_WEEK = """
App AsyncTapeClient Context DEFAULT_URL Entry Observed RetryPolicy Settings SyncContext TapeClient
TapeError app cancel_run connect connect_async delete_value effect errors event gate get_value
idempotency_key now on on_event on_run on_value_change publish_within random reactions resume
run_relay sample send_signal set_timer set_value sleep start uuid watch_value
"""


def test_dir_shows_what_a_user_meets_first() -> None:
    shown = {name for name in dir(tape) if not name.startswith("__")}
    assert shown == set(FIRST_WEEK.split())
    assert set(FIRST_WEEK.split()) < set(tape.__all__)


def test_errors_live_in_one_module() -> None:
    kinds = {
        name
        for name in tape.__all__
        if isinstance(kind := getattr(tape, name), type) and issubclass(kind, Exception)
    }
    assert {getattr(tape, name).__module__ for name in kinds} == {"tape.errors"}


DOCUMENTED = """
tape.cli tape.consumers tape.errors tape.payloads tape.pipeline.jobs.rollup.job tape.predicates
tape.predicates.to_spark tape.reactions tape.reactors tape.relaying tape.sinks tape.spark
tape.testing tape.testing.effects tape.testing.runs tape.worker
"""
"""Paths that README, docs and WIRE.md name. Some are thin: what they name lives in another room."""
NEED_NO_IMPORT = "consumers errors payloads reactions reactors relaying sinks spark testing worker"


@pytest.mark.parametrize("path", DOCUMENTED.split())
def test_documented_paths_can_be_imported(path: str) -> None:
    package, _, name = path.rpartition(".")
    assert hasattr(import_module(package), name) or import_module(path)


def test_modules_that_need_no_import() -> None:
    code = f"import tape; print(*(getattr(tape, n).__name__ for n in {NEED_NO_IMPORT.split()}))"
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert ran.stdout.split() == [f"tape.{name}" for name in NEED_NO_IMPORT.split()]


OF_OLD = """
TapeClient DEFAULT_URL effect idempotency_key gate Budget with_budget sample now uuid random resume
recover_once send_signal set_timer cancel_timer cancel_run is_cancelled heartbeat set_value
get_value watch_value delete_value AckLost RetryPolicy on on_value_change on_value_deleted
on_effect_confirmed on_effect_failed on_effect_unknown on_effect_reconciled on_decision_recorded
on_gate on_run reactions.run_dispatcher reactions.run_pubsub_bridge reactions.register_all
reactors.run_reactors reactors.run_outbox_relay sinks.LogSink sinks.WebhookSink sinks.PubSubSink
"""
"""Names that programs written for Tape use already, with `import tape` alone."""


@pytest.mark.parametrize("name", OF_OLD.split())
def test_names_that_people_already_use(name: str) -> None:
    assert callable(attrgetter(name)(tape)) or name == "DEFAULT_URL"


def test_what_is_loaded_late_needs_no_import_of_its_own() -> None:
    code = "import tape; tape.reactors.run_reactors; tape.sinks.LogSink"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_options_of_a_reaction_that_people_already_use() -> None:
    options = """predicate agent publish max_concurrency rate_limit_per_s debounce_ms retry_max
    retry_backoff_ms dlq_after_n num_shards name reaction_id"""
    assert set(options.split()) <= inspect.signature(tape.on).parameters.keys()


def test_every_error_a_caller_can_meet_is_there() -> None:
    # Followers count these, nobody catches them.
    hidden = {errors.PredicateError, errors.PredicateTooCostly}
    known = {
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.TapeError)
    }
    assert {kind for kind in known if not hasattr(tape, kind.__name__)} == hidden
