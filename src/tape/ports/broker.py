"""A broker: where publish tasks and the relay send entries.

The contract is executable: `tests/conformance/broker.py` runs over every broker. In words:

* `publish` returns for each message None once the broker's own acknowledgement is in, or why not.
  Nothing is acknowledged by us on the strength of a socket that took the bytes.
* Messages with one ordering key reach the broker in the order given. After a failure the later
  messages of that key are not tried: their result is the same failure.
* Sending the same message again is allowed (at least once). `message_id` is the same each time, so
  a broker or consumer that drops repeats can; `attempt` says which time this is.
* Client errors never leave a broker: they are BrokerUnavailable (try again) or BrokerRefused (this
  message will not be taken as it is).
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol

from tape.errors import BrokerError
from tape.model.entry import Entry


class Outgoing(NamedTuple):
    """An entry on its way out. `attempt` counts from 1; a greater one may be a repeat."""

    entry: Entry
    message_id: str
    ordering_key: str
    attempt: int = 1


class Broker(Protocol):
    async def publish(self, messages: Sequence[Outgoing]) -> list[BrokerError | None]:
        """In order per key; for each message None once acknowledged, or the reason."""

    async def close(self) -> None:
        """Let go of the connection; what `publish` answered stays answered."""


MaySend = Callable[[], bool]
"""Asked before each message leaves; when it is False the message is not tried."""


class BusBroker(Protocol):
    """A broker of the outbox: each message goes to its own bus subject, its entry's event type."""

    async def prepare(self) -> None:
        """Be there, and have what messages are kept in, so that consumers find it; or a
        BrokerError."""

    async def publish(
        self, messages: Sequence[Outgoing], may_send: MaySend
    ) -> list[BrokerError | None]:
        """In order per key; for each message None once acknowledged, or the reason."""

    async def close(self) -> None: ...


OpenBroker = Callable[[str], Awaitable[Broker]]
"""A target such as `nats://host:4222/subject` to its broker; InvalidArgument if it is malformed."""
