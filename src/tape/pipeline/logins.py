"""How bulk reads of a subscription's source log in, by its credential, wherever they are.

What is sent to executors opens the credential there: they have the store and the key-encryption key
themselves, so no clear secret is part of a plan, an option or a message of Spark.
"""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Protocol

from tape.model.subscription_spec import SourceSpec


class NatsLink(NamedTuple):
    """A connection that is open, until `close`. `jetstream` is the context of NATS' own client,
    which comes with an extra."""

    jetstream: Any
    close: Callable[[], Awaitable[None]]


ConnectNats = Callable[[], Awaitable[NatsLink]]


class BulkTopic(NamedTuple):
    """A topic as Spark's own connector reads it; `topic_id` is empty where brokers know no ids."""

    servers: str
    topic_id: str


class SourceLogins(Protocol):
    """Can be pickled: executors are sent it."""

    async def connect_nats(self, alias: str) -> NatsLink:
        """StoreUnavailable if no server of the credential can be reached."""

    async def find_topic(self, spec: SourceSpec) -> BulkTopic:
        """SourceRefused if the credential says more than Spark's connector is told."""
