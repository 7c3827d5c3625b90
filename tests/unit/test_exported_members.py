"""The public names are pinned: each is a promise."""

import subprocess
import sys

import tape
from tape import errors

NAMES = """
DEFAULT_URL AsyncTapeClient BrokerError BrokerRefused BrokerUnavailable Closed Deleted Entry
InvalidArgument NewEvent NotFound NotHeld OutcomeUnknown
Overloaded Page PermissionDenied Recorded Settings StaleLease StoreFailed StoreFull StoreMismatch
StoreUnavailable TapeClient TapeError TooLarge Unauthenticated Unsafe Value ValueChange
VersionMismatch connect connect_async errors event
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
