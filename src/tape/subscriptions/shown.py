"""A subscription and its dead letters as JSON: the same names over HTTP and on the command line."""

from base64 import b64decode
from typing import Any, Final

import orjson

from tape.model.message import Header, normalised
from tape.model.subscription import SubscriptionDeadLetter
from tape.subscriptions.operations import SubscriptionView

COUNTS: Final = (
    "fetched", "redelivered", "accepted", "deduplicated", "dead_lettered", "rejected", "spooled",
    "replayed",
)  # fmt: skip


def subscription_json(view: SubscriptionView) -> dict[str, Any]:
    """`backlog` is None if the source does not say; nobody listens while `owner` is empty."""
    subscription, listener = view.subscription, view.listener
    return {
        "name": subscription.name,
        "path": subscription.path,
        "source": subscription.source,
        "mode": subscription.mode,
        "activation": subscription.activation,
        "state": subscription.state,
        "revision": subscription.revision,
        "spec": orjson.loads(view.document_json)["spec"],
        "counts": {name: getattr(listener, name) for name in COUNTS},
        "in_flight": listener.in_flight,
        "backlog": listener.backlog if listener.backlog >= 0 else None,
        "last_accepted_at_ms": listener.last_accepted_at_ms,
        "last_error": listener.last_error,
        "circuits": [],
        "spool": {"items": 0, "bytes": 0, "oldest_at_ms": 0},
        "runtime": {
            "owner": listener.lease_owner if view.is_held else "",
            "expires_at_ms": listener.lease_expires_at_ms if view.is_held else 0,
        },
    }


def letter_json(letter: SubscriptionDeadLetter) -> dict[str, Any]:
    """Its headers by their names in lower case, as a run has them; its body in base64."""
    return {
        "id": letter.letter_id,
        "place": letter.place,
        "message_id": letter.message_id,
        "reason": letter.reason,
        "detail": letter.detail,
        "attempts": letter.attempts,
        "at_ms": letter.at_ms,
        "headers": normalised(letter_headers(letter)),
        "body": letter.body,
    }


def letter_headers(letter: SubscriptionDeadLetter) -> list[Header]:
    """As they came."""
    return [(name, b64decode(value)) for name, value in orjson.loads(letter.headers_json)]
