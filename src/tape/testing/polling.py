"""A source in memory for apps that poll: it has the messages that a test gives it.

    async def test_orders_are_taken(tmp_path):
        orders = MessagesToPoll({"order": 1}, {"order": 2})
        async with app_kit(tmp_path, open_source=orders) as kit:
            run = await kit.start_run(take_orders)
            await kit.settle(run.run_id)
            assert orders.acked == orders.places

It is every source that an app names. A message that was not acknowledged is delivered again: at
once if it was given back, else after `redeliver`, which stands for a broker's time to acknowledge.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from tape.model.message import SourceMessage
from tape.model.subscription_spec import SourceSpec
from tape.ports.source import ReceivedMessage, Source


class MessagesToPoll:
    """Give it to `app_kit` or `crashes` as `open_source`. Payloads are given as JSON takes them;
    bytes are the body itself.
    """

    def __init__(self, *payloads: Any) -> None:
        self.acked: list[str] = []
        """Places, in the order in which they were acknowledged."""
        self.places: list[str] = []
        """Of all messages that were ever sent."""
        self.opened = 0
        self.closed = 0
        self._waiting: list[SourceMessage] = []
        self._in_hand: dict[str, SourceMessage] = {}
        self._fetches = 0
        self._deliveries: dict[str, int] = {}
        self.send(*payloads)

    async def __call__(self, spec: SourceSpec, name: str) -> Source:  # noqa: ARG002 - see the port
        self.opened += 1
        return _ReaderInMemory(self)

    @property
    def waiting(self) -> list[str]:
        """Places of what the next poll would get."""
        return [message.place for message in self._waiting]

    @property
    def in_hand(self) -> list[str]:
        """Places of what somebody has fetched and neither acknowledged nor given back."""
        return [message.place for message in self._in_hand.values()]

    def send(self, *payloads: Any) -> None:
        for payload in payloads:
            body = payload if isinstance(payload, bytes) else orjson.dumps(payload)
            position = str(len(self.places) + 1)
            message = SourceMessage("test", "test/messages", position, body)
            self.places.append(message.place)
            self._waiting.append(message)

    def redeliver(self) -> None:
        """Deliver again what is in hand of readers that are gone."""
        self._waiting = [*self._in_hand.values(), *self._waiting]
        self._in_hand.clear()

    def take(self, most: int) -> list[ReceivedMessage]:
        taken, self._waiting = self._waiting[:most], self._waiting[most:]
        received = []
        for message in taken:
            self._fetches += 1
            count = self._deliveries[message.place] = self._deliveries.get(message.place, 0) + 1
            receipt = f"receipt-{self._fetches}"
            self._in_hand[receipt] = message
            received.append(ReceivedMessage(message._replace(deliveries=count), receipt))
        return received

    def settle(self, receipt: str) -> SourceMessage | None:
        return self._in_hand.pop(receipt, None)

    def put_back(self, messages: Sequence[SourceMessage]) -> None:
        self._waiting = [*messages, *self._waiting]


class _ReaderInMemory:
    def __init__(self, messages: MessagesToPoll) -> None:
        self._messages = messages
        self._mine: list[str] = []

    async def fetch(self, most: int, wait_s: float) -> list[ReceivedMessage]:  # noqa: ARG002
        received = self._messages.take(most)
        self._mine += [each.receipt for each in received]
        return received

    async def ack(self, receipts: Sequence[str]) -> None:
        settled = [self._messages.settle(receipt) for receipt in self._known(receipts)]
        self._messages.acked += [message.place for message in settled if message is not None]

    async def nak(self, receipts: Sequence[str]) -> None:
        settled = [self._messages.settle(receipt) for receipt in self._known(receipts)]
        self._messages.put_back([message for message in settled if message is not None])

    async def backlog(self) -> int | None:
        return len(self._messages.waiting) + len(self._mine)

    async def passed(self) -> Mapping[str, int]:
        return {}

    def warnings(self) -> list[str]:
        return []

    async def close(self) -> None:
        await self.nak(self._mine)
        self._messages.closed += 1

    def _known(self, receipts: Sequence[str]) -> list[str]:
        known = [receipt for receipt in receipts if receipt in self._mine]
        self._mine = [receipt for receipt in self._mine if receipt not in known]
        return known
