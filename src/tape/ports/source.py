"""A source of messages: something that delivers each message again until it is acknowledged.

The contract is `tests/conformance/source.py`, run over every source. In words:

* What `fetch` returns is in hand until it is acknowledged, given back, or the source is closed. The
  source keeps its claim on what is in hand alive by itself, however long that takes.
* `ack` may be lost on its way: then the message comes again, with the same place. It does not fail
  where the source is away: what could not be said is said once it is back, if it still counts then.
* Whoever does not acknowledge a message gets it again, or another reader of the same consumer does.
* Errors are SourceUnavailable (try again) and SourceRefused (the settings or the login are wrong,
  or what the subscription names is not there: trying again does not help).
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from tape.model.message import SourceMessage
from tape.model.subscription_spec import SourceSpec
from tape.ports.credentials import OpenedCredential


class ReceivedMessage(NamedTuple):
    """`receipt` is what it is acknowledged by."""

    message: SourceMessage
    receipt: str


class Source(Protocol):
    async def fetch(self, most: int, wait_s: float) -> list[ReceivedMessage]:
        """At most `most` messages, as soon as there are any; none after `wait_s`."""

    async def ack(self, receipts: Sequence[str]) -> None:
        """These are durable elsewhere and need not come again. Receipts of messages that were not
        fetched from this source object are passed over."""

    async def nak(self, receipts: Sequence[str]) -> None:
        """Give these back, to be delivered again soon."""

    async def backlog(self) -> int | None:
        """How many messages are at the source and not acknowledged, where it can say so: what waits
        and what is in hand."""

    async def passed(self) -> Mapping[str, int]:
        """By origin, the position up to which no message will ever be delivered again. An origin of
        which everything may still come is named, too, with a position before all: another consumer
        may have come further with it. Empty where the source cannot say."""

    def warnings(self) -> list[str]:
        """What about the source may lose messages or hold them up, for people. Empty if nothing."""

    async def close(self) -> None:
        """Give back what is in hand, and let go."""


class OpenSource(Protocol):
    async def __call__(
        self, spec: SourceSpec, credential: OpenedCredential | None, *, name: str
    ) -> Source:
        """Connect, and find what the spec names; SourceRefused if it is not there. `name` is shown
        in the log and to the broker."""
