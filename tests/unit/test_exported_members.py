"""The public names are pinned: each is a promise."""

import subprocess
import sys

import tape
from tape import errors

NAMES = """
DEFAULT_URL AsyncTapeClient BrokerError BrokerRefused BrokerUnavailable Closed Deleted Entry
GiveUp HandlerKind InvalidArgument NewEvent NewReaction NotFound NotHeld OutcomeUnknown Overloaded
Page PermissionDenied Reaction ReactionState Recorded Settings StaleLease StoreFailed StoreFull
StoreMismatch StoreUnavailable TapeClient TapeError Task TaskOutcome TaskStatus TooLarge
Unauthenticated Unsafe Value ValueChange VersionMismatch connect connect_async errors event on
on_decision_recorded on_effect_confirmed on_effect_failed on_effect_unknown on_gate on_run
on_value_change on_value_deleted reactions
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
    code = "import sys, tape; sys.exit(int(bool({'grpc', 'asyncpg'} & sys.modules.keys())))"
    subprocess.run([sys.executable, "-c", code], check=True)
