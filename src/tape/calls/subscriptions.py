"""The calls on declared subscriptions: their documents and states, and the work of listeners."""

from base64 import b64decode, b64encode
from functools import partial
from typing import Any, Final

import orjson

from tape.calls.call import Call, Fence, Noun, Pages, Repeat
from tape.calls.checks import check_size
from tape.calls.replies import Field, HandMapped, Listed
from tape.calls.role import Role
from tape.model.message import Header, SourceMessage
from tape.model.subscription import Listener, Subscription, SubscriptionDeadLetter
from tape.subscriptions.operations import (
    AcceptedMessage,
    AcceptMessagesRequest,
    AcceptOutcome,
    HoldSubscription,
    RegisteredSubscription,
    ReservedDispatches,
    SubscriptionHold,
    SubscriptionOperations,
    SubscriptionView,
)
from tape.wire.codec import Absent, Computed, Each, Empty, One, Record, Several, Spread
from tape.wire.v1 import tape_pb2 as pb

LETTERS_PAGE: Final = 100

LISTENER: Final = Record(Listener, pb.ListenerRecord)
SUBSCRIPTION_VIEW: Final = Record(
    SubscriptionView,
    pb.SubscriptionRecord,
    held={"subscription": Spread(Subscription), "listener": One(LISTENER)},
)
REGISTERED_SUBSCRIPTION: Final = Record(
    RegisteredSubscription,
    pb.RegisterSubscriptionResponse,
    renamed={"view": "subscription"},
    held={"view": One(SUBSCRIPTION_VIEW)},
)


def _headers_from_wire(message: Any) -> tuple[Header, ...]:
    return tuple((header.name, header.value) for header in message.headers)


def _headers_to_wire(headers: tuple[Header, ...]) -> dict[str, Any]:
    return {"headers": [pb.MessageHeader(name=name, value=value) for name, value in headers]}


def _stored_headers(message: Any) -> str:
    """Headers as a dead letter keeps them: names, and values in base64."""
    pairs = [(name, b64encode(value).decode()) for name, value in _headers_from_wire(message)]
    return orjson.dumps(pairs).decode()


def _sent_headers(headers_json: str) -> dict[str, Any]:
    pairs = orjson.loads(headers_json)
    return _headers_to_wire(tuple((name, b64decode(value)) for name, value in pairs))


SOURCE_MESSAGE: Final = Record(
    SourceMessage,
    pb.SourceMessage,
    held={"headers": Computed(_headers_from_wire, _headers_to_wire), "deliveries": Empty(1)},
)
ACCEPT_REQUEST: Final = Record(
    AcceptMessagesRequest, pb.AcceptMessagesRequest, held={"messages": Each(SOURCE_MESSAGE)}
)
ACCEPTED_MESSAGE: Final = Record(
    AcceptedMessage,
    pb.AcceptedMessage,
    held={
        "outcome": Computed(
            lambda message: AcceptOutcome(message.outcome), lambda word: {"outcome": word.value}
        )
    },
)
DEAD_LETTER: Final = Record(
    SubscriptionDeadLetter,
    pb.SubscriptionDeadLetter,
    held={
        "headers_json": Computed(_stored_headers, _sent_headers),
        "body": Computed(
            lambda message: b64encode(message.body).decode(),
            lambda body: {"body": b64decode(body)},
        ),
    },
)
HOLD: Final = Record(
    HoldSubscription,
    pb.HoldSubscriptionRequest,
    renamed={"owner": "lease_owner", "ttl_ms": "lease_ttl_ms"},
    held={
        "backlog": Absent(-1),
        "passed": Computed(
            lambda message: tuple((each.origin, each.position) for each in message.passed),
            lambda passed: {
                "passed": [pb.PassedOrigin(origin=name, position=at) for name, at in passed]
            },
        ),
    },
)
HELD: Final = Record(SubscriptionHold, pb.HoldSubscriptionResponse)
RESERVED: Final = Record(ReservedDispatches, pb.ReserveDispatchesResponse)


def _accepted_to_wire(accepted: list[AcceptedMessage]) -> pb.AcceptMessagesResponse:
    """Of every message: what is not told of could not be acknowledged."""
    return pb.AcceptMessagesResponse(messages=map(ACCEPTED_MESSAGE.to_wire, accepted))


def _accepted_from_wire(message: pb.AcceptMessagesResponse) -> list[AcceptedMessage]:
    return ACCEPTED_MESSAGE.all_from_wire(message.messages)


ACCEPT_MESSAGES: Final = Call(
    "AcceptMessages",
    Role.WRITE,
    SubscriptionOperations.accept_messages,
    HandMapped(_accepted_to_wire, _accepted_from_wire),
    held={"request": Spread(ACCEPT_REQUEST)},
    fence=Fence.TOKEN,
    repeat=Repeat.ALWAYS,
    check=partial(check_size, field="messages"),
)

SUBSCRIPTIONS: Final[Noun[SubscriptionOperations]] = Noun(
    lambda operations: operations.subscriptions,
    Call(
        "RegisterSubscription",
        Role.ADMIN,
        SubscriptionOperations.register_subscription,
        REGISTERED_SUBSCRIPTION,
        repeat=Repeat.ALWAYS,
    ),
    Call(
        "GetSubscription",
        Role.READ,
        SubscriptionOperations.get_subscription,
        SUBSCRIPTION_VIEW,
    ),
    Call(
        "ListSubscriptions",
        Role.READ,
        SubscriptionOperations.list_subscriptions,
        Listed("subscriptions", SUBSCRIPTION_VIEW),
        pages=Pages("after_name", lambda view: view.subscription.name),
    ),
    Call(
        "MoveSubscription",
        Role.ADMIN,
        SubscriptionOperations.move_subscription,
        SUBSCRIPTION_VIEW,
        repeat=Repeat.ALWAYS,
    ),
    Call(
        "DeleteSubscription",
        Role.ADMIN,
        SubscriptionOperations.delete_subscription,
        Field("deleted", bool),
    ),
    Call(
        "ListSubscriptionDeadLetters",
        Role.READ,
        SubscriptionOperations.list_subscription_dead_letters,
        Listed("dead_letters", DEAD_LETTER),
        held={"limit": Empty(LETTERS_PAGE)},
    ),
    Call(
        "SettleSubscriptionDeadLetters",
        Role.WRITE,
        SubscriptionOperations.settle_subscription_dead_letters,
        Field("count", int),
        held={"ids": Several()},
    ),
    Call(
        "HoldSubscription",
        Role.WRITE,
        SubscriptionOperations.hold_subscription,
        HELD,
        held={"request": Spread(HOLD)},
        fence=Fence.TOKEN,
    ),
    Call(
        "ReserveDispatches",
        Role.WRITE,
        SubscriptionOperations.reserve_dispatches,
        RESERVED,
        fence=Fence.TOKEN,
    ),
    Call(
        "TickSubscription",
        Role.WRITE,
        SubscriptionOperations.tick_subscription,
        Field("due_at_ms", int),
        fence=Fence.TOKEN,
        repeat=Repeat.ALWAYS,
    ),
    ACCEPT_MESSAGES,
)
