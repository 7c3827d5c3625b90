"""What both stores need to make of the rows of subscriptions."""

from typing import Final

from tape.model.subscription import Listener, Subscription
from tape.ports.subscriptions import StoredSubscription
from tape.stores.rows import prefix_range

PUBSUB_PLACES: Final = prefix_range("pubsub/")
PURGES: Final = ("purge_places", "purge_keys", "purge_positions", "purge_letters")
"""In this order; the listener goes when they have removed everything."""

_LISTENER: Final = len(Subscription._fields)


def stored_subscription(*row: object) -> StoredSubscription:
    """Columns of a subscription, of its listener, the document, and how many dead letters."""
    subscription = Subscription._make(row[:_LISTENER])
    listener = Listener._make(row[_LISTENER:-2])
    document_json, dead_letters = row[-2:]
    return StoredSubscription(subscription, listener, str(document_json), int(str(dead_letters)))
