"""Subscriptions, and what listeners say, come back from the wire as they were."""

from base64 import b64encode
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from tape.model.begin_once import BegunOnce
from tape.model.lease import NewRun
from tape.model.listening import HoldSubscription, ReservedDispatches
from tape.model.message import SourceMessage
from tape.model.run import Run
from tape.model.subscription import Listener, Subscription, SubscriptionDeadLetter
from tape.runs.operations import RunOperations
from tape.subscriptions.operations import (
    AcceptedMessage,
    AcceptMessagesRequest,
    AcceptOutcome,
    RegisteredSubscription,
    SubscriptionHold,
    SubscriptionOperations,
    SubscriptionView,
)
from tape.wire.v1 import tape_pb2 as pb
from tests.unit.wire.by_row import answered, asked, heard, told
from tests.unit.wire.test_mapping_runs import int64s, names, rows, texts

headers = st.lists(st.tuples(texts, st.binary(max_size=8)), max_size=4).map(tuple)
messages = rows(
    SourceMessage,
    body=st.binary(max_size=32),
    headers=headers,
    deliveries=st.integers(1, 2**62),
)
letters = rows(
    SubscriptionDeadLetter,
    attempts=int64s,
    body=st.binary(max_size=32).map(lambda body: b64encode(body).decode()),
    headers_json=headers.map(
        lambda pairs: orjson.dumps([(n, b64encode(v).decode()) for n, v in pairs]).decode()
    ),
)
views = rows(SubscriptionView, subscription=rows(Subscription), listener=rows(Listener))
passed = st.lists(st.tuples(texts, int64s), max_size=3).map(tuple)


@given(views)
def test_subscriptions(view: SubscriptionView) -> None:
    operation = SubscriptionOperations.get_subscription
    assert told(operation, answered(operation, view)) == view
    listing = SubscriptionOperations.list_subscriptions
    assert told(listing, answered(listing, [view, view])) == [view, view]
    registering = SubscriptionOperations.register_subscription
    registered = RegisteredSubscription(view, is_new=False, is_changed=True)
    assert told(registering, answered(registering, registered)) == registered


@given(st.lists(letters, max_size=3), texts)
def test_dead_letters(found: list[SubscriptionDeadLetter], after: str) -> None:
    listing = SubscriptionOperations.list_subscription_dead_letters
    assert told(listing, answered(listing, found)) == found
    assert heard(listing, asked(listing, "s", after=after, limit=7)) == ["s", after, 7]
    assert heard(listing, pb.ListSubscriptionDeadLettersRequest(name="s")) == ["s", "", 100]


@given(rows(HoldSubscription, passed=passed), rows(SubscriptionHold))
def test_holds(request: HoldSubscription, hold: SubscriptionHold) -> None:
    operation = SubscriptionOperations.hold_subscription
    assert heard(operation, asked(operation, request)) == [request]
    assert told(operation, answered(operation, hold)) == hold


@given(rows(AcceptMessagesRequest, messages=st.lists(messages, max_size=3)))
def test_messages(request: AcceptMessagesRequest) -> None:
    operation = SubscriptionOperations.accept_messages
    assert heard(operation, asked(operation, request)) == [request]


@given(st.lists(rows(AcceptedMessage, outcome=st.sampled_from(AcceptOutcome)), max_size=3))
def test_what_became_of_messages(accepted: list[AcceptedMessage]) -> None:
    operation = SubscriptionOperations.accept_messages
    assert told(operation, answered(operation, accepted)) == accepted


@given(rows(ReservedDispatches), names, int64s)
def test_rates_and_cadences(reserved: ReservedDispatches, name: str, number: int) -> None:
    reserving = SubscriptionOperations.reserve_dispatches
    assert told(reserving, answered(reserving, reserved)) == reserved
    asking: Any = asked(reserving, name, number, 4, unused=2, held_up=True)
    assert heard(reserving, asking) == [name, number, 4, 2, True]
    ticking = SubscriptionOperations.tick_subscription
    assert told(ticking, answered(ticking, number)) == number
    assert heard(ticking, asked(ticking, name, number, 9)) == [name, number, 9]


@given(rows(NewRun, parent_run_id=st.just(""), parent_fencing_token=st.just(0)), rows(Run))
def test_runs_by_a_key(new: NewRun, run: Run) -> None:
    operation = RunOperations.begin_run_once
    assert heard(operation, asked(operation, new, "key", 9)) == [new, "key", 9]
    begun = BegunOnce(run, resumed=True, duplicate=True)
    assert told(operation, answered(operation, begun)) == begun
